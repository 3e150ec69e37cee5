"""EnvPool's Atari inside the compiled program: one pool of C++ threads per local device.

What EnvPool means by its outputs differs from what agents need; all of it is settled here:

- after the end of an episode the next row is the reset, whose action was ignored (`reset`);
- the frame that comes with the end is the true last one, so truncation bootstraps from it;
- a lost life may end the learner's episode, but the score's ends with the game (`game_over`);
- the reset after a lost life plays no-ops, and a game that ends within them is not reported: there
  the lives rise, and the reset row has `game_over` (a life won within them would look the same;
  the time limit goes on counting from the game before);
- actions are checked here, because C++ does not;
- a pool's address is a constant of the compiled call, so each device must call a pool of its own.
"""

import os
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.atari.games import full_actions, minimal_actions
from jaxrl.config.schema import Config
from jaxrl.envs.base import WHOLE, EnvGroup, cores_by_device, env_ids, first_env_seed, on_cores
from jaxrl.envs.envpool.callback import check_host, host_calls
from jaxrl.errors import EngineError
from jaxrl.types import AXIS, FRAME_SKIP, EnvEngine, EnvSpec, TimeStep


class EnvPoolState(NamedTuple):
    """The thread of data that orders the calls; the games themselves live in the pool."""

    token: jax.typing.ArrayLike  # u8[8]
    done: Any  # b[E], the newest row ended an episode, so the next one is a reset
    game_over: Any  # b[E], and the game with it
    lives: Any  # i32[E], after the newest row

    def after(self, token: jax.typing.ArrayLike, timestep: TimeStep, lives: Any) -> "EnvPoolState":
        """Returns the state after the next row."""
        done = timestep.terminated | timestep.truncated
        return EnvPoolState(token, done, timestep.game_over, lives)


def task_id(game: str) -> str:
    """EnvPool's name of a game: space_invaders -> SpaceInvaders-v5."""
    return "".join(word.capitalize() for word in game.split("_")) + "-v5"


def _import_envpool() -> Any:
    """Takes two seconds, so only when a game is really played.

    The import sets matplotlib's backend for the process, and a notebook would draw nothing after
    it, so that is put back.
    """
    before = {name: os.environ.get(name) for name in ("MPLBACKEND", "MPLCONFIGDIR")}
    import envpool

    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return envpool


def presses_fire(config: Config) -> bool:
    """Returns whether EnvPool presses FIRE after every reset of the configuration's game.

    It does so in every game whose action set has FIRE, so never with all 18 actions.
    """
    if not config.env.fire_reset or config.env.full_action_space:
        return False
    return "FIRE" in minimal_actions(config.game)


def make_pool(config: Config, num_envs: int, seed: int, **options: Any) -> Any:
    """A pool of single grey frames that plays as the configuration says."""
    envpool = _import_envpool()
    settings = dict(
        num_envs=num_envs,
        stack_num=1,
        seed=seed,
        img_height=config.env.frame_height,
        img_width=config.env.frame_width,
        frame_skip=FRAME_SKIP,
        noop_max=config.env.noop_max,
        episodic_life=config.env.episodic_life,
        reward_clip=config.env.reward_clip,
        repeat_action_probability=config.env.repeat_action_probability,
        full_action_space=config.env.full_action_space,
        use_fire_reset=presses_fire(config),
        max_episode_steps=config.env.max_episode_steps,
    )
    return envpool.make(task_id(config.game), env_type="gymnasium", **(settings | options))


def time_step(answer: tuple[Any, ...], before: EnvPoolState, episodic_life: bool) -> TimeStep:
    """Returns EnvPool's answer as a `TimeStep`; `before` tells of the row before."""
    observation, reward, terminated, truncated, info = answer
    # A life lost is `terminated` too; the game's own end stands in `info`. Where the game and the
    # time limit end together only `truncated` is set.
    game_over = (info["terminated"] != 0) | truncated
    if not episodic_life:
        game_over = game_over | terminated
    # A game that the reset's FIRE ends is reported by the row after it.
    unseen = before.done & ~before.game_over & (info["lives"] > before.lives)
    game_over = (game_over & ~before.done) | unseen
    return TimeStep(
        frame=observation[:, 0],
        reward=reward,
        score=info["reward"],
        terminated=terminated,
        truncated=truncated,
        game_over=game_over,
        reset=before.done,
    )


