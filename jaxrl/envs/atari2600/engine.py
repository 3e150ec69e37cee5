"""Our own Atari 2600 inside the compiled program: games on C++ threads.

Its rows mean what the contract of engines says, so there is nothing to settle here: games are plain
data in C++, and what a row holds is decided there (native/environment.h), as EnvPool decides it.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.atari.games import FULL_ACTIONS, full_actions, minimal_actions
from jaxrl.config.schema import Config
from jaxrl.envs.atari2600 import library
from jaxrl.envs.atari2600.roms import rom
from jaxrl.envs.base import (
    WHOLE,
    EnvGroup,
    checked_actions,
    cores_by_device,
    env_ids,
    first_env_seed,
    on_cores,
    on_own_device,
    presses_fire,
)
from jaxrl.envs.callback import Calls, check_host, ordered_calls
from jaxrl.errors import EngineError, UserError
from jaxrl.types import EnvEngine, EnvSpec, TimeStep

SCREEN_SHAPE = (210, 160)
MOST_RANDOM_STEPS = 2**31  # which nobody waits for


class Atari2600State(NamedTuple):
    """The token that orders the calls; C++ holds the games."""

    token: jax.typing.ArrayLike  # u8[8]


@dataclass(frozen=True)
class Atari2600:
    """The games of this process, an engine of C++ per local device, and their calls."""

    config: Config
    spec: EnvSpec
    env_ids: np.ndarray  # i64[local devices, E], numbers of the environments among all
    cores: list[list[int]]  # of each local device
    uses_xla: bool  # custom calls, not host callbacks
    # `init` fills these lists and `close` empties them.
    numbers: list[int] = field(default_factory=list)  # by which C++ knows its engines
    calls: list[Calls] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)  # of host callbacks


def has_custom_call() -> bool:
    """Returns whether the emulator's custom call exists for the devices of this process."""
    return jax.default_backend() == "cpu"


def check_config(config: Config) -> None:
    """Raises `UserError` if the emulator cannot play by this configuration, or cannot be built."""
    library.check_plays(config.game)
    rom(config.game)
    height, width = config.frame_shape()
    if height > SCREEN_SHAPE[0] or width > SCREEN_SHAPE[1]:
        raise UserError(
            f"env.frame_height, env.frame_width = {height}, {width}: the screen has 210 x 160 "
            "pixels; take smaller frames, or --env.engine envpool"
        )
    if config.env.interface == "xla" and not has_custom_call():
        raise UserError(
            "env.interface = 'xla': the emulator's custom call is for CPUs; take auto or callback"
        )


