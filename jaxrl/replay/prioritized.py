"""Prioritized replay: transitions are drawn in proportion to their last error (Schaul 2016).

P(i) = pᵢ^α / Σⱼ pⱼ^α,  wᵢ = (N · P(i))^-β / max over the batch,  pᵢ the last error of i

Drawing has two levels: among the sums of blocks of about a hundred steps, then within a block. The
sums are recomputed for every batch: there is no tree to maintain, and no rounding error adds up.
Each device draws its share of a batch among its steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.ops import batches
from jaxrl.replay import buffer
from jaxrl.replay.buffer import Place, Replay
from jaxrl.runtime.collectives import max_over_devices

BLOCK = 128  # steps, at most; docs/results/priorities.md has the cost
SMALLEST = 1e-6  # added to an error: every transition can be drawn again
LARGEST = 100.0  # upper limit of errors: one that exploded does not dominate for ever


class Priorities(NamedTuple):
    """The priorities of the steps of a replay, by environment and row."""

    power: jax.Array  # f32[E, blocks, rows], p^α; 0 for steps that must not be drawn
    largest: jax.Array  # f32[1], p^α, the largest so far; a new transition's


def new(num_envs: int, rows: int) -> Priorities:
    """Returns the priorities of an empty replay of `rows` steps of each environment."""
    blocks = -(-rows // BLOCK)
    power = jnp.zeros((num_envs, blocks, -(-rows // blocks)))  # the last rows may be no step
    return Priorities(power, jnp.ones(1))


def _set(power: jax.Array, rows: jax.Array, value: jax.Array) -> jax.Array:
    """Sets these rows of every environment to `value`; ignores rows beyond the last."""
    flat = power.reshape(power.shape[0], -1)
    return flat.at[:, rows].set(value, mode="drop").reshape(power.shape)


def follow(memory: Replay, length: int, n_step: int) -> Replay:
    """Updates the priorities after `buffer.add` of `length` steps.

    Steps that begin whole windows of n steps get the largest priority so far, overwritten ones 0.
    """
    priorities: Priorities = memory.priorities
    capacity, nowhere = memory.ring.valid.shape[1], priorities.power[0].size
    newest, first = memory.steps[0], buffer.first_step(memory)
    gone = first - length + jnp.arange(length)
    power = _set(priorities.power, jnp.where(gone >= 0, gone % capacity, nowhere), jnp.float32(0))
    whole = newest - n_step - length + jnp.arange(length)
    rows = whole % capacity
    # A row whose action a reset ignored is no transition.
    value = jnp.where(memory.ring.valid[:, rows], priorities.largest, 0.0)
    power = _set(power, jnp.where(whole >= first, rows, nowhere), value)
    return memory._replace(priorities=priorities._replace(power=power))


def draw(key: jax.Array, memory: Replay, batch_size: int) -> tuple[Place, jax.Array]:
    """Draws this device's share of a batch, and returns the probability f32[B] of each draw."""
    env, row, probability = draw_rows(key, memory.priorities.power, batch_size)
    newest = memory.steps[0] - 1
    step = newest - (newest - row) % memory.ring.valid.shape[1]
    return Place(env, step), probability


def draw_rows(
    key: jax.Array, power: jax.Array, batch_size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws rows in proportion to f32[E, blocks, rows]: environments, rows, probabilities; [B].

    The b-th block is drawn from the b-th part of the sum of priorities, which is less noisy than
    independent draws. The row within it has a number of its own: float32 would leave each of
    a million rows some sixteen points of the sum, or fewer.
    """
    num_envs, num_blocks, length = power.shape
    blocks = power.reshape(num_envs * num_blocks, length)
    sums = blocks.sum(axis=1)
    ends = jnp.cumsum(sums)
    total = ends[-1]
    keys = batches.keys_per_index(key, batch_size)
    of_blocks, of_rows = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys).T
    block = _find(sums, ends, (jnp.arange(batch_size) + of_blocks) * (total / batch_size))
    within = jnp.cumsum(blocks[block], axis=1)
    place = jax.vmap(_find)(blocks[block], within, of_rows * within[:, -1])
    probability = blocks[block, place] / jnp.maximum(total, 1e-30)
    return block // num_blocks, block % num_blocks * length + place, probability


def _find(parts: jax.Array, ends: jax.Array, point: jax.Array) -> jax.Array:
    """Returns the index of the part that contains a point, of parts that end at `ends`.

    Sums in another order may end an empty part a rounding after the one before it: a point there
    belongs to the last part before it that is not empty.
    """
    full = parts > 0
    drawable = jax.lax.cummax(jnp.where(full, jnp.arange(parts.size), jnp.argmax(full)))
    index = jnp.searchsorted(ends, point, side="right")
    return drawable[jnp.minimum(index, parts.size - 1)].astype(jnp.int32)


def importance(probability: jax.Array, exponent: jax.Array) -> jax.Array:
    """Returns weights that correct for uneven drawing, at most 1; f32[B], f32[] -> f32[B].

    N is the same for all and cancels.
    """
    weight = jnp.where(probability > 0, jnp.maximum(probability, 1e-30) ** -exponent, 0.0)
    return weight / jnp.maximum(max_over_devices(weight.max()), 1e-30)


def update(memory: Replay, place: Place, error: jax.Array, exponent: float) -> Priorities:
    """Returns the priorities after the errors f32[B] of the transitions at `place`."""
    row = place.step % memory.ring.valid.shape[1]
    return set_errors(memory.priorities, place.env, row, error, exponent)


def set_errors(
    priorities: Priorities, env: jax.Array, row: jax.Array, error: jax.Array, exponent: float
) -> Priorities:
    """Returns the priorities after the errors f32[B] of rows i32[B] of environments i32[B].

    Non-finite errors change nothing: the update may be skipped, but the memory remains.
    """
    power = (jnp.minimum(jnp.abs(error), LARGEST) + SMALLEST) ** exponent
    length = priorities.power.shape[2]
    at = env, row // length, row % length
    # Steps that must not be drawn keep priority 0.
    before = priorities.power[at]
    changed = jnp.where((before > 0) & jnp.isfinite(error), power, before)
    largest = jnp.maximum(priorities.largest, max_over_devices(changed.max()))
    # A transition drawn twice gets the larger error, on every platform.
    return Priorities(priorities.power.at[at].set(0.0).at[at].max(changed), largest)
