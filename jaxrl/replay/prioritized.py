"""Prioritized replay: transitions are drawn as often as they surprise (Schaul 2016).

P(i) = pᵢ^α / Σⱼ pⱼ^α,  wᵢ = (N · P(i))^-β / max over the batch,  pᵢ the last error of i

Drawing takes two levels: among the sums of blocks of a hundred steps or so, then within one. The
sums are made anew for every batch, so that there is no tree to keep, and no error that adds up.
Each device draws its share of a batch among its own steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.replay import buffer
from jaxrl.replay.buffer import Place, Replay
from jaxrl.runtime.collectives import max_over_devices

BLOCK = 128  # steps, at most; docs/results/performance.md has the cost
SMALLEST = 1e-6  # added to an error, so that every transition is drawn again
LARGEST = 100.0  # error that counts, so that one that exploded does not reign for ever


class Priorities(NamedTuple):
    """Of the steps of a replay, by environment and row."""

    power: jax.Array  # f32[E, blocks, rows], p^α; 0 for what must not be drawn
    largest: jax.Array  # f32[1], of all there have been; a new transition's


def new(num_envs: int, rows: int) -> Priorities:
    """For an empty replay of `rows` steps of each environment."""
    blocks = -(-rows // BLOCK)
    power = jnp.zeros((num_envs, blocks, -(-rows // blocks)))  # the last rows may be no step
    return Priorities(power, jnp.ones(1))


def _set(power: jax.Array, rows: jax.Array, value: jax.Array) -> jax.Array:
    """With `value` at these rows of every environment; rows beyond the last are left out."""
    flat = power.reshape(power.shape[0], -1)
    return flat.at[:, rows].set(value, mode="drop").reshape(power.shape)


def follow(memory: Replay, length: int, n_step: int) -> Replay:
    """After `replay.add` of `length` steps: those that begin whole windows of n steps may be drawn.

    They have the largest priority so far; what was overwritten has none.
    """
    priorities: Priorities = memory.priorities
    capacity, nowhere = memory.ring.valid.shape[1], priorities.power[0].size
    newest, first = memory.steps[0], buffer.first_step(memory)
    gone = first - length + jnp.arange(length)
    power = _set(priorities.power, jnp.where(gone >= 0, gone % capacity, nowhere), jnp.float32(0))
    whole = newest - n_step - length + jnp.arange(length)
    rows = whole % capacity
    # The answer to an action that a reset ignored is no transition.
    value = jnp.where(memory.ring.valid[:, rows], priorities.largest, 0.0)
    power = _set(power, jnp.where(whole >= first, rows, nowhere), value)
    return memory._replace(priorities=priorities._replace(power=power))


def draw(key: jax.Array, memory: Replay, batch_size: int) -> tuple[Place, jax.Array]:
    """Places for this device's share of a batch, and the probability f32[B] that each had.

    The b-th place is drawn from the b-th part of the sum of priorities, which is less noisy than
    independent draws.
    """
    power: jax.Array = memory.priorities.power
    num_envs, num_blocks, length = power.shape
    blocks = power.reshape(num_envs * num_blocks, length)
    ends = jnp.cumsum(blocks.sum(axis=1))
    total = ends[-1]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, buffer.batch_rows(batch_size))
    part = jnp.arange(batch_size) + jax.vmap(jax.random.uniform)(keys)
    point = part * (total / batch_size)
    block = _find(ends, point)
    within = jnp.cumsum(blocks[block], axis=1)
    rest = point - jnp.where(block > 0, ends[block - 1], 0.0)
    place = jax.vmap(_find)(within, rest)
    env, row = block // num_blocks, block % num_blocks * length + place
    newest = memory.steps[0] - 1
    step = newest - (newest - row) % memory.ring.valid.shape[1]
    return Place(env, step), blocks[block, place] / jnp.maximum(total, 1e-30)


def _find(ends: jax.Array, point: jax.Array) -> jax.Array:
    """Which part a point lies in, of parts that end at `ends`.

    Rounding may put a point into an empty one, in one of a million draws: it weighs nothing.
    """
    last = jnp.searchsorted(ends, ends[-1], side="left")
    return jnp.minimum(jnp.searchsorted(ends, point, side="right"), last).astype(jnp.int32)


def importance(probability: jax.Array, exponent: jax.Array) -> jax.Array:
    """Weights that make up for drawing unevenly, at most 1; f32[B], f32[] -> f32[B].

    N is the same for all and cancels.
    """
    weight = jnp.where(probability > 0, jnp.maximum(probability, 1e-30) ** -exponent, 0.0)
    return weight / jnp.maximum(max_over_devices(weight.max()), 1e-30)


def update(memory: Replay, place: Place, error: jax.Array, exponent: float) -> Priorities:
    """The priorities with the newest errors f32[B] of the transitions at `place`.

    Errors that are no numbers change none: the update may be skipped, and the memory goes on.
    """
    priorities: Priorities = memory.priorities
    power = (jnp.minimum(jnp.abs(error), LARGEST) + SMALLEST) ** exponent
    row = place.step % memory.ring.valid.shape[1]
    length = priorities.power.shape[2]
    at = place.env, row // length, row % length
    # What must not be drawn stays so.
    before = priorities.power[at]
    changed = jnp.where((before > 0) & jnp.isfinite(error), power, before)
    largest = jnp.maximum(priorities.largest, max_over_devices(changed.max()))
    # One that was drawn twice has the larger error, on every platform.
    return Priorities(priorities.power.at[at].set(0.0).at[at].max(changed), largest)
