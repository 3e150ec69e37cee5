"""`Prediction`s from the outputs of a network."""

import jax
import jax.numpy as jnp

from jaxrl.ops import distributions
from jaxrl.types import Prediction


def from_policy(logits: jax.Array, value: jax.Array) -> Prediction:
    """Returns the prediction of an agent that samples its policy.

    Args:
      logits: f32[B, A], of the policy.
      value: f32[B], in units of the return.
    """
    policy = jnp.exp(distributions.log_probabilities(logits))
    return Prediction(policy, value, jnp.zeros((*logits.shape, 0)), jnp.zeros(0))


def from_action_values(values: jax.Array, epsilon: float) -> Prediction:
    """Returns the prediction of an agent that acts epsilon-greedily on values f32[B, A]."""
    num_actions = values.shape[-1]
    best = jax.nn.one_hot(jnp.argmax(values, axis=-1), num_actions)
    policy = epsilon / num_actions + (1 - epsilon) * best
    return Prediction(policy, values.max(axis=-1), jnp.zeros((*values.shape, 0)), jnp.zeros(0))
