"""Parallelized Q-network (PQN, Gallici 2025): Q-learning without a replay or a target network.

Layer normalization keeps it stable (`network.layer_norm`), many environments decorrelate it. The
loss of a minibatch is

L = mean over valid rows of ½(Rₜ - q(sₜ, aₜ))²,  Rₜ = rₜ + γ · ((1 - λ) · vₜ₊₁ + λ · Rₜ₊₁)

with vₜ = maxₐ q(sₜ, a) by the network that played, R_T = v_T, and no gradient through Rₜ.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, first_state, predict_values
from jaxrl.agents.learner import Learned, Learner, descend, network_objective, value_learner
from jaxrl.agents.pqn.settings import PQNConfig
from jaxrl.config.plan import Plan
from jaxrl.networks.actors import next_actor
from jaxrl.ops import distributions, exploration, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.replay import minibatches
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import ActorState, Agent, AgentState, Choice, EnvSpec, Metrics, Trajectory


class Setup(NamedTuple):
    """The static parts of a PQN agent."""

    settings: PQNConfig
    learner: Learner
    epsilon: Callable[[jax.Array, int], jax.Array]  # (updates done, E) -> f32[E]


class Extras(NamedTuple):
    """Values that `act` stores beside the actions."""

    value: jax.Array  # f32[E], of the best action


class Batch(NamedTuple):
    """Transitions with their targets; [T, E] of a rollout, [B] of a minibatch."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B]
    weight: jax.Array  # f32[B]; of a minibatch, sums to the mean over all devices' valid rows


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    values = actor_outputs(setup.learner, actor, observation)
    epsilon = setup.epsilon(actor.updates, len(observation))
    action = exploration.epsilon_greedy(key, values, epsilon)
    return Choice(action, Extras(values.max(axis=-1)))


def make_batch(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets [T, E]."""
    newest = trajectory.observation[-1]
    bootstrap = actor_outputs(setup.learner, actor, newest).max(axis=-1)
    value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
    target = returns.lambda_return(
        reward_t=trajectory.reward,
        discount_t=trajectory.discount,
        valid_t=trajectory.valid,
        value=value,
        gamma=setup.settings.gamma,
        lambda_=setup.settings.q_lambda,
    )
    weight = trajectory.valid.astype(jnp.float32)
    return Batch(trajectory.observation[:-1], trajectory.action, target, weight)


def loss(values: jax.Array, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of half squared errors of values f32[B, A], and sums for the log."""
    chosen = distributions.select(values, batch.action)
    total = jnp.sum(batch.weight * 0.5 * jnp.square(batch.target - chosen))
    return total, {"loss/squared_error": total, "value/q": jnp.sum(batch.weight * chosen)}


def gradient_step(
    setup: Setup, actor: ActorState, rollout: Batch, learned: Learned, steps: jax.Array
) -> tuple[Learned, dict[str, jax.Array]]:
    """Takes a gradient step on the minibatch of steps i32[T / M, E] of the rollout [T, E]."""
    batch = minibatches.take(rollout, steps)
    rate = setup.learner.learning_rate(actor.updates)
    objective = network_objective(setup.learner, actor.statistics, loss)
    return descend(setup.learner, objective, learned, batch, rate)


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes the gradient steps of all epochs on a trajectory [T, E]."""
    actor, learner = state.actor, setup.learner
    rollout = make_batch(setup, actor, trajectory)
    order = minibatches.order(key, setup.settings, learner.spec.num_envs)
    learned, metrics = jax.lax.scan(
        partial(gradient_step, setup, actor, rollout),
        Learned(actor.params, state.train_state),
        order,
    )
    target = jnp.sum(row_weights(trajectory.valid) * rollout.target)
    metrics = jax.tree.map(jnp.mean, metrics) | {
        "loss/learning_rate": learner.learning_rate(actor.updates),
        "policy/epsilon": setup.epsilon(actor.updates, learner.spec.num_envs).mean(),
        "value/target": mean_over_devices(target),
    }
    new_actor = next_actor(learner.network, actor, learned.params, trajectory)
    return AgentState(new_actor, learned.opt_state, state.memory), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the PQN agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, PQNConfig)
    epsilon = exploration.schedule(settings, plan.steps_per_update)
    setup = Setup(settings, value_learner(plan, spec), epsilon)
    return agent_of(setup, first_state, act, update, predict_values)
