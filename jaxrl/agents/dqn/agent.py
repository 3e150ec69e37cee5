"""Deep Q-network (Mnih 2015), with double Q-learning, dueling streams and priorities as options.

The loss of a transition is the Huber loss of the temporal difference,

L = ½δ² for |δ| ≤ 1, else |δ| - ½,  δ = G + γᵐ · q⁻(s', a*) - q(s, a)

whose gradient is δ clipped to ±1, as the paper has it. Its priority is |δ|.
"""

import jax
import jax.numpy as jnp
import optax

from jaxrl.agents import q_learning
from jaxrl.agents.learner import value_learner
from jaxrl.config.plan import Plan
from jaxrl.types import Agent, EnvSpec


def target(reward: jax.Array, discount: jax.Array, bootstrap: jax.Array) -> jax.Array:
    """Returns G + γᵐ · q⁻(s', a*); f32[B] all."""
    return reward + discount * bootstrap


def error(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the Huber loss of the temporal difference, and its size; f32[B] all."""
    return optax.losses.huber_loss(chosen, target), jnp.abs(target - chosen)


def method() -> q_learning.Method:
    """Returns DQN's method: the outputs of the network are the action values."""
    return q_learning.Method(
        support=jnp.zeros(0),
        values=lambda outputs: outputs,
        distributions=lambda outputs: jnp.zeros((*outputs.shape, 0)),
        target=target,
        error=error,
        loss_name="loss/huber",
    )


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the DQN agent that `config.agent` describes."""
    return q_learning.make(plan, value_learner(plan, spec), method())
