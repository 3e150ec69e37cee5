"""An engine with one game: press the side of the screen that is lit; ten times make a game."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.schema import EnvConfig
from jaxrl.envs.base import WHOLE, EnvGroup, env_ids, first_env_seed
from jaxrl.types import EnvEngine, EnvSpec, TimeStep

GAMES = ("lights",)
LENGTH = 10  # agent steps of a game


class LightsState(NamedTuple):
    """The games before or after `send`."""

    key: jax.Array  # key[E], of the next sides
    side: jax.Array  # i32[E], 0 left or 1 right
    step: jax.Array  # i32[E], of the game
    reward: jax.Array  # f32[E], of the newest row
    reset: jax.Array  # b[E], the newest row was a reset


def _timestep(state: LightsState, frame_shape: tuple[int, int]) -> TimeStep:
    """Returns the newest row."""
    height, width = frame_shape
    right = jnp.arange(width) >= width // 2
    lit = jnp.where(right == (state.side == 1)[:, None], 255, 0).astype(jnp.uint8)
    frame = jnp.broadcast_to(lit[:, None, :], (len(state.side), height, width))
    over = state.step == LENGTH
    no = jnp.zeros_like(over)
    return TimeStep(frame, state.reward, state.reward, over, no, over, state.reset)


@partial(jax.jit, static_argnums=(2, 3))  # compiled: no two results share a buffer
def _start(
    ids: jax.Array, root: jax.Array, random_steps: int, frame_shape: tuple[int, int]
) -> tuple[LightsState, TimeStep]:
    """Starts games, up to `random_steps` into them; `ids` is i32[devices * E]."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(root, ids)
    steps = ids % min(LENGTH, random_steps + 1)  # so that games end at different times
    zeros = jnp.zeros(len(ids), jnp.int32)
    state = LightsState(keys, zeros, steps, jnp.zeros(len(ids)), jnp.zeros(len(ids), bool))
    return state, _timestep(state, frame_shape)


def init(
    ids: np.ndarray, random_steps: int, frame_shape: tuple[int, int], seed: int
) -> tuple[LightsState, TimeStep]:
    """Starts the games of all local devices; `ids` is i64[devices, E]."""
    root = jax.random.key(np.uint32(first_env_seed(seed)))
    return _start(jnp.asarray(ids.ravel(), jnp.int32), root, random_steps, frame_shape)


def send(state: LightsState, action: jax.Array) -> LightsState:
    """Takes a step; `action` is i32[E]. A game that has ended is reset instead."""
    ended = state.step == LENGTH
    keys = jax.vmap(jax.random.split)(state.key)
    side = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2))(keys[:, 1])
    reward = jnp.where(ended, 0.0, jnp.where(action == state.side, 1.0, -1.0))
    return LightsState(keys[:, 0], side, jnp.where(ended, 0, state.step + 1), reward, ended)


def recv(frame_shape: tuple[int, int], state: LightsState) -> tuple[LightsState, TimeStep]:
    """Returns the row of the newest step."""
    return state, _timestep(state, frame_shape)


def make(
    game: str, env: EnvConfig, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns an engine of `num_envs` games on each of this process's devices."""
    ids, frame_shape = env_ids(num_envs, num_local_devices, group), env.frame_shape
    return EnvEngine(
        EnvSpec(num_envs, 2, ("LEFT", "RIGHT"), game, frame_shape),
        init=partial(init, ids, env.random_start_steps, frame_shape),
        send=send,
        recv=partial(recv, frame_shape),
        close=lambda: None,
        state_format="lights 1",
        env_ids=ids,
        render=None,
        check=lambda: None,
    )
