"""EnvPool's Atari inside the compiled program: one pool of C++ threads per local device.

EnvPool's outputs mean something else than agents need; this module settles the differences:

- after the end of an episode the next row is the reset, which ignored its action (`reset`);
- the frame that comes with the end is the true last one, so truncation bootstraps from it;
- a lost life may end the learner's episode, but the score is counted to the end of the game
  (`game_over`);
- the reset after a lost life plays no-ops, and EnvPool does not report a game that ends within
  them: there the lives rise, and the reset row has `game_over` (a life won within them would look
  the same; the time limit continues from the game before);
- C++ does not check actions, so they are checked here;
- a pool's address is a constant of the compiled call, so each device must call its pool.
"""

import os
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.config.schema import EnvConfig, Interface
from jaxrl.envs.base import WHOLE, EnvGroup, has_nvidia_gpu, on_cores, presses_fire
from jaxrl.envs.callback import Calls
from jaxrl.envs.envpool.callback import host_calls
from jaxrl.envs.pools import Pools, make_pools, pools_engine, receive_rows, send_action
from jaxrl.runtime import cpus
from jaxrl.types import EnvEngine, TimeStep


class EnvPoolState(NamedTuple):
    """The token that orders the calls, and flags of the newest row; the pool holds the games."""

    token: jax.typing.ArrayLike  # u8[8]
    done: Any  # b[E], the newest row ended an episode, so the next one is a reset
    game_over: Any  # b[E], the newest row ended a game
    lives: Any  # i32[E], after the newest row

    def after(self, token: jax.typing.ArrayLike, timestep: TimeStep, lives: Any) -> "EnvPoolState":
        """Returns the state after the next row."""
        done = timestep.terminated | timestep.truncated
        return EnvPoolState(token, done, timestep.game_over, lives)


def task_id(game: str) -> str:
    """Returns EnvPool's name of a game: space_invaders -> SpaceInvaders-v5."""
    return "".join(word.capitalize() for word in game.split("_")) + "-v5"


def _import_envpool() -> Any:
    """Imports EnvPool, which takes two seconds, so only when a game is played.

    The import sets matplotlib's backend for the process, and a notebook would draw nothing after
    it, so the backend is restored.
    """
    before = {name: os.environ.get(name) for name in ("MPLBACKEND", "MPLCONFIGDIR")}
    import envpool

    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return envpool


def make_pool(
    game: str, env: EnvConfig, num_envs: int, seed: int | list[int], **options: Any
) -> Any:
    """Makes a pool of single frames; `seed` is of environment 0, or one for each."""
    envpool = _import_envpool()
    settings = dict(
        num_envs=num_envs,
        num_threads=min(num_envs, cpus.count()),
        stack_num=1,
        seed=seed,
        img_height=env.frame_height,
        img_width=env.frame_width,
        frame_skip=env.frame_skip,
        gray_scale=env.grayscale,
        mode=env.mode,
        difficulty=env.difficulty,
        noop_max=env.noop_max,
        episodic_life=env.episodic_life,
        reward_clip=env.reward_clip,
        repeat_action_probability=env.repeat_action_probability,
        full_action_space=env.full_action_space,
        use_fire_reset=presses_fire(game, env),
        max_episode_steps=env.time_limit,
    )
    return envpool.make(task_id(game), env_type="gymnasium", **(settings | options))


def time_step(answer: tuple[Any, ...], before: EnvPoolState, episodic_life: bool) -> TimeStep:
    """Converts EnvPool's answer to a `TimeStep`; `before` is the state after the previous row."""
    observation, reward, terminated, truncated, info = answer
    # A lost life is `terminated` too; `info` has the end of the game. If the game ends at the time
    # limit, EnvPool sets only `truncated`.
    game_over = (info["terminated"] != 0) | truncated
    if not episodic_life:
        game_over = game_over | terminated
    # EnvPool reports a game that the reset's FIRE ends in the row after the reset.
    unseen = before.done & ~before.game_over & (info["lives"] > before.lives)
    game_over = (game_over & ~before.done) | unseen
    return TimeStep(
        frame=observation.reshape(len(observation), -1, observation.shape[-1]),
        reward=reward,
        score=info["reward"],
        terminated=terminated,
        truncated=truncated,
        game_over=game_over,
        reset=before.done,
    )


