"""Proximal policy optimization.

The clipped surrogate (Schulman 2017, eq. 7 and 9) with generalized advantages, over several epochs
of minibatches. With the ratio rₜ = π(aₜ|sₜ) / π_old(aₜ|sₜ) and the return Rₜ = Aₜ + v_old(sₜ),

L = mean over valid rows of
    -min(rₜ·Aₜ, clip(rₜ, 1-ε, 1+ε)·Aₜ) + c_v · ½(Rₜ - v(sₜ))² - c_e · H(π(·|sₜ))
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.algorithms import PPOConfig
from jaxrl.config.schema import ADAPTIVE_RATES, Config
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor
from jaxrl.networks.running_statistics import (
    RunningStatistics,
    merge_statistics,
    new_statistics,
    normalize,
    update_statistics,
)
from jaxrl.ops import distributions, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.replay import minibatches
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import AXIS, ActorState, Agent, AgentState, EnvSpec, Metrics, PyTree, Trajectory

ADAPTIVE_FACTOR = 1.5  # rl_games' rule, as its bounds in jaxrl.config


class Extras(NamedTuple):
    """What `act` knows beside the action."""

    value: jax.Array  # f32[E], in units of the return
    log_prob: jax.Array  # f32[E], log π_old(a|s)


class Statistics(NamedTuple):
    """Running statistics that acting needs; () where the configuration does not normalize."""

    observation: PyTree
    value: PyTree  # of the returns


class Learner(NamedTuple):
    """What the gradient steps keep."""

    moments: PyTree  # the optimizer's
    learning_rate: jax.Array  # f32[], of the next epoch


class Rows(NamedTuple):
    """Steps to learn from; [T, E] of a rollout, or [B] of a minibatch."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    log_prob: jax.Array  # f32[B], log π_old
    value: jax.Array  # f32[B], v_old in the network's units
    target: jax.Array  # f32[B], R in the network's units
    advantage: jax.Array  # f32[B]
    weight: jax.Array  # f32[B]; of a minibatch, sums to the mean over all devices' valid rows


