"""REINFORCE with a learned baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

L = mean over finished rows of
    -log π(aₜ|sₜ) · (Gₜ - v(sₜ)) + c_v · (Gₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the discounted sum Gₜ of all rewards to the end of the game (after a time limit the baseline
stands for the rest), and no gradient through Gₜ or through the advantage. Rows whose game goes on
after the rollout have no Gₜ yet, and are left out.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, first_state, predict_policy
from jaxrl.agents.learner import Learner, network_objective, policy_learner, update_once
from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.config.bounds import Count, Weight
from jaxrl.config.plan import Plan
from jaxrl.networks.heads import PolicyValue
from jaxrl.ops import batches, distributions, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.types import ActorState, Agent, AgentState, EnvSpec, Metrics, Trajectory


@dataclass(frozen=True)
class ReinforceConfig(AlgorithmConfig):
    """REINFORCE with a learned baseline (Williams 1992)."""

    rollout_length: Count = 28
    """agent steps of every environment between two updates"""
    entropy_coef: Weight = 0.01
    """weight of the entropy bonus"""
    value_coef: Weight = 0.5
    """weight of the mean squared error of the baseline"""


class Setup(NamedTuple):
    """The static parts of a REINFORCE agent."""

    settings: ReinforceConfig
    learner: Learner  # network, optimizer, learning rate


class Batch(NamedTuple):
    """The transitions of an update, B = T · E."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], G
    advantage: jax.Array  # f32[B], G - v
    weight: jax.Array  # f32[B], sums to the mean over all devices' finished rows


def act(
    setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], values f32[E] as extras."""
    outputs = actor_outputs(setup.learner, actor, observation)
    return distributions.sample(key, outputs.logits), outputs.value


def finished(trajectory: Trajectory) -> jax.Array:
    """Returns b[T, E], the steps whose game ends within the rollout."""
    ends = (trajectory.discount == 0) | ~trajectory.valid  # a reset row follows a time limit too
    return trajectory.valid & (jax.lax.cumsum(ends.astype(jnp.int32), reverse=True) > 0)


def make_batch(setup: Setup, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets, as one batch."""
    value = trajectory.extras  # second result of `act`
    # No finished row reads the value after the rollout: it may be anything.
    values = jnp.concatenate([value, jnp.zeros_like(value[:1])])
    rows = returns.rows(trajectory)
    target = returns.n_step_return(**rows, value=values, gamma=setup.settings.gamma)
    batch = Batch(
        observation=trajectory.observation[:-1],
        action=trajectory.action,
        target=target,
        advantage=target - value,
        weight=row_weights(finished(trajectory)),
    )
    return batches.flatten(batch)


def loss(
    outputs: PolicyValue, batch: Batch, config: ReinforceConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B], and its parts for the log."""
    log_policy = distributions.log_probabilities(outputs.logits)
    log_prob = distributions.select(log_policy, batch.action)
    policy_loss = -jnp.sum(batch.weight * log_prob * batch.advantage)
    value_loss = jnp.sum(batch.weight * jnp.square(batch.target - outputs.value))
    entropy = jnp.sum(batch.weight * distributions.entropy(outputs.logits))
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": entropy}


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes one gradient step on a trajectory [T, E]; `key` is not used."""
    batch = make_batch(setup, trajectory)
    objective = network_objective(
        setup.learner, state.actor.statistics, partial(loss, config=setup.settings)
    )
    return update_once(setup.learner, state, trajectory, objective, batch)


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the REINFORCE agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, ReinforceConfig)
    setup = Setup(settings, policy_learner(plan, spec))
    return agent_of(setup, first_state, act, update, predict_policy)
