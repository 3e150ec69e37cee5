"""What drawing by priority costs: a batch drawn and its priorities written back, in four ways.

    python docs/examples/priority_cost.py --batch-sizes 32 512

uniform has no priorities; blocks is `jaxrl.replay.prioritized`; tree is a binary tree of sums,
whose levels are looked through from the top and mended from the bottom; cumulative is one
cumulative sum of all priorities. The four take turns, so that a busy machine slows all of them.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from jaxrl.replay import buffer, prioritized
from jaxrl.types import AXIS

BATCHES = 50  # per turn, in one compiled program
Step = Callable[[Any, jax.Array], tuple[Any, jax.Array]]  # (state, key) -> (state, what was drawn)


def memory(num_envs: int, rows: int) -> buffer.Replay:
    """A full replay whose frames are of one pixel, with priorities from 0 to 1."""
    made = buffer.new(num_envs, rows, (1, 4))
    priorities = prioritized.new(num_envs, rows)
    power = jax.random.uniform(jax.random.key(0), priorities.power.shape)
    held = jnp.arange(power[0].size).reshape(power.shape[1:]) < rows
    ring = made.ring._replace(valid=jnp.ones_like(made.ring.valid))
    priorities = priorities._replace(power=jnp.where(held, power, 0.0))
    return made._replace(ring=ring, steps=made.steps + 2 * rows, priorities=priorities)


def ways(num_envs: int, rows: int, batch_size: int) -> dict[str, tuple[Step, Any]]:
    """Each way with the state that it begins with."""

    def uniform(state: buffer.Replay, key: jax.Array) -> tuple[buffer.Replay, jax.Array]:
        return state, buffer.draw_uniform(key, state, batch_size, 3).step

    def blocks(state: buffer.Replay, key: jax.Array) -> tuple[buffer.Replay, jax.Array]:
        place, probability = prioritized.draw(key, state, batch_size)
        errors = probability * num_envs * rows
        priorities = prioritized.update(state, place, errors, 0.5)
        return state._replace(priorities=priorities), place.step

    def tree(sums: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        depth = sums.size.bit_length() - 2  # node 1 is the sum of all, 2 n and 2 n + 1 are n's
        point = (jnp.arange(batch_size) + jax.random.uniform(key, (batch_size,))) / batch_size
        point, node = point * sums[1], jnp.ones(batch_size, jnp.int32)
        for _ in range(depth):
            left = sums[2 * node]
            right = point >= left
            point, node = jnp.where(right, point - left, point), 2 * node + right
        drawn, sums = node, sums.at[node].set(point + 0.1)
        for _ in range(depth):
            node = node // 2
            sums = sums.at[node].set(sums[2 * node] + sums[2 * node + 1])
        return sums, drawn

    def cumulative(power: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        ends = jnp.cumsum(power)
        drawn = jnp.searchsorted(ends, jax.random.uniform(key, (batch_size,)) * ends[-1])
        return power.at[drawn].set(0.5), drawn

    start = memory(num_envs, rows)
    power = start.priorities.power.reshape(-1)
    levels = [jnp.zeros(1 << (power.size - 1).bit_length()).at[: power.size].set(power)]
    while len(levels[0]) > 1:
        levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
    sums = jnp.concatenate([jnp.zeros(1), *levels])
    return {
        "uniform": (uniform, start),
        "blocks": (blocks, start),
        "tree": (tree, sums),
        "cumulative": (cumulative, power),
    }


def program(step: Step) -> Callable[[Any, jax.Array], jax.Array]:
    """Many batches after another, as an update draws them."""

    def batches(state: Any, key: jax.Array) -> jax.Array:
        def body(number: jax.Array, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            state, drawn = step(carry[0], jax.random.fold_in(key, number))
            return state, carry[1] + drawn.sum()

        return jax.lax.fori_loop(0, BATCHES, body, (state, jnp.int32(0)))[1]

    device = jax.vmap(batches, in_axes=(None, None), axis_name=AXIS, axis_size=1)
    return jax.jit(device)


def main(
    capacity: int = 1_000_000,
    num_envs: int = 16,
    batch_sizes: tuple[int, ...] = (32, 512),
    turns: int = 7,
) -> None:
    """Times a batch of each size in each way.

    Args:
        capacity: transitions in the replay
        num_envs: that it is of
        batch_sizes: transitions of a batch
        turns: of 50 batches in each way; the median is printed, with the fastest and the slowest
    """
    for batch_size in batch_sizes:
        found = ways(num_envs, capacity // num_envs, batch_size)
        programs = {name: program(step) for name, (step, _) in found.items()}
        times: dict[str, list[float]] = {name: [] for name in found}
        for turn in range(-1, turns):  # the first compiles
            for name, (_, state) in found.items():
                start = time.perf_counter()
                programs[name](state, jax.random.key(turn + 1)).block_until_ready()
                if turn >= 0:
                    times[name].append((time.perf_counter() - start) / BATCHES * 1e6)
        for name, each in times.items():
            print(
                f"{batch_size} of {capacity:,} transitions, {name}: "
                f"{statistics.median(each):.0f} us ({min(each):.0f} to {max(each):.0f})"
            )


if __name__ == "__main__":
    tyro.cli(main)
