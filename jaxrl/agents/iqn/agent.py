"""Implicit quantile networks (IQN, Dabney 2018): quantiles of the return at levels that are drawn.

The loss of a transition compares every quantile with every target,

L = Σᵢ meanⱼ |τᵢ - 1{δᵢⱼ < 0}| · huber(δᵢⱼ),  δᵢⱼ = G + γᵐ · z⁻ⱼ(s', a*) - zᵢ(s, a)

with the quantile zᵢ at the level τᵢ, and z⁻ⱼ of the target network at other levels. An action's
value is the mean of its quantiles; a* is the action that the target network values most, or for
double Q-learning the online one. A priority is the mean of |δᵢⱼ|. With priorities, noise, dueling
streams and Munchausen targets on a wider residual network this is Beyond the Rainbow (Clark 2024).
"""

import jax
import jax.numpy as jnp

from jaxrl.agents import q_learning
from jaxrl.agents.iqn.settings import IQNConfig
from jaxrl.agents.learner import make_learner
from jaxrl.config.plan import Plan
from jaxrl.networks.heads import QuantileNetwork, Quantiles
from jaxrl.ops import quantiles
from jaxrl.types import Agent, EnvSpec


def target(reward: jax.Array, discount: jax.Array, bootstrap: Quantiles) -> jax.Array:
    """Returns G + γᵐ · z⁻ⱼ(s', a*); f32[B], f32[B], [B, N'] -> f32[B, N']."""
    return reward[:, None] + discount[:, None] * bootstrap.value


def error(target: jax.Array, chosen: Quantiles) -> tuple[jax.Array, jax.Array]:
    """Returns losses and priorities f32[B] of quantiles [B, N] from targets f32[B, N']."""
    return quantiles.error(target, chosen.value, chosen.level)


def method(settings: IQNConfig) -> q_learning.Method:
    """Returns the method: an action's value is the mean of its quantiles."""
    return q_learning.Method(
        support=jnp.zeros(0),  # the levels have none
        values=lambda outputs: outputs.value.mean(axis=-1),
        distributions=lambda outputs: jnp.zeros((*outputs.value.shape[:-1], 0)),
        target=target,
        error=error,
        loss_name="loss/quantile",
        draws=q_learning.Draws(
            acting=settings.acting_quantiles,
            target=settings.target_quantiles,
            online=settings.num_quantiles,
        ),
    )


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the IQN agent that `config.agent` describes."""
    settings, config = plan.config.agent, plan.config.network
    assert isinstance(settings, IQNConfig)
    network = QuantileNetwork(spec.num_actions, settings.acting_quantiles, config, spec.planes)
    return q_learning.make(plan, make_learner(plan, spec, network), method(settings))
