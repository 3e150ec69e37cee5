"""Means over devices, gradients in micro-batches, clipping, the optimizers, learning rates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import PyTree

CPU_MICRO_BATCH = 48  # rows of one pass on a CPU: more gain nothing and need more memory
Objective = Callable[[PyTree, PyTree], tuple[jax.Array, dict[str, jax.Array]]]


def row_weights(valid: jax.Array) -> jax.Array:
    """Weights w: Σ w·loss, averaged over devices, is the mean over all devices' valid rows.

    wᵢ = validᵢ / mean_d(Σᵢ validᵢ): devices that hold different numbers of valid rows still count
    each row once. Without a valid row all weights are 0.

    Args:
      valid: b[...], rows that the loss counts.

    Returns:
      f32[...], no gradient.
    """
    rows = valid.astype(jnp.float32)
    return rows / jnp.maximum(mean_over_devices(rows.sum()), 1e-8)


def gradient(
    objective: Objective, params: PyTree, rows: PyTree, micro_batch: int, rows_per_item: int = 1
) -> tuple[PyTree, dict[str, jax.Array]]:
    """The mean over devices of the gradient of Σ w·loss, taken in micro-batches that fit a cache.

    Args:
      objective: (params, rows) -> (weighted sum of the rows' losses, further sums for the log).
      params: of which the gradient is taken.
      rows: arrays [B, ...]; the weights of `row_weights` among them.
      micro_batch: items of one pass, a divisor of B; 0 takes up to 48 rows on a CPU, elsewhere all.
      rows_per_item: observations in each of the B items.

    Returns:
      The gradient and the sums, both means over devices.
    """

    def without_each(params: PyTree, part: PyTree) -> tuple[jax.Array, Any]:
        total, sums = objective(params, part)
        return total, (sums, ())

    return gradient_and_rows(without_each, params, rows, micro_batch, rows_per_item)[:2]


def gradient_and_rows(
    objective: Callable[[PyTree, PyTree], tuple[jax.Array, Any]],
    params: PyTree,
    rows: PyTree,
    micro_batch: int,
    rows_per_item: int = 1,
) -> tuple[PyTree, dict[str, jax.Array], PyTree]:
    """As `gradient`, of an objective that also says something of each row.

    Args are those of `gradient`, but the objective returns (weighted sum, (further sums, arrays
    [B, ...] of this device's rows)), and the latter come back as they are.
    """
    grad = jax.grad(objective, has_aux=True)
    num_items = jax.tree.leaves(rows)[0].shape[0]
    size = micro_batch or _default_micro_batch(num_items, rows_per_item)
    if size == num_items:
        gradients, (sums, each) = grad(params, rows)
        return *mean_over_devices((gradients, sums)), each
    parts = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), rows)
    shapes, (sum_shapes, _) = jax.eval_shape(grad, params, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes, sum_shapes))

    def add(total: PyTree, part: PyTree) -> tuple[PyTree, PyTree]:
        gradients, (sums, each) = grad(params, part)
        return jax.tree.map(jnp.add, total, (gradients, sums)), each

    totals, each = jax.lax.scan(add, zeros, parts)
    joined = jax.tree.map(lambda x: x.reshape(num_items, *x.shape[2:]), each)
    return *mean_over_devices(totals), joined


def _default_micro_batch(num_items: int, rows_per_item: int) -> int:
    if jax.default_backend() != "cpu":
        return num_items
    most = max(1, min(num_items, CPU_MICRO_BATCH // rows_per_item))
    return max(n for n in range(1, most + 1) if num_items % n == 0)
