"""REINFORCE with a learned baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

L = mean over finished rows of
    -log π(aₜ|sₜ) · (Gₜ - v(sₜ)) + c_v · (Gₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the discounted sum Gₜ of all rewards to the end of the game (the baseline stands for what comes
after a time limit), and no gradient through Gₜ or through the advantage. Rows whose game goes on
after the rollout have no Gₜ yet, and are left out.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config.schema import Config
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import PolicyValue, PolicyValueNetwork
from jaxrl.networks.running_statistics import init_statistics, normalize, update_statistics
from jaxrl.ops import distributions, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.types import ActorState, Agent, AgentState, EnvSpec, Metrics, PyTree, Trajectory


@dataclass(frozen=True)
class ReinforceConfig:
    """REINFORCE with a learned baseline (Williams 1992)."""

    rollout_length: int = 28
    """agent steps of every environment between two updates"""
    gamma: float = 0.99
    """discount per agent step"""
    entropy_coef: float = 0.01
    """weight of the entropy bonus"""
    value_coef: float = 0.5
    """weight of the mean squared error of the baseline"""
    micro_batch: int = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""


class Rows(NamedTuple):
    """The rows of an update, environments and time in one axis B."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], G
    advantage: jax.Array  # f32[B], G - v
    weight: jax.Array  # f32[B], sums to the mean over all devices' finished rows


def finished(trajectory: Trajectory) -> jax.Array:
    """b[T, E]: the steps whose game ends within the rollout."""
    ends = (trajectory.discount == 0) | ~trajectory.valid  # a reset row follows a time limit too
    return trajectory.valid & (jax.lax.cumsum(ends.astype(jnp.int32), reverse=True) > 0)


def loss(
    prediction: PolicyValue, rows: Rows, config: ReinforceConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the rows' losses, and its parts for the log."""
    log_policy = distributions.log_probabilities(prediction.logits)
    log_prob = distributions.select(log_policy, rows.action)
    policy_loss = -jnp.sum(rows.weight * log_prob * rows.advantage)
    value_loss = jnp.sum(rows.weight * jnp.square(rows.target - prediction.value))
    entropy = jnp.sum(rows.weight * distributions.entropy(prediction.logits))
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": entropy}


def make(config: Config, spec: EnvSpec) -> Agent:
    """REINFORCE as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, ReinforceConfig)
    network = PolicyValueNetwork(spec.num_actions, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> PolicyValue:
        return network.apply({"params": params}, normalize(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        params = init_params(network, key, spec.frame_shape)
        statistics = init_statistics(config.network, spec.frame_shape)
        actor = ActorState(params, statistics, jnp.int32(0))
        return AgentState(actor, optimizer.init(params), memory=())

    def act(
        actor: ActorState, observation: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        prediction = predict(actor.params, actor.statistics, observation)
        return distributions.sample(key, prediction.logits), prediction.value

    def as_rows(trajectory: Trajectory) -> Rows:
        value = trajectory.extras  # what `act` returned beside the action
        # No finished row reads the value after the rollout, so that it may be anything.
        values = jnp.concatenate([value, jnp.zeros_like(value[:1])])
        over_envs = jax.vmap(returns.n_step_return, in_axes=(1, 1, 1, 1, None), out_axes=1)
        target = over_envs(
            trajectory.reward, trajectory.discount, trajectory.valid, values, settings.gamma
        )
        rows = Rows(
            observation=trajectory.observation[:-1],
            action=trajectory.action,
            target=target,
            advantage=target - value,
            weight=row_weights(finished(trajectory)),
        )
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor = state.actor

        def objective(params: PyTree, part: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, part.observation), part, settings)

        rows = as_rows(trajectory)
        gradients, metrics = gradient(objective, actor.params, rows, settings.micro_batch)
        rate = schedule(actor.updates)
        params, moments = optimizers.apply(
            optimizer, gradients, state.optimizer, actor.params, rate
        )
        newest_frames = trajectory.observation[:-1, ..., -1]
        statistics = update_statistics(actor.statistics, newest_frames)
        new_actor = ActorState(params, statistics, actor.updates + 1)
        return AgentState(new_actor, moments, state.memory), metrics | {"loss/learning_rate": rate}

    return Agent(init, act, update, settings.rollout_length)
