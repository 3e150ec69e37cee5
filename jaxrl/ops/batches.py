"""Axes and random keys of batches, independent of the number of devices."""

import jax
import jax.numpy as jnp

from jaxrl.types import AXIS, PyTree, RecurrentObservation


def flatten(tree: PyTree) -> PyTree:
    """Merges the two leading axes of every array: [T, E, ...] -> [T · E, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def unflatten(tree: PyTree, shape: tuple[int, ...]) -> PyTree:
    """Splits the leading axis of every array into `shape`: [B, ...] -> [*shape, ...]."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)


def at(tree: PyTree, index: int | slice) -> PyTree:
    """Returns the entries of every array at an index of its first axis."""
    return jax.tree.map(lambda x: x[index], tree)


def stacks(observation: PyTree) -> jax.Array:
    """Returns the stacks of frames of observations, of an agent that remembers too."""
    return observation.stack if isinstance(observation, RecurrentObservation) else observation


def items(batch: PyTree, sequences: bool) -> PyTree:
    """Returns what a gradient sums over: rows [T · E, ...], or sequences [E, T, ...].

    Args:
      batch: arrays [T, E, ...].
      sequences: whether the network remembers, so that the steps of an environment stay together.
    """
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch) if sequences else flatten(batch)


def global_indices(size: int) -> jax.Array:
    """Returns the indices of this device's `size` entries among those of all devices: i32[size]."""
    return jax.lax.axis_index(AXIS) * size + jnp.arange(size)


def keys_per_index(key: jax.Array, size: int) -> jax.Array:
    """Returns a key for each of this device's entries, by its global index: key[] -> key[size]."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, global_indices(size))
