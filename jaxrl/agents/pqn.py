"""Parallelised Q-network (PQN, Gallici 2025): Q-learning without a replay or a target network.

Layer normalization keeps it stable (`network.layer_norm`), many environments decorrelate it. The
loss of a minibatch is

L = mean over valid rows of ½(Rₜ - q(sₜ, aₜ))²,  Rₜ = rₜ + γ · ((1 - λ) · vₜ₊₁ + λ · Rₜ₊₁)

with vₜ = maxₐ q(sₜ, a) by the network that played, R_T = v_T, and no gradient through Rₜ.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.algorithms import PQNConfig
from jaxrl.config.schema import Config
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor, next_actor
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import distributions, exploration, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.replay import minibatches
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import ActorState, Agent, AgentState, EnvSpec, Metrics, PyTree, Trajectory


class Extras(NamedTuple):
    """What `act` knows beside the action."""

    value: jax.Array  # f32[E], of the best action


class Rows(NamedTuple):
    """Steps to learn from; [T, E] of a rollout, or [B] of a minibatch."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B]
    weight: jax.Array  # f32[B]; of a minibatch, sums to the mean over all devices' valid rows


def loss(values: jax.Array, rows: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of half the squared errors of values f32[B, A], and sums for the log."""
    chosen = distributions.select(values, rows.action)
    total = jnp.sum(rows.weight * 0.5 * jnp.square(rows.target - chosen))
    return total, {"loss/squared_error": total, "value/q": jnp.sum(rows.weight * chosen)}


def make(config: Config, spec: EnvSpec) -> Agent:
    """PQN as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, PQNConfig)
    network = heads.ActionValueNetwork(spec.num_actions, 1, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    epsilon = exploration.schedule(config)

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> jax.Array:
        return network.apply({"params": params}, normalize(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        return AgentState(actor, optimizer.init(actor.params), memory=())

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Extras]:
        values = predict(actor.params, actor.statistics, observation)
        action = exploration.epsilon_greedy(key, values, epsilon(actor.updates, len(observation)))
        return action, Extras(values.max(axis=-1))

    def as_rows(actor: ActorState, trajectory: Trajectory) -> Rows:
        last = predict(actor.params, actor.statistics, trajectory.observation[-1]).max(axis=-1)
        value = jnp.concatenate([trajectory.extras.value, last[None]])
        over_envs = jax.vmap(returns.lambda_return, in_axes=(1, 1, 1, 1, None, None), out_axes=1)
        target = over_envs(
            trajectory.reward,
            trajectory.discount,
            trajectory.valid,
            value,
            settings.gamma,
            settings.q_lambda,
        )
        weight = trajectory.valid.astype(jnp.float32)
        return Rows(trajectory.observation[:-1], trajectory.action, target, weight)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor = state.actor
        rollout, rate = as_rows(actor, trajectory), schedule(actor.updates)

        def objective(params: PyTree, rows: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, rows.observation), rows)

        def learn(
            carry: tuple[PyTree, PyTree], steps: jax.Array
        ) -> tuple[tuple[PyTree, PyTree], dict[str, jax.Array]]:
            params, moments = carry
            rows = minibatches.take(rollout, steps)
            gradients, metrics = gradient(objective, params, rows, settings.micro_batch)
            params, moments = optimizers.apply(optimizer, gradients, moments, params, rate)
            return (params, moments), metrics | {"loss/gradient_norm": optax.tree.norm(gradients)}

        order = minibatches.order(key, settings, spec.num_envs)
        (params, moments), metrics = jax.lax.scan(learn, (actor.params, state.optimizer), order)
        target = jnp.sum(row_weights(trajectory.valid) * rollout.target)
        metrics = jax.tree.map(jnp.mean, metrics) | {
            "loss/learning_rate": rate,
            "policy/epsilon": epsilon(actor.updates, spec.num_envs).mean(),
            "value/target": mean_over_devices(target),
        }
        new_actor = next_actor(actor, params, trajectory)
        return AgentState(new_actor, moments, state.memory), metrics

    return Agent(init, act, update, settings.rollout_length)
