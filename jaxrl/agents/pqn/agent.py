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
import optax

from jaxrl.agents.pqn.settings import PQNConfig
from jaxrl.config.plan import Plan
from jaxrl.networks import heads
from jaxrl.networks.actors import forward, init_actor, next_actor
from jaxrl.ops import distributions, exploration, optimizers, predictions, returns
from jaxrl.ops.gradients import gradient, row_weights
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
    PyTree,
    Trajectory,
)


class Setup(NamedTuple):
    """The static parts of a PQN agent."""

    settings: PQNConfig
    spec: EnvSpec
    network: heads.ActionValueNetwork
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # of the updates done
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


class Learned(NamedTuple):
    """The arrays that a gradient step changes."""

    params: PyTree
    opt_state: PyTree


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state; `train_state` is the optimizer's state."""
    spec = setup.spec
    actor = init_actor(setup.network, key, spec.frame_shape, spec.stack_size)
    return AgentState(actor, setup.optimizer.init(actor.params), memory=())


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    values = forward(setup.network, actor.params, actor.statistics, observation)
    epsilon = setup.epsilon(actor.updates, len(observation))
    action = exploration.epsilon_greedy(key, values, epsilon)
    return Choice(action, Extras(values.max(axis=-1)))


def predict(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy of evaluation and the best values of observations u8[B, 84, 84, 4]."""
    values = forward(setup.network, actor.params, actor.statistics, observation)
    return predictions.from_action_values(values, setup.settings.evaluation_epsilon)


def make_batch(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets [T, E]."""
    newest = trajectory.observation[-1]
    bootstrap = forward(setup.network, actor.params, actor.statistics, newest).max(axis=-1)
    value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
    target = returns.lambda_return(
        trajectory.reward,
        trajectory.discount,
        trajectory.valid,
        value,
        setup.settings.gamma,
        setup.settings.q_lambda,
    )
    weight = trajectory.valid.astype(jnp.float32)
    return Batch(trajectory.observation[:-1], trajectory.action, target, weight)


def loss(values: jax.Array, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of half squared errors of values f32[B, A], and sums for the log."""
    chosen = distributions.select(values, batch.action)
    total = jnp.sum(batch.weight * 0.5 * jnp.square(batch.target - chosen))
    return total, {"loss/squared_error": total, "value/q": jnp.sum(batch.weight * chosen)}


def objective(
    setup: Setup, statistics: PyTree, params: PyTree, batch: Batch
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of the parameters on a minibatch, and sums for the log."""
    return loss(forward(setup.network, params, statistics, batch.observation), batch)


def gradient_step(
    setup: Setup, actor: ActorState, rollout: Batch, learned: Learned, steps: jax.Array
) -> tuple[Learned, dict[str, jax.Array]]:
    """Takes a gradient step on the minibatch of steps i32[T / M, E] of the rollout [T, E]."""
    batch = minibatches.take(rollout, steps)
    gradients, metrics = gradient(
        partial(objective, setup, actor.statistics),
        learned.params,
        batch,
        setup.settings.micro_batch,
    )
    rate = setup.learning_rate(actor.updates)
    learned = Learned(
        *optimizers.apply(setup.optimizer, gradients, learned.opt_state, learned.params, rate)
    )
    return learned, metrics | {"loss/gradient_norm": optax.tree.norm(gradients)}


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes the gradient steps of all epochs on a trajectory [T, E]."""
    actor = state.actor
    rollout = make_batch(setup, actor, trajectory)
    order = minibatches.order(key, setup.settings, setup.spec.num_envs)
    learned, metrics = jax.lax.scan(
        partial(gradient_step, setup, actor, rollout),
        Learned(actor.params, state.train_state),
        order,
    )
    target = jnp.sum(row_weights(trajectory.valid) * rollout.target)
    metrics = jax.tree.map(jnp.mean, metrics) | {
        "loss/learning_rate": setup.learning_rate(actor.updates),
        "policy/epsilon": setup.epsilon(actor.updates, setup.spec.num_envs).mean(),
        "value/target": mean_over_devices(target),
    }
    new_actor = next_actor(setup.network, actor, learned.params, trajectory)
    return AgentState(new_actor, learned.opt_state, state.memory), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the PQN agent that `config.agent` describes."""
    config = plan.config
    settings = config.agent
    assert isinstance(settings, PQNConfig)
    setup = Setup(
        settings,
        spec,
        heads.ActionValueNetwork(spec.num_actions, 1, config.network, spec.planes),
        optimizers.make_optimizer(config.optimizer),
        optimizers.learning_rate(plan),
        exploration.schedule(settings, plan.steps_per_update),
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        predict=partial(predict, setup),
        rollout_length=settings.rollout_length,
    )
