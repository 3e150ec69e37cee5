"""One-step Q-learning, one-step Sarsa, n-step Q-learning, without a replay (Mnih 2016, section 4).

The paper's asynchronous actors are environments here that step together, as PAAC has it (Clemente
2017): one copy of the parameters, one gradient per rollout,

L = mean over valid rows of (Rₜ - q(sₜ, aₜ))²

    one_step   Rₜ = rₜ + γ · maxₐ q⁻(sₜ₊₁, a)
    sarsa      Rₜ = rₜ + γ · q⁻(sₜ₊₁, aₜ₊₁)
    n_step     Rₜ = rₜ + γ · Rₜ₊₁,  R_T = maxₐ q⁻(s_T, a)

with the target network q⁻. Sarsa's a_T is drawn anew from the policy that played: the action that
follows is chosen after the update.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.agents.q_learning import Learner, copy_target
from jaxrl.config.algorithms import NStepQConfig
from jaxrl.config.schema import Config
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor, next_actor
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import distributions, exploration, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import AXIS, ActorState, Agent, AgentState, EnvSpec, Metrics, PyTree, Trajectory


class Rows(NamedTuple):
    """The rows of an update, environments and time in one axis B."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def targets(
    config: NStepQConfig, values: jax.Array, action: jax.Array, trajectory: Trajectory
) -> jax.Array:
    """What the values of the actions taken are drawn to: f32[T, E].

    Args:
      config: with `target` and `gamma`.
      values: f32[T+1, E, A], of the target network.
      action: i32[T+1, E], those taken, and one more for the bootstrap.
      trajectory: rewards, discounts and what is valid; [T, E].
    """
    sarsa = config.target == "sarsa"
    value = distributions.select(values, action) if sarsa else values.max(axis=-1)
    lambda_ = 1.0 if config.target == "n_step" else 0.0
    over_envs = jax.vmap(returns.lambda_return, in_axes=(1, 1, 1, 1, None, None), out_axes=1)
    return over_envs(
        trajectory.reward, trajectory.discount, trajectory.valid, value, config.gamma, lambda_
    )


def loss(values: jax.Array, rows: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the squared errors of values f32[B, A], and sums for the log."""
    chosen = distributions.select(values, rows.action)
    total = jnp.sum(rows.weight * jnp.square(rows.target - chosen))
    return total, {"loss/squared_error": total, "value/q": jnp.sum(rows.weight * chosen)}


def make(config: Config, spec: EnvSpec) -> Agent:
    """n-step Q-learning, or what `config.agent` makes of it."""
    settings = config.agent
    assert isinstance(settings, NStepQConfig)
    network = heads.ActionValueNetwork(spec.num_actions, 1, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    epsilon = exploration.schedule(config)
    target_updates = max(1, round(settings.target_update_interval / config.steps_per_update()))

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> jax.Array:
        return network.apply({"params": params}, normalize(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        return AgentState(actor, Learner(optimizer.init(actor.params), actor.params), memory=())

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple]:
        values = predict(actor.params, actor.statistics, observation)
        action = exploration.epsilon_greedy(key, values, epsilon(actor.updates, len(observation)))
        return action, ()

    def as_rows(
        key: jax.Array, actor: ActorState, learner: Learner, trajectory: Trajectory
    ) -> Rows:
        length, num_envs = trajectory.action.shape
        flat = trajectory.observation.reshape(-1, *trajectory.observation.shape[2:])
        values = predict(learner.target, actor.statistics, flat).reshape(length + 1, num_envs, -1)
        numbers = jax.lax.axis_index(AXIS) * num_envs + jnp.arange(num_envs)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        last, _ = act(actor, trajectory.observation[-1], keys)
        action = jnp.concatenate([trajectory.action, last[None]])
        rows = Rows(
            trajectory.observation[:-1],
            trajectory.action,
            targets(settings, values, action, trajectory),
            row_weights(trajectory.valid),
        )
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor, learner = state.actor, copy_target(state, target_updates).optimizer
        rows = as_rows(key, actor, learner, trajectory)

        def objective(params: PyTree, part: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, part.observation), part)

        gradients, metrics = gradient(objective, actor.params, rows, settings.micro_batch)
        rate = schedule(actor.updates)
        params, moments = optimizers.apply(
            optimizer, gradients, learner.moments, actor.params, rate
        )
        metrics |= {
            "loss/gradient_norm": optax.tree.norm(gradients),
            "loss/learning_rate": rate,
            "policy/epsilon": epsilon(actor.updates, spec.num_envs).mean(),
            "value/target": mean_over_devices(jnp.sum(rows.weight * rows.target)),
        }
        new_actor = next_actor(actor, params, trajectory)
        return AgentState(new_actor, Learner(moments, learner.target), state.memory), metrics

    skip = partial(copy_target, every=target_updates)
    return Agent(init, act, update, settings.rollout_length, skip=skip)
