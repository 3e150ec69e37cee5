"""Synchronous advantage actor-critic.

A3C's loss (Mnih 2016, section 4) on the trajectories of all environments at once, as PAAC
(Clemente 2017) does it: one copy of the parameters, one gradient per update,

L = mean over valid rows of  -log π(aₜ|sₜ) · (Rₜ - v(sₜ)) + c_v · (Rₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the n-step return Rₜ and no gradient through Rₜ or through the advantage.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.algorithms import A2CConfig
from jaxrl.config.schema import Config
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor, next_actor
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import distributions, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import ActorState, Agent, AgentState, EnvSpec, Metrics, PyTree, Trajectory


class Extras(NamedTuple):
    """What `act` knows beside the action."""

    value: jax.Array  # f32[E]


class Rows(NamedTuple):
    """The rows of an update, environments and time in one axis B."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], n-step return
    advantage: jax.Array  # f32[B]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def loss(
    prediction: heads.PolicyValue, rows: Rows, config: A2CConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the rows' losses, and its parts for the log."""
    log_policy = distributions.log_probabilities(prediction.logits, config.log_epsilon)
    log_prob = distributions.select(log_policy, rows.action)
    entropy = distributions.entropy(prediction.logits, config.log_epsilon)
    policy_loss = -jnp.sum(rows.weight * log_prob * rows.advantage)
    value_loss = jnp.sum(rows.weight * jnp.square(rows.target - prediction.value))
    mean_entropy = jnp.sum(rows.weight * entropy)
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * mean_entropy
    parts = {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": mean_entropy}
    return config.loss_scale * total, parts


def make(config: Config, spec: EnvSpec) -> Agent:
    """A2C as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, A2CConfig)
    network = heads.PolicyValueNetwork(spec.num_actions, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> heads.PolicyValue:
        return network.apply({"params": params}, normalize(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        return AgentState(actor, optimizer.init(actor.params), memory=())

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Extras]:
        prediction = predict(actor.params, actor.statistics, observation)
        return distributions.sample(key, prediction.logits), Extras(prediction.value)

    def as_rows(actor: ActorState, trajectory: Trajectory) -> Rows:
        # The values of the rows are those that acting computed; only the bootstrap is new.
        bootstrap = predict(actor.params, actor.statistics, trajectory.observation[-1]).value
        value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
        over_envs = jax.vmap(returns.n_step_return, in_axes=(1, 1, 1, 1, None), out_axes=1)
        target = over_envs(
            trajectory.reward, trajectory.discount, trajectory.valid, value, settings.gamma
        )
        rows = Rows(
            trajectory.observation[:-1],
            trajectory.action,
            target,
            target - value[:-1],
            row_weights(trajectory.valid),
        )
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor = state.actor
        rows = as_rows(actor, trajectory)

        def objective(params: PyTree, part: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, part.observation), part, settings)

        gradients, metrics = gradient(objective, actor.params, rows, settings.micro_batch)
        rate = schedule(actor.updates)
        params, moments = optimizers.apply(
            optimizer, gradients, state.optimizer, actor.params, rate
        )
        new_actor = next_actor(actor, params, trajectory)
        metrics |= {
            "loss/gradient_norm": optax.tree.norm(gradients),
            "loss/learning_rate": rate,
            "value/target": mean_over_devices(jnp.sum(rows.weight * rows.target)),
        }
        return AgentState(new_actor, moments, state.memory), metrics

    return Agent(init, act, update, settings.rollout_length)
