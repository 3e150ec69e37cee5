"""The categorical policy (sampling, log-probability, entropy) and the categorical return (C51)."""

import chex
import jax
import jax.numpy as jnp


def sample(key: jax.Array, logits: jax.Array) -> jax.Array:
    """Draws one action per row; key[E], logits f32[E, A] -> i32[E].

    Each row has a separate key: its action depends neither on the number of devices nor on its
    place in the batch.
    """
    return jax.vmap(jax.random.categorical)(key, logits).astype(jnp.int32)


def log_probabilities(logits: jax.Array, epsilon: float = 0.0) -> jax.Array:
    """Returns log π of every action; f32[..., A] -> f32[..., A].

    With epsilon > 0: log(π + ε), which bounds the gradient of rare actions (GA3C, Babaeizadeh
    2017, section 3.3).
    """
    if epsilon == 0.0:
        return jax.nn.log_softmax(logits)
    return jnp.log(jax.nn.softmax(logits) + epsilon)


def select(table: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the entries of a table f32[..., A(, N)] at actions i32[...]: f32[...(, N)]."""
    axis = action.ndim
    index = jnp.expand_dims(action, tuple(range(axis, table.ndim)))
    return jnp.take_along_axis(table, index, axis).squeeze(axis)


def entropy(logits: jax.Array, epsilon: float = 0.0) -> jax.Array:
    """Returns H(π) = -Σₐ π(a) log π(a) in nats, by `log_probabilities`; f32[..., A] -> f32[...]."""
    return -jnp.sum(jax.nn.softmax(logits) * log_probabilities(logits, epsilon), axis=-1)


def support(v_min: float, v_max: float, num_atoms: int) -> jax.Array:
    """Returns the atoms zᵢ = v_min + i · Δz, evenly from v_min to v_max (C51); f32[N]."""
    return jnp.linspace(v_min, v_max, num_atoms)


def project(atoms_tp1: jax.Array, probabilities: jax.Array, support: jax.Array) -> jax.Array:
    """Projects a distribution onto a support, with the same mean (C51, Bellemare 2017, eq. 7).

    pᵢ = Σⱼ [1 - |clip(zⱼ', z₀, z_N) - zᵢ| / Δz]₀¹ · pⱼ'

    Args:
      atoms_tp1: f32[M], where the probability lies: r + γz for a Bellman target.
      probabilities: f32[M], sum 1.
      support: f32[N], even and increasing.

    Returns:
      f32[N], sum 1. The mean changes only where atoms were clipped.
    """
    chex.assert_rank([atoms_tp1, probabilities, support], 1)
    chex.assert_equal_shape([atoms_tp1, probabilities])
    spacing = support[1] - support[0]
    clipped = jnp.clip(atoms_tp1, support[0], support[-1])
    share = 1 - jnp.abs(clipped[None, :] - support[:, None]) / spacing
    return jnp.sum(jnp.clip(share, 0, 1) * probabilities[None, :], axis=1)
