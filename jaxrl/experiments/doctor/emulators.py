"""The probes of `jaxrl doctor` that play: every way to the emulators, frame by frame."""

import zlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.network import NetworkConfig
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.envs import make_engine
from jaxrl.envs.atari2600.engine import plays_on_gpu
from jaxrl.envs.atari2600.gpu_library import mask_bus
from jaxrl.envs.base import first_env_seed, has_nvidia_gpu
from jaxrl.envs.envpool.engine import has_custom_call, make_pool
from jaxrl.experiments.doctor.protocol import Answer
from jaxrl.types import TimeStep

NUM_ENVS = 4  # games of Pong
NUM_STEPS = 40  # steps of each game, long enough for the ball to be served
SEED = 1
# Cartridges of one bank, of slices, with a second chip, and a game that thinks for whole frames.
GPU_GAMES = ("pong", "montezuma_revenge", "pitfall2", "tic_tac_toe_3d")
GPU_ENVS = 70  # whole warps and a part
GAMES_PER_WARP = (1, 32)  # fewest and most
# Games begin apart from each other, and end and are reset within these few steps.
GPU_RULES = {
    "random_start_steps": 30,
    "max_episode_steps": 12,
    "noop_max": 4,  # a card waits in every step for the game with the longest reset
    "repeat_action_probability": 0.25,
}


def a2c_config(**changes: Any) -> Config:
    """A2C as `configs/a2c/a2c_fast.toml` has it."""
    network = NetworkConfig(torso="nips", normalize_observations=True)
    optimizer = OptimizerConfig(
        name="rmsprop",
        learning_rate=1.3e-3,
        schedule="linear",
        eps=1e-5,
        eps_inside_root=False,
    )
    recipe = Config(algorithm="a2c", seed=SEED, network=network, optimizer=optimizer)
    return recipe.replaced(**changes)


def _pong(interface: str, engine: str = "envpool", **changes: Any) -> Config:
    return a2c_config(
        **{"game": "pong", "num_envs": NUM_ENVS} | changes,
        parallel={"num_devices": 1},
        env={"engine": engine, "random_start_steps": 0, "interface": interface},
    )


def _actions(num_actions: int, num_envs: int = NUM_ENVS) -> np.ndarray:
    """Random actions, i32[T, E]."""
    random = np.random.default_rng(SEED)
    return random.integers(0, num_actions, (NUM_STEPS, num_envs)).astype(np.int32)


def _digests(*rows: Any) -> list[int]:
    """Returns a checksum for each step of arrays [T, E, ...]: frames, rewards, ends of games."""
    sums = []
    for step in zip(*(np.asarray(row) for row in rows), strict=True):
        total = 0
        for row in step:
            total = zlib.crc32(np.ascontiguousarray(row).tobytes(), total)
        sums.append(total)
    return sums


def played(digests: list[int], how: str) -> Answer:
    """Returns the answer of a way to the emulators whose steps have these checksums."""
    if len(set(digests)) < NUM_STEPS // 2:
        return {"mark": "cross", "text": f"{how}: the frames stand still"}
    return {"mark": "ok", "text": f"{how}: {NUM_STEPS} steps of Pong", "played": digests}


def envpool() -> Answer:
    """Imports EnvPool and plays from plain Python."""
    try:
        import envpool
    except ImportError as error:
        return {"mark": "cross", "text": f"cannot be imported: {error}"}
    config = _pong("xla")
    pool = make_pool(config.game, config.env, NUM_ENVS, first_env_seed(SEED))
    try:
        pool.reset()
        steps = [pool.step(action) for action in _actions(pool.action_space.n)]
        rows = [
            (observation[:, 0], info["reward"].astype(np.float32), terminated, truncated)
            for observation, _, terminated, truncated, info in steps
        ]
    finally:
        pool.close()
    return played(
        _digests(*map(np.stack, zip(*rows, strict=True))), f"{envpool.__version__}, from Python"
    )


