"""Parallelized Q-network (PQN, Gallici 2025): Q-learning without a replay or a target network.

Layer normalization keeps it stable (`network.layer_norm`), many environments decorrelate it. The
loss of a minibatch is

L = mean over valid rows of ½(Rₜ - q(sₜ, aₜ))²,  Rₜ = rₜ + γ · ((1 - λ) · vₜ₊₁ + λ · Rₜ₊₁)

with vₜ = maxₐ q(sₜ, a) by the network that played, R_T = v_T, and no gradient through Rₜ. By
`agent.value_loss` values are learned as means of distributions instead (Farebrother 2024),

L = mean over valid rows of -Σᵢ pᵢ(Rₜ) log softmax(l(sₜ, aₜ))ᵢ,  q(s, a) = Σᵢ zᵢ softmax(l(s, a))ᵢ

with the histogram p(Rₜ) on the support z (`ops.histograms`) and the same Rₜ.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, first_state
from jaxrl.agents.learner import Learned, Learner, descend, network_objective, value_learner
from jaxrl.agents.pqn.settings import PQNConfig
from jaxrl.config.plan import Plan
from jaxrl.networks.actors import next_actor
from jaxrl.ops import distributions, exploration, histograms, predictions, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.replay import minibatches
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    ActorState,
    Agent,
    AgentState,
    Choice,
    EnvSpec,
    Metrics,
    Prediction,
    Trajectory,
)


class Head(NamedTuple):
    """The meaning of the network's outputs: f32[..., A], or for N > 0 logits f32[..., A, N]."""

    support: jax.Array  # f32[N], returns; N = 0 of plain values
    values: Callable[[jax.Array], jax.Array]  # outputs f32[..., A(, N)] -> f32[..., A]
    distributions: Callable[[jax.Array], jax.Array]  # outputs f32[B, A(, N)] -> f32[B, A, N]
    # (targets f32[B], outputs for the action taken f32[B(, N)]) -> losses f32[B]
    error: Callable[[jax.Array, jax.Array], jax.Array]
    loss_name: str  # in the log


class Setup(NamedTuple):
    """The static parts of a PQN agent."""

    settings: PQNConfig
    learner: Learner
    head: Head
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


def plain_values() -> Head:
    """Returns the head whose outputs are action values, with half the squared error."""
    return Head(
        support=jnp.zeros(0),
        values=lambda outputs: outputs,
        distributions=lambda outputs: jnp.zeros((*outputs.shape, 0)),
        error=lambda target, chosen: 0.5 * jnp.square(target - chosen),
        loss_name="loss/squared_error",
    )


def categorical(settings: PQNConfig) -> Head:
    """Returns the head of distributions, with the cross-entropy from histograms of the targets."""
    if settings.value_loss == "hl_gauss":
        edges = distributions.support(settings.v_min, settings.v_max, settings.num_atoms + 1)
        width = (settings.v_max - settings.v_min) / settings.num_atoms
        support = histograms.centers(edges)
        histogram = partial(
            histograms.hl_gauss, edges=edges, deviation=settings.sigma_ratio * width
        )
    else:
        support = distributions.support(settings.v_min, settings.v_max, settings.num_atoms)
        histogram = partial(histograms.two_hot, support=support)
    return Head(
        support=support,
        values=partial(histograms.mean, support=support),
        distributions=jax.nn.softmax,
        error=lambda target, chosen: histograms.cross_entropy(histogram(target), chosen),
        loss_name="loss/cross_entropy",
    )


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    values = setup.head.values(actor_outputs(setup.learner, actor, observation))
    epsilon = setup.epsilon(actor.updates, len(observation))
    action = exploration.epsilon_greedy(key, values, epsilon)
    return Choice(action, Extras(values.max(axis=-1)))


def predict(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy of evaluation and the returns of observations u8[B, 84, 84, 4]."""
    head, outputs = setup.head, actor_outputs(setup.learner, actor, observation)
    prediction = predictions.from_action_values(
        head.values(outputs), setup.settings.evaluation_epsilon
    )
    return prediction._replace(distributions=head.distributions(outputs), support=head.support)


def make_batch(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets [T, E]."""
    newest = actor_outputs(setup.learner, actor, trajectory.observation[-1])
    bootstrap = setup.head.values(newest).max(axis=-1)
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


def loss(head: Head, outputs: jax.Array, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs f32[B, A(, N)], and sums for the log."""
    chosen = distributions.select(outputs, batch.action)
    total = jnp.sum(batch.weight * head.error(batch.target, chosen))
    return total, {head.loss_name: total, "value/q": jnp.sum(batch.weight * head.values(chosen))}


def gradient_step(
    setup: Setup, actor: ActorState, rollout: Batch, learned: Learned, steps: jax.Array
) -> tuple[Learned, dict[str, jax.Array]]:
    """Takes a gradient step on the minibatch of steps i32[T / M, E] of the rollout [T, E]."""
    batch = minibatches.take(rollout, steps)
    rate = setup.learner.learning_rate(actor.updates)
    objective = network_objective(setup.learner, actor.statistics, partial(loss, setup.head))
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
    squared = settings.value_loss == "squared"
    learner = value_learner(plan, spec, 1 if squared else settings.num_atoms)
    head = plain_values() if squared else categorical(settings)
    epsilon = exploration.schedule(settings, plan.steps_per_update)
    setup = Setup(settings, learner, head, epsilon)
    return agent_of(setup, first_state, act, update, predict)
