"""Gradients of weighted sums, in micro-batches and averaged over devices."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.ops.batches import flatten, unflatten
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import PyTree

Objective = Callable[[PyTree, PyTree], tuple[jax.Array, dict[str, jax.Array]]]


class Passes(NamedTuple):
    """The division of a batch into passes of the gradient, whose arrays fit a cache."""

    micro_batch: int  # items of a pass, a divisor of the batch; 0 chooses
    cpu_rows: int  # then: observations of a pass on a CPU, at most; elsewhere one pass has all
    rows_per_item: int = 1  # observations in each item of a batch


def row_weights(valid: jax.Array) -> jax.Array:
    """Returns weights w that make Σ w·loss, averaged over devices, the mean over all valid rows.

    wᵢ = validᵢ / mean_d(Σᵢ validᵢ): each row counts once, also where devices hold different numbers
    of valid rows. Without a valid row all weights are 0.

    Args:
      valid: b[...], rows that the loss counts.

    Returns:
      f32[...], no gradient.
    """
    rows = valid.astype(jnp.float32)
    return rows / jnp.maximum(mean_over_devices(rows.sum()), 1e-8)


def gradient(
    objective: Objective, params: PyTree, batch: PyTree, passes: Passes
) -> tuple[PyTree, dict[str, jax.Array]]:
    """Returns the gradient of Σ w·loss, averaged over devices, in micro-batches that fit a cache.

    Args:
      objective: (params, batch) -> (weighted sum of the losses, further sums for the log).
      params: the parameters to differentiate by.
      batch: arrays [B, ...]; the weights of `row_weights` among them.
      passes: the division of the batch, which changes the gradient by rounding only.

    Returns:
      The gradient and the sums, both means over devices.
    """

    def without_aux(params: PyTree, part: PyTree) -> tuple[jax.Array, Any]:
        total, sums = objective(params, part)
        return total, (sums, ())

    return gradient_with_aux(without_aux, params, batch, passes)[:2]


def gradient_with_aux(
    objective: Callable[[PyTree, PyTree], tuple[jax.Array, Any]],
    params: PyTree,
    batch: PyTree,
    passes: Passes,
) -> tuple[PyTree, dict[str, jax.Array], PyTree]:
    """Returns the gradient and the sums as `gradient`, and auxiliary arrays of each item.

    Args are those of `gradient`, but the objective returns (weighted sum, (further sums, arrays
    [B, ...] of this device's items)). The arrays are joined over micro-batches, not over devices.
    """
    grad = jax.grad(objective, has_aux=True)
    num_items = jax.tree.leaves(batch)[0].shape[0]
    size = passes.micro_batch or _default_micro_batch(num_items, passes)
    if size == num_items:
        gradients, (sums, aux) = grad(params, batch)
        return *mean_over_devices((gradients, sums)), aux
    parts = unflatten(batch, (num_items // size, size))
    shapes, (sum_shapes, _) = jax.eval_shape(grad, params, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes, sum_shapes))

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, PyTree]:
        gradients, (sums, aux) = grad(params, part)
        return jax.tree.map(jnp.add, total, (gradients, sums)), aux

    totals, aux = jax.lax.scan(add, zeros, parts)
    return *mean_over_devices(totals), flatten(aux)


def _default_micro_batch(num_items: int, passes: Passes) -> int:
    """Returns the largest divisor of `num_items` within `cpu_rows`; all on an accelerator."""
    if jax.default_backend() != "cpu":
        return num_items
    most = max(1, min(num_items, passes.cpu_rows // passes.rows_per_item))
    return max(n for n in range(1, most + 1) if num_items % n == 0)
