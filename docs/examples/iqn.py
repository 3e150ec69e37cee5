"""Implicit quantile networks (IQN, Dabney 2018): quantiles of the return at levels that are drawn.

L = Σᵢ meanⱼ |τᵢ - 1{δᵢⱼ < 0}| · huber(δᵢⱼ),  δᵢⱼ = G + γᵐ · z⁻ⱼ(s', a*) - zᵢ(s, a)

with the return's quantile zᵢ at the level τᵢ, and z⁻ⱼ of the target network at other levels. a* has
the best mean of quantiles. A priority is the difference of both means. The paper multiplies the
convolutions' features with the levels' embedding, this network those of the layer above them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl.agents import q_learning
from jaxrl.agents.learner import make_learner
from jaxrl.config.bounds import Count
from jaxrl.config.plan import Plan
from jaxrl.config.schema import NetworkConfig
from jaxrl.config.value_based import QLearningConfig
from jaxrl.networks.layers import Dense
from jaxrl.networks.torsos import Torso
from jaxrl.types import Agent, EnvSpec

NUM_COSINES = 64  # of a level (Dabney 2018, eq. 4)


@dataclass(frozen=True)
class IQNConfig(QLearningConfig):
    """Implicit quantile networks (Dabney 2018)."""

    can_be_noisy: ClassVar[bool] = False

    num_quantiles: Count = 8
    """quantiles that are drawn of an action's return"""


class Quantiles(NamedTuple):
    """Quantiles of returns; [B, A, N] of all actions, [B, N] of one each."""

    value: jax.Array  # f32[B, A, N]
    level: jax.Array  # f32[B, A, N], from 0 to 1


class QuantileNetwork(nn.Module):
    """A torso and a head, whose features are multiplied by an embedding of each level."""

    num_actions: int
    num_quantiles: int
    config: NetworkConfig
    planes: int

    @nn.compact
    def __call__(self, x: Any, keys: Any = None) -> Quantiles:
        """Maps f32[B, 84, 84, 4] to quantiles, at levels that key[B] draws; None spaces them."""
        config, count = self.config, self.num_quantiles
        streams = Torso(config, self.planes, streams=2 if config.dueling else 1)(x)
        level = jnp.tile((jnp.arange(count) + 0.5) / count, (len(streams[0]), 1))
        if keys is not None:
            level = jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)
        cosines = jnp.cos(jnp.pi * jnp.arange(NUM_COSINES) * level[..., None])
        units = streams[0].shape[-1]
        embedding = nn.relu(Dense(units, 2**0.5, config.init)(cosines))  # f32[B, N, units]
        value = Dense(self.num_actions, 1.0, config.init)(streams[0][:, None] * embedding)
        if config.dueling:
            state_value = Dense(1, 1.0, config.init)(streams[1][:, None] * embedding)
            value = state_value + value - value.mean(axis=-1, keepdims=True)
        value = jnp.swapaxes(value, 1, 2)
        return Quantiles(value, jnp.broadcast_to(level[:, None], value.shape))


def target(reward: jax.Array, discount: jax.Array, bootstrap: Quantiles) -> jax.Array:
    """Returns G + γᵐ · z⁻ⱼ(s', a*); f32[B], f32[B], [B, N] -> f32[B, N]."""
    return reward[:, None] + discount[:, None] * bootstrap.value


def error(target: jax.Array, chosen: Quantiles) -> tuple[jax.Array, jax.Array]:
    """Returns the losses and the priorities f32[B] of targets f32[B, N]."""
    delta = target[:, None, :] - chosen.value[:, :, None]  # f32[B, i, j]
    weight = jnp.abs(chosen.level[:, :, None] - (delta < 0))
    losses = jnp.mean(weight * optax.losses.huber_loss(delta), axis=2).sum(axis=1)
    return losses, jnp.abs(target.mean(axis=1) - chosen.value.mean(axis=1))


def method() -> q_learning.Method:
    """Returns IQN's method: an action's value is the mean of its quantiles."""
    return q_learning.Method(
        support=jnp.zeros(0),  # the levels have none
        values=lambda outputs: outputs.value.mean(axis=-1),
        distributions=lambda outputs: jnp.zeros((*outputs.value.shape[:-1], 0)),
        target=target,
        error=error,
        loss_name="loss/quantile",
        draws=True,
    )


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the IQN agent that `config.agent` describes."""
    settings, config = plan.config.agent, plan.config.network
    assert isinstance(settings, IQNConfig)
    network = QuantileNetwork(spec.num_actions, settings.num_quantiles, config, spec.planes)
    return q_learning.make(plan, make_learner(plan, spec, network), method())
