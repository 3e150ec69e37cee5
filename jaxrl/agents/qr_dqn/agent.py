"""Quantile regression DQN: the values of the return's distribution at even levels (Dabney 2018).

The loss of a transition compares every quantile with every target,

L = Σᵢ meanⱼ |τᵢ - 1{δᵢⱼ < 0}| · huber(δᵢⱼ),  δᵢⱼ = G + γᵐ · z⁻ⱼ(s', a*) - zᵢ(s, a)

with τᵢ = (2i + 1) / 2N. An action's value is the mean of its quantiles; a* has the target network's
best. A priority is the mean of |δᵢⱼ|.
"""

import jax
import jax.numpy as jnp

from jaxrl.agents import q_learning
from jaxrl.agents.learner import value_learner
from jaxrl.agents.qr_dqn.settings import QRDQNConfig
from jaxrl.config.plan import Plan
from jaxrl.ops import quantiles
from jaxrl.types import Agent, EnvSpec


def target(reward: jax.Array, discount: jax.Array, bootstrap: jax.Array) -> jax.Array:
    """Returns G + γᵐ · z⁻ⱼ(s', a*); f32[B], f32[B], f32[B, N] -> f32[B, N]."""
    return reward[:, None] + discount[:, None] * bootstrap


def error(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns losses and priorities f32[B] of quantiles from targets, both f32[B, N]."""
    return quantiles.error(target, chosen, quantiles.midpoints(chosen.shape[-1]))


def method() -> q_learning.Method:
    """Returns the method: an action's value is the mean of its quantiles."""
    return q_learning.Method(
        support=jnp.zeros(0),  # quantiles have none
        values=lambda outputs: outputs.mean(axis=-1),
        distributions=lambda outputs: jnp.zeros((*outputs.shape[:-1], 0)),
        target=target,
        error=error,
        loss_name="loss/quantile",
    )


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the QR-DQN agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, QRDQNConfig)
    learner = value_learner(plan, spec, settings.num_quantiles)
    return q_learning.make(plan, learner, method())