def _play(config: Config, **options: int) -> tuple[TimeStep, np.ndarray | None]:
    """Plays within one compiled program; the options are those of the engine's `send`.

    Returns rows [T, E, ...] and snapshots u8[E, bytes] of the games after them, if it makes any.
    """
    engine = make_engine(config, config.num_envs)
    send = partial(engine.send, **options)

    def play(state: Any, actions: jax.Array) -> tuple[Any, TimeStep]:
        def step(state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
            return engine.recv(send(state, action))

        return jax.lax.scan(step, state, actions)

    try:
        state, _ = engine.init(SEED)
        state = jax.tree.map(jnp.asarray, state)
        actions = _actions(engine.spec.num_actions, config.num_envs)
        state, rows = jax.device_get(jax.jit(play)(state, actions))
        if engine.check is not None:
            engine.check()
        if engine.pack is not None:
            return rows, engine.pack(state)
        return rows, engine.save() if engine.save is not None else None
    finally:
        engine.close()


def _play_compiled(config: Config) -> list[int]:
    """Plays within one compiled program; returns the checksums of its steps."""
    row, _ = _play(config)
    return _digests(row.frame, row.score, row.terminated, row.truncated)


def custom_call() -> Answer:
    """Plays through EnvPool's custom call."""
    if not has_custom_call():
        text = f"EnvPool has none for {jax.default_backend()}: host callbacks play"
        return {"mark": "ok", "text": text}
    return played(
        _play_compiled(_pong("xla")), f"inside a compiled program, {jax.default_backend()}"
    )


def host_callbacks() -> Answer:
    """Plays through host callbacks."""
    text = f"inside a compiled program, {jax.default_backend()}"
    return played(_play_compiled(_pong("callback")), text)


def atari2600() -> Answer:
    """Builds jaxrl's emulator if need be, and plays; its games start otherwise than EnvPool's."""
    text = f"our own emulator, inside a compiled program, {jax.default_backend()}"
    return {**played(_play_compiled(_pong("auto", "atari2600")), text), "played": []}


def atari2600_stream() -> Answer:
    """Steps jaxrl's emulator's threads on the GPU's stream, and compares with host callbacks."""
    if not has_nvidia_gpu():
        return {"mark": "ok", "text": f"no NVIDIA GPU ({jax.default_backend()}): none is needed"}
    return _compared("callbacks", {"on the stream": ("stream", {})})


def atari2600_gpu() -> Answer:
    """Plays jaxrl's emulator's games on the GPU, and compares rows and states with its threads'."""
    if not plays_on_gpu(_pong("xla", "atari2600").env):
        return {"mark": "ok", "text": f"no NVIDIA GPU ({jax.default_backend()}): threads play"}
    ways = {f"{number} in a warp": ("xla", {"games_per_warp": number}) for number in GAMES_PER_WARP}
    return _compared("threads", ways)


def _compared(reference: str, ways: dict[str, tuple[str, dict[str, int]]]) -> Answer:
    """Compares ways to play on a GPU with host callbacks of the emulator's threads.

    A way is an interface with options of the engine's `send`; messages call callbacks `reference`.
    """
    for game in GPU_GAMES:
        config = _pong("callback", "atari2600", game=game, num_envs=GPU_ENVS)
        config = config.replaced(env=GPU_RULES)
        expected = _play(config)
        for way, (interface, options) in ways.items():
            actual = _play(config.replaced(env={"interface": interface}), **options)
            if difference := first_difference(expected, actual, reference):
                return {"mark": "cross", "text": f"{game}, {way}: {difference}"}
    text = (
        f"{jax.devices()[0].device_kind}: {NUM_STEPS} steps of {', '.join(GPU_GAMES)}, {GPU_ENVS} "
        f"games each, {' and '.join(ways)}, equal the {reference}'"
    )
    return {"mark": "ok", "text": text}


def first_difference(
    expected: tuple[TimeStep, np.ndarray | None],
    actual: tuple[TimeStep, np.ndarray | None],
    reference: str,
) -> str:
    """Returns where rows [T, E, ...] or the games after them differ; "" if they do not."""
    differ = {
        name: np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1))
        for name, a, b in zip(TimeStep._fields, expected[0], actual[0], strict=True)
    }
    step, name = min(
        ((int(steps[0]), name) for name, steps in differ.items() if len(steps)), default=(0, "")
    )
    if name:
        return f"{name} differs from the {reference}' games from step {step} on"
    games = [mask_bus(save) for _, save in (expected, actual) if save is not None]
    if len(games) == 2 and (games[0] == games[1]).all():
        return ""
    return f"the games after the last step differ from the {reference}'"
