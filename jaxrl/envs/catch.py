"""Catch in pure JAX: move a paddle under a falling ball; drawn as frames of any size.

The ball starts in a random column of the top row, falls one row a step, and the game ends when it
reaches the paddle's row: +1 if the paddle is under it, else -1 (bsuite's Catch). It answers as
EnvPool does, with the reset in a row of its own, so that it tests the whole path.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.atari.games import CATCH
from jaxrl.config.schema import Config
from jaxrl.envs.base import WHOLE, EnvGroup, env_ids, first_env_seed
from jaxrl.types import EnvEngine, EnvSpec, TimeStep

ROWS, COLUMNS = 7, 7
MAX_SCORE = 1.0


class CatchState(NamedTuple):
    """Where everything is, before or after `send`."""

    key: jax.Array  # key[E], of the games to come
    ball_row: jax.Array  # i32[E]
    ball_column: jax.Array  # i32[E]
    paddle: jax.Array  # i32[E], column
    done: jax.Array  # b[E], the newest row ended a game, so the next one is a reset
    reset: jax.Array  # b[E], the newest row was a reset


def _new_game(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """key[E] -> (key[E] of the next game, ball column i32[E])."""
    keys = jax.vmap(jax.random.split)(key)
    column = jax.vmap(lambda k: jax.random.randint(k, (), 0, COLUMNS))(keys[:, 1])
    return keys[:, 0], column


def _move(state: CatchState, action: jax.Array) -> CatchState:
    next_key, new_column = _new_game(state.key)
    row = jnp.where(state.done, 0, state.ball_row + 1)
    paddle = jnp.clip(state.paddle + action - 1, 0, COLUMNS - 1)
    return CatchState(
        key=jnp.where(state.done, next_key, state.key),
        ball_row=row,
        ball_column=jnp.where(state.done, new_column, state.ball_column),
        paddle=jnp.where(state.done, COLUMNS // 2, paddle),
        done=row == ROWS - 1,
        reset=state.done,
    )


def _draw(state: CatchState, frame_shape: tuple[int, int]) -> jax.Array:
    """u8[E, 84, 84]: ball 255, paddle 128."""
    height, width = frame_shape
    row = jnp.arange(height) * ROWS // height
    column = jnp.arange(width) * COLUMNS // width
    ball = (row == state.ball_row[:, None])[:, :, None] & (column == state.ball_column[:, None])[
        :, None, :
    ]
    paddle = (row == ROWS - 1)[None, :, None] & (column == state.paddle[:, None])[:, None, :]
    return jnp.where(ball, 255, jnp.where(paddle, 128, 0)).astype(jnp.uint8)


def _answer(state: CatchState, frame_shape: tuple[int, int]) -> TimeStep:
    caught = jnp.where(state.paddle == state.ball_column, MAX_SCORE, -MAX_SCORE)
    reward = jnp.where(state.done, caught, 0.0).astype(jnp.float32)
    return TimeStep(
        frame=_draw(state, frame_shape),
        reward=reward,
        score=reward,
        terminated=state.done,
        truncated=jnp.zeros_like(state.done),
        game_over=state.done,
        reset=state.reset,
    )


def make_catch(
    config: Config, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """An engine of `num_envs` games of Catch on each of this process's devices."""
    ids = env_ids(num_envs, num_local_devices, group)
    shape = config.frame_shape()
    spec = EnvSpec(num_envs, 3, ("LEFT", "NOOP", "RIGHT"), CATCH, shape)

    @jax.jit
    def start(numbers: jax.Array, seed: jax.Array) -> tuple[CatchState, TimeStep]:
        """Each environment plays a random number of random steps, so that games end apart."""
        roots = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers)
        split = jax.vmap(lambda root: jax.random.split(root, 3))(roots)
        games_key, steps_key, moves_key = split[:, 0], split[:, 1], split[:, 2]
        key, column = _new_game(games_key)
        zeros = jnp.zeros(len(numbers), jnp.int32)
        no = jnp.zeros(len(numbers), bool)
        state = CatchState(key, zeros, column, zeros + COLUMNS // 2, no, no)
        max_steps = min(config.env.random_start_steps, ROWS)
        draw = jax.vmap(lambda k, high: jax.random.randint(k, (), 0, high), (0, None))
        steps = draw(steps_key, max_steps + 1)

        def move(step: jax.Array, state: CatchState) -> CatchState:
            move_key = jax.vmap(jax.random.fold_in, (0, None))(moves_key, step)
            moved = _move(state, draw(move_key, 3))
            return jax.tree.map(lambda new, old: jnp.where(steps > step, new, old), moved, state)

        state = jax.lax.fori_loop(0, max_steps, move, state)
        return state, _answer(state, shape)

    def init(seed: int) -> tuple[CatchState, TimeStep]:
        # Not the seed itself: `fold_in` and `split` of one key give the same keys, and the seed's
        # own key is where parameters and actions come from.
        return start(ids.ravel(), np.uint32(first_env_seed(seed)))

    def send(state: CatchState, action: jax.Array) -> CatchState:
        chex.assert_shape(action, (num_envs,))
        return _move(state, action)

    def recv(state: CatchState) -> tuple[CatchState, TimeStep]:
        return state, _answer(state, shape)

    return EnvEngine(
        spec,
        init,
        send,
        recv,
        close=lambda: None,
        restorable=True,
        env_ids=ids,
        render=None,
        check=lambda: None,
    )