def loss(
    prediction: heads.PolicyValue, rows: Rows, config: PPOConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the rows' losses, and its parts for the log.

    The Kullback-Leibler divergence is estimated by (r - 1) - log r, which is never negative.
    """
    log_policy = distributions.log_probabilities(prediction.logits)
    log_ratio = distributions.select(log_policy, rows.action) - rows.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    surrogate = jnp.minimum(ratio * rows.advantage, clipped * rows.advantage)
    error = jnp.square(rows.target - prediction.value)
    if config.clip_value:
        change = jnp.clip(prediction.value - rows.value, -config.clip, config.clip)
        error = jnp.maximum(error, jnp.square(rows.target - (rows.value + change)))
    means = {
        "loss/policy": -surrogate,
        "loss/value": 0.5 * error,
        "policy/entropy": distributions.entropy(prediction.logits),
        "policy/approx_kl": (ratio - 1) - log_ratio,
        "policy/clip_fraction": (jnp.abs(ratio - 1) > config.clip).astype(jnp.float32),
    }
    means = {name: jnp.sum(rows.weight * x) for name, x in means.items()}
    total = (
        means["loss/policy"]
        + config.value_coef * means["loss/value"]
        - config.entropy_coef * means["policy/entropy"]
    )
    return total, means


def normalize_advantages(advantage: jax.Array, weight: jax.Array) -> jax.Array:
    """To mean 0 and deviation 1 over the valid rows of all devices; f32[B], f32[B] -> f32[B]."""
    mean = mean_over_devices(jnp.sum(weight * advantage))
    centered = advantage - mean
    variance = mean_over_devices(jnp.sum(weight * jnp.square(centered)))
    return centered / (jnp.sqrt(variance) + 1e-8)


def explained_variance(value: jax.Array, target: jax.Array, weight: jax.Array) -> jax.Array:
    """1 - Var(R - v) / Var(R) over the weighted rows of all devices; 1 is a perfect critic."""

    def variance(x: jax.Array) -> jax.Array:
        mean = mean_over_devices(jnp.sum(weight * x))
        return mean_over_devices(jnp.sum(weight * jnp.square(x - mean)))

    return 1 - variance(target - value) / jnp.maximum(variance(target), 1e-8)


def adapt(learning_rate: jax.Array, kl: jax.Array, target: float) -> jax.Array:
    """Returns the rate after an epoch whose mean divergence was `kl` (rl_games' rule)."""
    slower = jnp.maximum(learning_rate / ADAPTIVE_FACTOR, ADAPTIVE_RATES[0])
    faster = jnp.minimum(learning_rate * ADAPTIVE_FACTOR, ADAPTIVE_RATES[1])
    return jnp.where(kl > 2 * target, slower, jnp.where(kl < target / 2, faster, learning_rate))


def make(config: Config, spec: EnvSpec) -> Agent:
    """PPO as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, PPOConfig)
    network = heads.PolicyValueNetwork(spec.num_actions, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    adaptive = config.optimizer.schedule == "adaptive"

    def predict(
        params: PyTree, statistics: Statistics, observation: jax.Array
    ) -> heads.PolicyValue:
        x = normalize(observation, statistics.observation)
        return network.apply({"params": params}, x)

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        value_statistics = new_statistics(()) if settings.normalize_values else ()
        statistics = Statistics(actor.statistics, value_statistics)
        rate = jnp.float32(config.initial_learning_rate())
        learner = Learner(optimizer.init(actor.params), rate)
        return AgentState(actor._replace(statistics=statistics), learner, memory=())

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Extras]:
        prediction = predict(actor.params, actor.statistics, observation)
        action = distributions.sample(key, prediction.logits)
        log_policy = distributions.log_probabilities(prediction.logits)
        value = _to_returns(prediction.value, actor.statistics.value)
        return action, Extras(value, distributions.select(log_policy, action))

    def as_rows(actor: ActorState, trajectory: Trajectory) -> tuple[Rows, PyTree]:
        """The rollout [T, E], and the statistics of the returns with those of it."""
        value_statistics = actor.statistics.value
        bootstrap = predict(actor.params, actor.statistics, trajectory.observation[-1]).value
        bootstrap = _to_returns(bootstrap, value_statistics)
        value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
        over_envs = jax.vmap(returns.lambda_advantage, in_axes=(1, 1, 1, 1, None, None), out_axes=1)
        advantage = over_envs(
            trajectory.reward,
            trajectory.discount,
            trajectory.valid,
            value,
            settings.gamma,
            settings.gae_lambda,
        )
        value, target = value[:-1], advantage + value[:-1]
        valid = trajectory.valid
        if settings.normalize_values:
            value_statistics = _update_value_statistics(value_statistics, target, valid)
        rows = Rows(
            observation=trajectory.observation[:-1],
            action=trajectory.action,
            log_prob=trajectory.extras.log_prob,
            value=_from_returns(value, value_statistics),
            target=_from_returns(target, value_statistics),
            advantage=advantage,
            weight=valid.astype(jnp.float32),
        )
        return rows, value_statistics

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor = state.actor
        rollout, value_statistics = as_rows(actor, trajectory)

        def objective(params: PyTree, rows: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, rows.observation), rows, settings)

        def learn(
            carry: tuple[PyTree, Learner], steps: jax.Array
        ) -> tuple[tuple[PyTree, Learner], dict[str, jax.Array]]:
            params, learner = carry
            rows = minibatches.take(rollout, steps)
            if settings.normalize_advantages:
                rows = rows._replace(advantage=normalize_advantages(rows.advantage, rows.weight))
            gradients, metrics = gradient(objective, params, rows, settings.micro_batch)
            rate = learner.learning_rate
            params, moments = optimizers.apply(optimizer, gradients, learner.moments, params, rate)
            metrics |= {
                "loss/gradient_norm": optax.tree.norm(gradients),
                "loss/learning_rate": rate,
            }
            return (params, Learner(moments, rate)), metrics

        def epoch(
            carry: tuple[PyTree, Learner], order: jax.Array
        ) -> tuple[tuple[PyTree, Learner], dict[str, jax.Array]]:
            (params, learner), metrics = jax.lax.scan(learn, carry, order)
            if adaptive:
                # Not after every minibatch: the first one's divergence is always 0.
                kl = jnp.mean(metrics["policy/approx_kl"])
                rate = adapt(learner.learning_rate, kl, settings.kl_target)
                learner = learner._replace(learning_rate=rate)
            return (params, learner), metrics

        learner = state.optimizer
        if not adaptive:
            learner = learner._replace(learning_rate=schedule(actor.updates))
        order = minibatches.order(key, settings, spec.num_envs)
        epochs = order.reshape(settings.epochs, -1, *order.shape[1:])
        (params, learner), metrics = jax.lax.scan(epoch, (actor.params, learner), epochs)
        newest_frames = trajectory.observation[:-1, ..., -1]
        new_actor = ActorState(
            params=params,
            statistics=Statistics(
                # After the gradients: the ratio must compare policies that see the same.
                update_statistics(actor.statistics.observation, newest_frames),
                value_statistics,
            ),
            updates=actor.updates + 1,
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        weight = row_weights(trajectory.valid)
        metrics["value/explained_variance"] = explained_variance(
            rollout.value, rollout.target, weight
        )
        target = mean_over_devices(jnp.sum(weight * rollout.target))
        metrics["value/target"] = _to_returns(target, value_statistics)
        return AgentState(new_actor, learner, state.memory), metrics

    return Agent(init, act, update, settings.rollout_length)


def _update_value_statistics(
    statistics: RunningStatistics, target: jax.Array, valid: jax.Array
) -> RunningStatistics:
    weight = row_weights(valid)
    mean, square, count = mean_over_devices(
        (
            jnp.sum(weight * target),
            jnp.sum(weight * jnp.square(target)),
            jnp.sum(valid.astype(jnp.float32)),
        )
    )
    return merge_statistics(statistics, mean, square, count * jax.lax.axis_size(AXIS))


def _to_returns(value: jax.Array, statistics: PyTree) -> jax.Array:
    """From the network's units to those of the return."""
    if statistics == ():
        return value
    return value * jnp.sqrt(statistics.variance + 1e-5) + statistics.mean


def _from_returns(value: jax.Array, statistics: PyTree) -> jax.Array:
    if statistics == ():
        return value
    return (value - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-5)