def _start(
    pool: Any, seed: int, num_actions: int, max_steps: int, episodic_life: bool
) -> tuple[EnvPoolState, TimeStep]:
    """Resets a pool and moves each environment a random number of uniform random steps on.

    Without it all environments start their games together, and stay together for long
    (Stooke & Abbeel 2018, section 5.2). A pool may be stepped in part, in one call after another.
    """
    observation, info = pool.reset()
    num_envs = len(observation)
    never = np.zeros(num_envs, bool)
    first = (observation, np.zeros(num_envs, np.float32), never, never, info)
    nothing = EnvPoolState(np.zeros(8, np.uint8), never, never, info["lives"])
    rows = jax.tree.map(np.array, time_step(first, nothing, episodic_life))
    lives = np.array(info["lives"])
    # A generator for each environment: how the games are spread over pools changes none of them.
    random = [np.random.default_rng(seed + env) for env in range(num_envs)]
    steps = np.array([generator.integers(0, max_steps + 1) for generator in random])
    actions = np.stack([g.integers(0, num_actions, max_steps, np.int32) for g in random])
    for step in range(max_steps):
        (moving,) = np.nonzero(steps > step)
        if not moving.size:
            break
        part = TimeStep(*(row[moving] for row in rows))
        before = nothing.after(nothing.token, part, lives[moving])
        answer = pool.step(actions[moving, step], moving.astype(np.int32))
        for row, new in zip(rows, time_step(answer, before, episodic_life), strict=True):
            row[moving] = new
        lives[moving] = answer[-1]["lives"]
    return nothing.after(nothing.token, rows, lives), rows


def has_custom_call() -> bool:
    """Whether EnvPool's custom call exists for the devices of this process."""
    platform = jax.default_backend()
    if platform == "gpu":  # which AMD's are called too; the call loads NVIDIA's driver, or aborts
        return "rocm" not in jax.devices()[0].client.platform_version
    return platform == "cpu"


def make_envpool(
    config: Config, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """An engine of `num_envs` games on each of this process's devices.

    Args:
      config: the game and how it is played.
      num_envs: E, games on each device.
      num_local_devices: pools to make; inside the mesh each device calls its own.
      group: which of each device's environments these are.

    Returns:
      An engine whose `init` makes the pools anew.
    """
    game_actions = full_actions if config.env.full_action_space else minimal_actions
    actions = game_actions(config.game)
    ids = env_ids(num_envs, num_local_devices, group)
    spec = EnvSpec(num_envs, len(actions), actions, config.game, config.frame_shape())
    cores = cores_by_device(num_local_devices)
    uses_xla = (
        has_custom_call() if config.env.interface == "auto" else config.env.interface == "xla"
    )
    if not uses_xla:
        check_host()
    failures: list[Exception] = []
    pools: list[Any] = []  # held here: the compiled program does not keep them alive
    sends: list[Any] = []
    recvs: list[Any] = []

    def init(seed: int) -> tuple[EnvPoolState, TimeStep]:
        close()
        states, starts = [], []
        for device in range(num_local_devices):
            pool_seed = first_env_seed(seed) + int(ids[device, 0])
            # Pools that share the machine keep off each other's cores.
            with on_cores(cores[device]):
                pool = make_pool(
                    config,
                    num_envs,
                    pool_seed,
                    num_threads=min(config.env.num_threads or len(cores[device]), num_envs),
                    render_mode="rgb_array",
                )
            pools.append(pool)
            calls = (
                pool.xla()[:3]
                if uses_xla
                else host_calls(pool, num_envs, failures, config.frame_shape())
            )
            token, recv_pool, send_pool = calls
            sends.append(send_pool)
            recvs.append(recv_pool)
            state, rows = _start(
                pool,
                pool_seed,
                len(actions),
                config.env.random_start_steps,
                config.env.episodic_life,
            )
            states.append(state._replace(token=np.array(token)))
            starts.append(rows)

        def join(parts: list[Any]) -> Any:
            return jax.tree.map(lambda *rows: np.concatenate(rows), *parts)

        return join(states), join(starts)

    def on_own_pool(calls: list[Any], *operands: Any) -> Any:
        if not calls:
            raise RuntimeError("init the engine before it is stepped")
        if len(calls) == 1:
            return calls[0](*operands)
        return jax.lax.switch(jax.lax.axis_index(AXIS) % num_local_devices, calls, *operands)

    def send(state: EnvPoolState, action: jax.Array) -> EnvPoolState:
        # C++ checks neither: a wrong size is a segmentation fault, a float is read as an integer.
        chex.assert_shape(action, (num_envs,))
        if action.dtype != jnp.int32:
            raise TypeError(f"actions must be int32, not {action.dtype}")
        # Nor does it check the range; an action out of it would read beyond a C++ array.
        action = jnp.clip(action, 0, len(actions) - 1)
        return state._replace(token=on_own_pool(sends, state.token, action))

    def recv(state: EnvPoolState) -> tuple[EnvPoolState, TimeStep]:
        token, answer = on_own_pool(recvs, state.token)
        timestep = time_step(answer, state, config.env.episodic_life)
        return state.after(token, timestep, answer[-1]["lives"]), timestep

    def close() -> None:
        for pool in pools:
            pool.close()
        for made in (pools, sends, recvs, failures):
            made.clear()

    def check() -> None:
        if failures:
            error = failures[0]
            reason = f"{type(error).__name__}: {error}"
            raise EngineError(f"EnvPool failed while it played {config.game}: {reason}") from error

    def render() -> np.ndarray:
        return np.asarray(pools[0].render([0])[0])

    return EnvEngine(
        spec,
        init,
        send,
        recv,
        close,
        restorable=False,
        env_ids=ids,
        render=render,
        check=check,
    )