def _random_start(
    pool: Any, seeds: list[int], num_actions: int, max_steps: int, episodic_life: bool
) -> tuple[EnvPoolState, TimeStep]:
    """Resets a pool and plays a random number of uniform random steps in each environment.

    Otherwise all environments start their games together and stay in step for long (Stooke & Abbeel
    2018, section 5.2). One call may step a part of a pool.
    """
    observation, info = pool.reset()
    num_envs = len(observation)
    never = np.zeros(num_envs, bool)
    first = (observation, np.zeros(num_envs, np.float32), never, never, info)
    nothing = EnvPoolState(np.zeros(8, np.uint8), never, never, info["lives"])
    rows = jax.tree.map(np.array, time_step(first, nothing, episodic_life))
    lives = np.array(info["lives"])
    # One generator per environment: the division of the games into pools changes no game.
    random = [np.random.default_rng(seed) for seed in seeds]
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
    """Returns whether EnvPool's custom call exists for the devices of this process."""
    # The call of GPUs loads NVIDIA's driver, or aborts.
    return jax.default_backend() == "cpu" or has_nvidia_gpu()


def chosen_interface(env: EnvConfig) -> Interface:
    """Returns the interface by which EnvPool plays here, in place of auto."""
    if env.interface != "auto":
        return env.interface
    return "xla" if has_custom_call() else "callback"


def make_envpool(
    game: str, env: EnvConfig, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns an engine of `num_envs` games on each of this process's devices.

    Args:
      game: its name.
      env: its rules, with an interface other than auto.
      num_envs: E, games on each device.
      num_local_devices: pools to make, one for each device.
      group: the part of each device's environments that the engine holds.
    """
    uses_xla = env.interface == "xla"
    pools = make_pools("EnvPool", game, env, num_envs, num_local_devices, group, uses_xla)
    return pools_engine(pools, start_pool, send, recv, render)


def start_pool(envs: Pools, device: int, seeds: np.ndarray) -> tuple[EnvPoolState, TimeStep]:
    """Makes the pool of one local device, its calls and its first rows."""
    env, spec = envs.env, envs.spec
    env_seeds = (seeds + envs.env_ids[device]).tolist()
    # Pools that share the machine keep off each other's cores.
    with on_cores(envs.cores[device]):
        pool = make_pool(
            spec.game,
            env,
            spec.num_envs,
            env_seeds,
            num_threads=envs.num_threads(),
            render_mode="rgb_array",
        )
    envs.pools.append(pool)
    if envs.uses_xla:
        calls = Calls(*pool.xla()[:3])
    else:
        calls = host_calls(pool, spec.num_envs, envs.failures, spec.frame_shape)
    envs.calls.append(calls)
    state, rows = _random_start(
        pool, env_seeds, spec.num_actions, env.random_start_steps, env.episodic_life
    )
    return state._replace(token=np.array(calls.token)), rows


def send(envs: Pools, state: EnvPoolState, action: jax.Array) -> EnvPoolState:
    """Starts a step of this device's environments and returns at once."""
    return state._replace(token=send_action(envs, state.token, action))


def recv(envs: Pools, state: EnvPoolState) -> tuple[EnvPoolState, TimeStep]:
    """Waits for the step of this device's environments."""
    token, answer = receive_rows(envs, state.token)
    timestep = time_step(answer, state, envs.env.episodic_life)
    return state.after(token, timestep, answer[-1]["lives"]), timestep


def render(envs: Pools) -> np.ndarray:
    """Draws environment 0: u8[210, 160, 3]; only with nothing in flight."""
    return np.asarray(envs.pools[0].render([0])[0])
