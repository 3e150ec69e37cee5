"""Scalars as probabilities of bins, so that a network learns them by classification.

The prediction of logits l is the mean of their distribution, Σᵢ zᵢ softmax(l)ᵢ, and its loss the
cross-entropy -Σᵢ pᵢ(y) log softmax(l)ᵢ from the histogram p(y) of a target y (Farebrother 2024,
section 3).
"""

import chex
import jax
import jax.numpy as jnp

from jaxrl.ops import distributions


def centers(edges: jax.Array) -> jax.Array:
    """Returns the middles of bins between edges f32[N + 1]: f32[N]."""
    return (edges[:-1] + edges[1:]) / 2


def hl_gauss(target: jax.Array, edges: jax.Array, deviation: float) -> jax.Array:
    """Returns the share of a Gaussian around each target in every bin (HL-Gauss).

    pᵢ(y) = (Φ((eᵢ₊₁ - y) / σ) - Φ((eᵢ - y) / σ)) / (Φ((e_N - y) / σ) - Φ((e₀ - y) / σ))

    is the histogram of Imani & White 2018, with the constant σ, and without the tails beyond the
    edges, of Farebrother 2024, section 3.1 and appendix A. A target beyond them is taken at the
    last one, where the mean of its histogram lies up to 0.8 σ within.

    Args:
      target: f32[B], y.
      edges: f32[N + 1], e, increasing.
      deviation: σ, in units of the target.

    Returns:
      f32[B, N], sum 1.
    """
    chex.assert_rank([target, edges], 1)
    clipped = jnp.clip(target, edges[0], edges[-1])
    below = jax.scipy.special.ndtr((edges[None] - clipped[:, None]) / deviation)
    return jnp.diff(below) / (below[:, -1:] - below[:, :1])


def two_hot(target: jax.Array, support: jax.Array) -> jax.Array:
    """Returns each target's shares of the two atoms beside it, whose mean is the target.

    pᵢ(y) = [1 - |clip(y, z₀, z_N) - zᵢ| / Δz]₀¹, the projection of C51 of all mass at y
    (Farebrother 2024, section 3.1).

    Args:
      target: f32[B], y.
      support: f32[N], z, even and increasing.

    Returns:
      f32[B, N], sum 1.
    """
    chex.assert_rank([target, support], 1)
    return jax.vmap(lambda y: distributions.project(y[None], jnp.ones(1), support))(target)


def mean(logits: jax.Array, support: jax.Array) -> jax.Array:
    """Returns Σᵢ zᵢ softmax(l)ᵢ of logits f32[..., N] on a support f32[N]: f32[...].

    Accelerators would round the factors, and targets bootstrap from the result.
    """
    return jnp.dot(jax.nn.softmax(logits), support, precision=jax.lax.Precision.HIGHEST)


def cross_entropy(target: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns -Σᵢ pᵢ log softmax(l)ᵢ of histograms and logits f32[B, N]: f32[B], in nats."""
    chex.assert_equal_shape([target, logits])
    return -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1)
