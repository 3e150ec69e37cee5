"""Catch in pure JAX: move a paddle under a falling ball; drawn as frames of any size.

The ball starts in a random column of the top row, falls one row a step, and the game ends when it
reaches the paddle's row: +1 if the paddle is under it, else -1 (bsuite's Catch). As with EnvPool a
reset is a separate row, so Catch tests the whole path.

`catch_memory` shows the ball in the top row alone, and holds the paddle until no stack of frames
shows the ball any more. Whoever forgets it catches one in seven: a mean score of -5/7.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.atari.games import CATCH, CATCH_MEMORY
from jaxrl.config.schema import EnvConfig
from jaxrl.envs.base import WHOLE, EnvGroup, env_ids, first_env_seeds
from jaxrl.types import STACK_SIZE, EnvEngine, EnvSpec, TimeStep

MAX_SCORE = 1.0


@dataclass(frozen=True)
class CatchRules:
    """The board of a game, and what hides the ball from the player."""

    rows: int = 7
    columns: int = 7
    shown_rows: int = 7  # rows from the top in which the ball is drawn
    locked_steps: int = 0  # first steps of a game, which ignore the action


RULES = {
    CATCH: CatchRules(),
    # The stack shows the ball to the first four decisions. Four steps are left after them, and
    # three reach every column.
    CATCH_MEMORY: CatchRules(rows=9, shown_rows=1, locked_steps=STACK_SIZE),
}


class CatchState(NamedTuple):
    """The board of each game, before or after `send`."""

    key: jax.Array  # key[E], for the next games
    ball_row: jax.Array  # i32[E]
    ball_column: jax.Array  # i32[E]
    paddle: jax.Array  # i32[E], column
    done: jax.Array  # b[E], the newest row ended a game, so the next one is a reset
    reset: jax.Array  # b[E], the newest row was a reset


def _new_game(rules: CatchRules, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draws new games: key[E] -> (key[E] of the next game, ball column i32[E])."""
    keys = jax.vmap(jax.random.split)(key)
    column = jax.vmap(lambda k: jax.random.randint(k, (), 0, rules.columns))(keys[:, 1])
    return keys[:, 0], column


def _move(rules: CatchRules, state: CatchState, action: jax.Array) -> CatchState:
    """Moves paddle and ball by one step; a game that has ended is reset instead."""
    next_key, new_column = _new_game(rules, state.key)
    row = jnp.where(state.done, 0, state.ball_row + 1)
    moved = jnp.clip(state.paddle + action - 1, 0, rules.columns - 1)
    paddle = jnp.where(state.ball_row < rules.locked_steps, state.paddle, moved)
    return CatchState(
        key=jnp.where(state.done, next_key, state.key),
        ball_row=row,
        ball_column=jnp.where(state.done, new_column, state.ball_column),
        paddle=jnp.where(state.done, rules.columns // 2, paddle),
        done=row == rules.rows - 1,
        reset=state.done,
    )


def _draw(rules: CatchRules, state: CatchState, frame_shape: tuple[int, int]) -> jax.Array:
    """Draws the frames u8[E, 84, 84]: ball 255, paddle 128."""
    height, width = frame_shape
    row = jnp.arange(height) * rules.rows // height
    column = jnp.arange(width) * rules.columns // width
    ball_row = (row == state.ball_row[:, None]) & (row < rules.shown_rows)
    ball = ball_row[:, :, None] & (column == state.ball_column[:, None])[:, None, :]
    paddle = (row == rules.rows - 1)[None, :, None] & (column == state.paddle[:, None])[:, None, :]
    return jnp.where(ball, 255, jnp.where(paddle, 128, 0)).astype(jnp.uint8)


def _time_step(rules: CatchRules, state: CatchState, frame_shape: tuple[int, int]) -> TimeStep:
    """Returns the newest row."""
    caught = jnp.where(state.paddle == state.ball_column, MAX_SCORE, -MAX_SCORE)
    reward = jnp.where(state.done, caught, 0.0).astype(jnp.float32)
    return TimeStep(
        frame=_draw(rules, state, frame_shape),
        reward=reward,
        score=reward,
        terminated=state.done,
        truncated=jnp.zeros_like(state.done),
        game_over=state.done,
        reset=state.reset,
    )


@partial(jax.jit, static_argnames=("rules", "max_steps", "frame_shape"))
def _start(
    rules: CatchRules,
    numbers: jax.Array,
    seeds: jax.Array,
    max_steps: int,
    frame_shape: tuple[int, int],
) -> tuple[CatchState, TimeStep]:
    """Starts a game in each environment and plays up to `max_steps` random steps in it.

    Each environment plays a separate random number of steps, so their games end at different times.
    `numbers` i64[E] are those among all environments of a run, `seeds` u32[E] those of its
    environment 0.
    """
    roots = jax.vmap(jax.random.fold_in)(jax.vmap(jax.random.key)(seeds), numbers)
    split = jax.vmap(lambda root: jax.random.split(root, 3))(roots)
    games_key, steps_key, moves_key = split[:, 0], split[:, 1], split[:, 2]
    key, column = _new_game(rules, games_key)
    zeros = jnp.zeros(len(numbers), jnp.int32)
    no = jnp.zeros(len(numbers), bool)
    state = CatchState(key, zeros, column, zeros + rules.columns // 2, no, no)
    draw = jax.vmap(lambda k, high: jax.random.randint(k, (), 0, high), (0, None))
    steps = draw(steps_key, max_steps + 1)

    def move(step: jax.Array, state: CatchState) -> CatchState:
        move_key = jax.vmap(jax.random.fold_in, (0, None))(moves_key, step)
        moved = _move(rules, state, draw(move_key, 3))
        return jax.tree.map(lambda new, old: jnp.where(steps > step, new, old), moved, state)

    state = jax.lax.fori_loop(0, max_steps, move, state)
    return state, _time_step(rules, state, frame_shape)


def init(
    rules: CatchRules, ids: np.ndarray, max_steps: int, frame_shape: tuple[int, int], *seeds: int
) -> tuple[CatchState, TimeStep]:
    """Starts the games of all local devices; `ids` are their environments: i64[devices, E]."""
    # Not the seeds themselves: `fold_in` and `split` of one key give the same keys, and those
    # of the seeds are where parameters and actions come from.
    first = np.tile(first_env_seeds(seeds, ids.shape[1]), len(ids))
    return _start(rules, ids.ravel(), first.astype(np.uint32), max_steps, frame_shape)


def send(rules: CatchRules, num_envs: int, state: CatchState, action: jax.Array) -> CatchState:
    """Takes a step; `action` is i32[E]."""
    chex.assert_shape(action, (num_envs,))
    return _move(rules, state, action)


def recv(
    rules: CatchRules, frame_shape: tuple[int, int], state: CatchState
) -> tuple[CatchState, TimeStep]:
    """Returns the row of the newest step."""
    return state, _time_step(rules, state, frame_shape)


def make_catch(
    game: str, env: EnvConfig, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns an engine of `num_envs` games of Catch on each of this process's devices."""
    rules, frame_shape = RULES[game], env.frame_shape
    ids = env_ids(num_envs, num_local_devices, group)
    max_steps = min(env.random_start_steps, rules.rows)
    return EnvEngine(
        EnvSpec(num_envs, 3, ("LEFT", "NOOP", "RIGHT"), game, frame_shape),
        init=partial(init, rules, ids, max_steps, frame_shape),
        send=partial(send, rules, num_envs),
        recv=partial(recv, rules, frame_shape),
        close=lambda: None,
        state_format=f"{game} 1",
        env_ids=ids,
        render=None,
        check=lambda: None,
    )
