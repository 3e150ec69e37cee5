"""Quantile regression: distributions of returns by the values at given levels (Dabney 2018)."""

import jax
import jax.numpy as jnp
import optax


def midpoints(count: int) -> jax.Array:
    """Returns the levels τᵢ = (2i + 1) / 2N, the middles of N equal parts (lemma 2); f32[N]."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


def differences(target: jax.Array, quantiles: jax.Array) -> jax.Array:
    """Returns δᵢⱼ = tⱼ - zᵢ of targets f32[B, M] and quantiles f32[B, N]: f32[B, N, M]."""
    return target[:, None, :] - quantiles[:, :, None]


def error(
    target: jax.Array, quantiles: jax.Array, levels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns `huber_loss` and the priority, the mean of |δᵢⱼ|; both f32[B].

    Args:
      target: f32[B, M].
      quantiles: f32[B, N].
      levels: f32[N] or f32[B, N], τ of the quantiles.
    """
    delta = differences(target, quantiles)
    return huber_loss(delta, levels), jnp.mean(jnp.abs(delta), axis=(1, 2))


def huber_loss(delta: jax.Array, levels: jax.Array) -> jax.Array:
    """Returns the quantile Huber loss, whose slope is at most 1 (QR-DQN, Dabney 2018, eq. 10).

    L = Σᵢ meanⱼ |τᵢ - 1{δᵢⱼ < 0}| · huber(δᵢⱼ)

    Args:
      delta: f32[B, N, M], differences.
      levels: f32[N] or f32[B, N], τ of the quantiles.

    Returns:
      f32[B].
    """
    weight = jnp.abs(levels[..., None] - (delta < 0))
    return jnp.sum(jnp.mean(weight * optax.losses.huber_loss(delta), axis=-1), axis=-1)