def make_atari2600(
    config: Config, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns an engine of `num_envs` games on each of this process's devices.

    Args:
      config: the game and its rules.
      num_envs: E, games on each device.
      num_local_devices: engines of C++ to make; inside the mesh each device calls its own.
      group: the part of each device's environments that the engine holds.

    Raises:
      UserError: the emulator does not play the game, or cannot be built.
    """
    check_config(config)
    actions = (full_actions if config.env.full_action_space else minimal_actions)(config.game)
    interface = config.env.interface
    games = Atari2600(
        config=config,
        spec=EnvSpec(num_envs, len(actions), actions, config.game, config.frame_shape()),
        env_ids=env_ids(num_envs, num_local_devices, group),
        cores=cores_by_device(num_local_devices),
        uses_xla=has_custom_call() if interface == "auto" else interface == "xla",
    )
    if not games.uses_xla:
        check_host()
    return EnvEngine(
        games.spec,
        init=partial(init, games),
        send=partial(send, games),
        recv=partial(recv, games),
        close=partial(close, games),
        restorable=False,
        env_ids=games.env_ids,
        render=partial(render, games),
        check=partial(check, games),
    )


def init(games: Atari2600, seed: int) -> tuple[Atari2600State, TimeStep]:
    """Starts the games and returns the state and the first rows, those of all devices in one."""
    close(games)
    first_rows = []
    for device in range(len(games.env_ids)):
        # The engine's threads keep off the cores of the others.
        with on_cores(games.cores[device]):
            number = _open(games, device, seed)
        games.numbers.append(number)
        games.calls.append(_custom_calls(games, number) if games.uses_xla else _host(games, number))
        _while_open(
            library.load().jaxrl_begin(
                number, min(games.config.env.random_start_steps, MOST_RANDOM_STEPS)
            )
        )
        first_rows.append(_receive(number, _zeros(games.spec)))
    tokens = np.zeros(8 * len(first_rows), np.uint8)
    rows = jax.tree.map(lambda *rows: np.concatenate(rows), *first_rows)
    # What was played before does not count: these rows begin the episodes that the learner sees.
    return Atari2600State(tokens), rows


def _open(games: Atari2600, device: int, seed: int) -> int:
    """Makes the engine of one local device and returns its number."""
    config, spec, cores = games.config, games.spec, games.cores[device]
    height, width = spec.frame_shape
    run_seed = first_env_seed(seed)
    seeds = (run_seed + games.env_ids[device]).astype(np.uint64)
    meanings = [FULL_ACTIONS.index(meaning) for meaning in spec.action_meanings]
    rules = library.rules(config, tuple(meanings), presses_fire(config))
    image = rom(config.game)
    threads = min(config.env.num_threads or len(cores), spec.num_envs)
    number = library.load().jaxrl_open(
        config.game.encode(),
        image,
        len(image),
        rules,
        height,
        width,
        run_seed,
        np.ascontiguousarray(seeds),
        spec.num_envs,
        threads,
    )
    if number < 0:
        raise EngineError(f"no memory or threads for {spec.num_envs} games of {config.game}")
    if not number:
        raise UserError(
            f"env.engine = atari2600: does not know the cartridge of {config.game}; take "
            "--env.engine envpool"
        )
    return number


def _answer_shapes(spec: EnvSpec) -> Any:
    """Returns the shapes of a row of every environment, as a `TimeStep`."""
    number: Any = jax.ShapeDtypeStruct((spec.num_envs,), np.float32)
    flag: Any = jax.ShapeDtypeStruct((spec.num_envs,), np.bool_)
    frames: Any = jax.ShapeDtypeStruct((spec.num_envs, *spec.frame_shape), np.uint8)
    return TimeStep(frames, number, number, flag, flag, flag, flag)


def _zeros(spec: EnvSpec) -> TimeStep:
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), _answer_shapes(spec))


def _custom_calls(games: Atari2600, number: int) -> Calls:
    """Returns XLA's custom calls of an engine of C++."""
    token = np.zeros(8, np.uint8)
    token_shape = jax.ShapeDtypeStruct(token.shape, token.dtype)
    shapes = _answer_shapes(games.spec)
    engine = np.int64(number)
    send = jax.ffi.ffi_call(library.SEND, token_shape, has_side_effect=True)
    recv = jax.ffi.ffi_call(library.RECV, (token_shape, *shapes), has_side_effect=True)

    def receive(token: jax.Array) -> tuple[jax.Array, TimeStep]:
        token, *rows = recv(token, engine=engine)
        return token, TimeStep(*rows)

    return Calls(token, recv=receive, send=lambda token, action: send(token, action, engine=engine))


def _host(games: Atari2600, number: int) -> Calls:
    """Returns host callbacks of an engine of C++."""

    def send(action: np.ndarray) -> None:
        _while_open(library.load().jaxrl_send_now(number, np.ascontiguousarray(action, np.int32)))

    return ordered_calls(
        send, partial(_receive, number), _answer_shapes(games.spec), games.failures
    )


def _receive(number: int, zeros: TimeStep) -> TimeStep:
    """Waits for the rows of an engine of C++."""
    rows = jax.tree.map(np.empty_like, zeros)
    _while_open(library.load().jaxrl_receive(number, *rows))
    return rows


def _while_open(was_open: int) -> None:
    """Raises `EngineError` if a function of C++ has not found its engine."""
    if not was_open:
        raise EngineError("the engine of this program is closed")


def send(games: Atari2600, state: Atari2600State, action: jax.Array) -> Atari2600State:
    """Starts a step of this device's environments and returns at once."""
    action = checked_actions(action, games.spec)
    return Atari2600State(
        on_own_device([calls.send for calls in games.calls], jnp.asarray(state.token), action)
    )


def recv(games: Atari2600, state: Atari2600State) -> tuple[Atari2600State, TimeStep]:
    """Waits for the step of this device's environments."""
    token, rows = on_own_device([calls.recv for calls in games.calls], jnp.asarray(state.token))
    return Atari2600State(token), rows


def close(games: Atari2600) -> None:
    """Closes the engines of C++ and forgets the failures of their calls."""
    for number in games.numbers:
        library.load().jaxrl_close(number)
    for made in (games.numbers, games.calls, games.failures):
        made.clear()


def check(games: Atari2600) -> None:
    """Raises `EngineError` if a host callback has failed since `init`."""
    if games.failures:
        error: Any = games.failures[0]
        reason = f"{type(error).__name__}: {error}"
        raise EngineError(
            f"the emulator failed while it played {games.config.game}: {reason}"
        ) from error


def render(games: Atari2600) -> np.ndarray:
    """Draws environment 0: u8[210, 160, 3]; only with nothing in flight."""
    pixels = np.zeros((*SCREEN_SHAPE, 3), np.uint8)
    _while_open(library.load().jaxrl_render(games.numbers[0], pixels))
    return pixels
