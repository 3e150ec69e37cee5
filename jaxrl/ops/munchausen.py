"""Munchausen targets: the reward is raised by the policy's own log-probability (Vieillard 2020).

The policy is soft, π = softmax(q / τ). To an n-step return G is added what its first action earns,
and the bootstrap m steps later is the soft value of its state:

t = G + α [τ log π(a|s)]_l⁰ + γᵐ Σₐ' π(a'|s') (z(s', a') - τ log π(a'|s'))

z are action values or quantiles of the return; all of them are the target network's (eq. 2), but
the log-probability may be that of the network that learns.
"""

import jax
import jax.numpy as jnp

from jaxrl.ops import distributions
from jaxrl.types import PyTree


def log_policy(values: jax.Array, temperature: float) -> jax.Array:
    """Returns τ log π of every action; f32[..., A] -> f32[..., A], at most 0."""
    rest = values - jnp.max(values, axis=-1, keepdims=True)
    return rest - temperature * jax.nn.logsumexp(rest / temperature, axis=-1, keepdims=True)


def bonus(
    values: jax.Array, action: jax.Array, scale: float, temperature: float, clip: float
) -> jax.Array:
    """Returns what is added to rewards, α [τ log π(a|s)]_l⁰.

    Args:
      values: f32[B, A], action values of the states.
      action: i32[B], those taken.
      scale: α.
      temperature: τ.
      clip: l, at most 0.

    Returns:
      f32[B].
    """
    chosen = distributions.select(log_policy(values, temperature), action)
    return scale * jnp.clip(chosen, clip, 0.0)


def soft_bootstrap(outputs: PyTree, values: jax.Array, temperature: float) -> PyTree:
    """Returns Σₐ π(a|s) (z(s, a) - τ log π(a|s)), for each quantile: f32[B, A(, N)] -> f32[B(, N)].

    `values` are f32[B, A], of the same states. Of a record with levels of quantiles, too, only the
    quantiles mean anything.
    """
    scaled = log_policy(values, temperature)
    policy = jnp.exp(scaled / temperature)

    def expected(x: jax.Array) -> jax.Array:
        quantiles = (1,) * (x.ndim - values.ndim)
        soft = x - scaled.reshape(*scaled.shape, *quantiles)
        return jnp.sum(policy.reshape(*policy.shape, *quantiles) * soft, axis=1)

    return jax.tree.map(expected, outputs)
