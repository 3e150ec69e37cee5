"""Synchronous advantage actor-critic.

A3C's loss (Mnih 2016, section 4) on the trajectories of all environments at once, as PAAC
(Clemente 2017) does it: one copy of the parameters, one gradient per update,

L = mean over valid rows of  -log π(aₜ|sₜ) · (Rₜ - v(sₜ)) + c_v · (Rₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the n-step return Rₜ and no gradient through Rₜ or through the advantage.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.agents.functions import actor_outputs, agent_of, first_state, predict_policy
from jaxrl.agents.learner import Learner, network_objective, policy_learner, update_once
from jaxrl.config.plan import Plan
from jaxrl.networks import heads
from jaxrl.ops import batches, distributions, moments, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.types import ActorState, Agent, AgentState, Choice, EnvSpec, Metrics, PyTree, Trajectory


class Setup(NamedTuple):
    """The static parts of an A2C agent."""

    settings: A2CConfig
    learner: Learner


class Extras(NamedTuple):
    """Values that `act` stores beside the actions."""

    value: jax.Array  # f32[E]


class Batch(NamedTuple):
    """The transitions of an update, B = T · E; [E, T] if the network has a core."""

    observation: PyTree  # u8[B, 84, 84, 4], or a RecurrentObservation
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], n-step return
    advantage: jax.Array  # f32[B]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    outputs = actor_outputs(setup.learner, actor, observation)
    action = distributions.sample(key, outputs.logits)
    return Choice(action, Extras(outputs.value), outputs.core)


def make_batch(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets, as one batch.

    With a core an item of the batch is the sequence of an environment, which is unrolled from the
    state that the rollout began with.
    """
    # Acting computed all values but the bootstrap.
    newest = batches.at(trajectory.observation, -1)
    bootstrap = actor_outputs(setup.learner, actor, newest).value
    value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
    rows = returns.rows(trajectory)
    target = returns.n_step_return(**rows, value=value, gamma=setup.settings.gamma)
    batch = Batch(
        batches.at(trajectory.observation, slice(-1)),
        trajectory.action,
        target,
        target - value[:-1],
        row_weights(trajectory.valid),
    )
    return batches.items(batch, setup.learner.network.config.remembers)


def loss(
    outputs: heads.PolicyValue, batch: Batch, config: A2CConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B], and its parts for the log."""
    log_policy = distributions.log_probabilities(outputs.logits, config.log_epsilon)
    log_prob = distributions.select(log_policy, batch.action)
    entropy = distributions.entropy(outputs.logits, config.log_epsilon)
    policy_loss = -jnp.sum(batch.weight * log_prob * batch.advantage)
    mean_entropy = jnp.sum(batch.weight * entropy)
    value_sums = moments.moments(batch.target, outputs.value, batch.weight)
    value_loss = value_sums["loss/value"]
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * mean_entropy
    parts = {"loss/policy": policy_loss, "policy/entropy": mean_entropy}
    return config.loss_scale * total, parts | value_sums


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes one gradient step on a trajectory [T, E]; `key` is not used."""
    actor, learner = state.actor, setup.learner
    batch = make_batch(setup, actor, trajectory)
    objective = network_objective(learner, actor.statistics, partial(loss, config=setup.settings))
    new, metrics = update_once(learner, state, trajectory, objective, batch)
    return new, moments.explained_variance(metrics)


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the A2C agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, A2CConfig)
    setup = Setup(settings, policy_learner(plan, spec))
    return agent_of(setup, first_state, act, update, predict_policy)
