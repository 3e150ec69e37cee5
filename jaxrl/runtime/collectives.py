"""Collectives over the mesh's one axis."""

from typing import Any

import jax

from jaxrl.types import AXIS


def mean_over_devices(tree: Any) -> Any:
    """The synchronous all-reduce: the mean of every leaf over the mesh."""
    return jax.lax.pmean(tree, AXIS)


def sum_over_devices(tree: Any) -> Any:
    """The sum of every leaf over the mesh."""
    return jax.lax.psum(tree, AXIS)


def max_over_devices(tree: Any) -> Any:
    """The largest of every leaf over the mesh."""
    return jax.lax.pmax(tree, AXIS)
