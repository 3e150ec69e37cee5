"""The explained variance of values, from sums that add up over batches."""

import jax
import jax.numpy as jnp

from jaxrl.types import Mean

ERROR, SQUARE = "value/error", "value/square"  # sums that no line of the log has


def moments(target: jax.Array, value: jax.Array, weight: jax.Array) -> dict[str, jax.Array]:
    """Returns the weighted sums that `explained_variance` needs, each f32[].

    Args:
      target: f32[...], returns R.
      value: f32[...], values v.
      weight: f32[...], of `row_weights`.
    """
    return {
        "loss/value": jnp.sum(weight * jnp.square(target - value)),
        "value/target": jnp.sum(weight * target),
        ERROR: jnp.sum(weight * (target - value)),
        SQUARE: jnp.sum(weight * jnp.square(target)),
    }


def explained_variance(sums: dict[str, jax.Array]) -> dict[str, jax.Array | Mean]:
    """Replaces the sums of `moments`, whose weights have the sum 1, by 1 - Var(R - v) / Var(R).

    Over several batches it is pooled: 1 - Σ Var(R - v) / Σ Var(R).
    """
    sums = dict(sums)
    error, square = sums.pop(ERROR), sums.pop(SQUARE)
    residual = jnp.maximum(sums["loss/value"] - jnp.square(error), 0)
    variance = jnp.maximum(square - jnp.square(sums["value/target"]), 0)
    return sums | {"value/explained_variance": Mean(variance - residual, variance)}
