"""The categorical policy: sampling, log-probability, entropy."""

import jax
import jax.numpy as jnp


def sample(key: jax.Array, logits: jax.Array) -> jax.Array:
    """Draws one action per row; key[E], logits f32[E, A] -> i32[E].

    Every environment has a key of its own, so that a row's action depends neither on the number
    of devices nor on the row's place in the batch.
    """
    return jax.vmap(jax.random.categorical)(key, logits).astype(jnp.int32)


def log_probabilities(logits: jax.Array, epsilon: float = 0.0) -> jax.Array:
    """log π for every action; f32[..., A] -> f32[..., A].

    With epsilon > 0: log(π + ε), which bounds the gradient of rare actions (GA3C, Babaeizadeh
    2017, section 3.3).
    """
    if epsilon == 0.0:
        return jax.nn.log_softmax(logits)
    return jnp.log(jax.nn.softmax(logits) + epsilon)


def select(table: jax.Array, action: jax.Array) -> jax.Array:
    """table f32[..., A] at action i32[...] -> f32[...]."""
    return jnp.take_along_axis(table, action[..., None], axis=-1)[..., 0]


def entropy(logits: jax.Array, epsilon: float = 0.0) -> jax.Array:
    """H(π) = -Σₐ π(a) log π(a) in nats, with `log_probabilities`; f32[..., A] -> f32[...]."""
    return -jnp.sum(jax.nn.softmax(logits) * log_probabilities(logits, epsilon), axis=-1)
