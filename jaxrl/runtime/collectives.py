"""Collectives over the mesh's one axis."""

from typing import Any

import jax

from jaxrl.types import AXIS


def mean_over_devices(tree: Any) -> Any:
    """Returns the mean of every leaf over the mesh: the synchronous all-reduce."""
    return jax.lax.pmean(tree, AXIS)


def sum_over_devices(tree: Any) -> Any:
    """Returns the sum of every leaf over the mesh."""
    return jax.lax.psum(tree, AXIS)


def max_over_devices(tree: Any) -> Any:
    """Returns the elementwise maximum of every leaf over the mesh."""
    return jax.lax.pmax(tree, AXIS)


def gather_over_devices(tree: Any, axis: int = 0) -> Any:
    """Returns every leaf with the parts of all devices joined along an axis, in their order."""
    return jax.lax.all_gather(tree, AXIS, axis=axis, tiled=True)
