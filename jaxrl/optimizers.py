"""Means over devices, gradients in micro-batches, clipping, the optimizers, learning rates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxrl.config import Config, OptimizerConfig
from jaxrl.types import AXIS, PyTree

CPU_MICRO_BATCH = 48  # rows of one pass on a CPU: more gain nothing and need more memory
Objective = Callable[[PyTree, PyTree], tuple[jax.Array, dict[str, jax.Array]]]


def mean_over_devices(tree: Any) -> Any:
    """The synchronous all-reduce: the mean of every leaf over the mesh."""
    return jax.lax.pmean(tree, AXIS)


def sum_over_devices(tree: Any) -> Any:
    """The sum of every leaf over the mesh."""
    return jax.lax.psum(tree, AXIS)


def max_over_devices(tree: Any) -> Any:
    """The largest of every leaf over the mesh."""
    return jax.lax.pmax(tree, AXIS)


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


def learning_rate(config: Config) -> optax.Schedule:
    """The learning rate by update: constant, or linearly to 0 at the end."""
    start = config.initial_learning_rate()
    if config.optimizer.schedule == "linear":
        return optax.linear_schedule(start, 0.0, max(config.num_updates(), 1))
    return lambda _: jnp.float32(start)  # optax's own would give a number without a dtype


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Clipping by the global norm, then RMSProp or Adam; `apply` multiplies by the learning rate.

    RMSProp as A3C writes it (Mnih 2016, eq. 8 and 9), ε inside the root:

    g ← αg + (1 - α)Δθ²,  θ ← θ - ηΔθ / √(g + ε)

    With `eps_inside_root = false` it is √g + ε, as PyTorch has it.
    """
    if config.name == "rmsprop":
        scale = optax.scale_by_rms(
            decay=config.decay,
            eps=config.eps,
            initial_scale=config.initial_scale,
            eps_in_sqrt=config.eps_inside_root,
        )
    else:
        adam = {"adam": optax.scale_by_adam, "radam": optax.scale_by_radam}[config.name]
        scale = adam(b1=config.decay_mean, b2=config.decay, eps=config.eps)
    if config.max_grad_norm == 0:
        return scale
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), scale)


def apply(
    optimizer: optax.GradientTransformation,
    gradients: PyTree,
    state: PyTree,
    params: PyTree,
    learning_rate: jax.Array,
) -> tuple[PyTree, PyTree]:
    """One step of gradient descent: (params, optimizer state) after it."""
    direction, state = optimizer.update(gradients, state, params)
    return jax.tree.map(lambda p, d: p - learning_rate * d, params, direction), state
