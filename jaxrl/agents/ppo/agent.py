"""Proximal policy optimization.

The clipped surrogate (Schulman 2017, eq. 7 and 9) with generalized advantages, over several epochs
of minibatches. With the ratio rₜ = π(aₜ|sₜ) / π_old(aₜ|sₜ) and the return Rₜ = Aₜ + v_old(sₜ),

L = mean over valid rows of
    -min(rₜ·Aₜ, clip(rₜ, 1-ε, 1+ε)·Aₜ) + c_v · ½(Rₜ - v(sₜ))² - c_e · H(π(·|sₜ))
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.agents.functions import actor_outputs, agent_of, entropy_bonus, first_state
from jaxrl.agents.learner import Learned, Learner, descend, network_objective, policy_learner
from jaxrl.agents.ppo.settings import PPOConfig
from jaxrl.config.plan import Plan
from jaxrl.config.schema import ADAPTIVE_RATES
from jaxrl.networks import heads
from jaxrl.networks.running_statistics import (
    RunningStatistics,
    from_returns,
    merge_statistics,
    new_statistics,
    to_returns,
    update_statistics,
)
from jaxrl.ops import batches, distributions, predictions, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.replay import minibatches
from jaxrl.runtime.collectives import gather_over_devices, mean_over_devices
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

ADAPTIVE_FACTOR = 1.5  # rl_games' rule, as are ADAPTIVE_RATES


class Setup(NamedTuple):
    """The static parts of a PPO agent."""

    settings: PPOConfig
    learner: Learner  # its learning rate has the first value alone where the rate adapts
    adaptive: bool  # whether the learning rate follows the divergence of the policies
    entropy_coef: optax.Schedule  # by the updates done


class Extras(NamedTuple):
    """Values that `act` stores beside the actions."""

    value: jax.Array  # f32[E], in units of the return
    log_prob: jax.Array  # f32[E], log π_old(a|s)


class Statistics(NamedTuple):
    """Running statistics that acting needs; () where the configuration does not normalize."""

    observation: PyTree
    value: PyTree  # statistics of the returns


class TrainState(NamedTuple):
    """The state of the gradient steps beside the parameters."""

    opt_state: PyTree
    learning_rate: jax.Array  # f32[], of the next epoch


class EpochState(NamedTuple):
    """The arrays that the gradient steps of an epoch change."""

    params: PyTree
    train_state: TrainState


class Batch(NamedTuple):
    """Transitions with their targets; [T, E] of a rollout, [B] of a minibatch.

    With a core a minibatch consists of B sequences, [B, T].
    """

    observation: PyTree  # u8[B, 84, 84, 4], or a RecurrentObservation
    action: jax.Array  # i32[B]
    log_prob: jax.Array  # f32[B], log π_old
    value: jax.Array  # f32[B], v_old in the network's units
    target: jax.Array  # f32[B], R in the network's units
    advantage: jax.Array  # f32[B]
    weight: jax.Array  # f32[B]; of a minibatch, sums to the mean over all devices' valid rows


class Rollout(NamedTuple):
    """A rollout to learn from, and the value statistics that its targets are scaled by."""

    batch: Batch  # [T, E]
    value_statistics: PyTree


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state."""
    actor, opt_state, memory = first_state(setup, key)
    value_statistics = new_statistics(()) if setup.settings.normalize_values else ()
    statistics = Statistics(actor.statistics, value_statistics)
    train_state = TrainState(opt_state, jnp.float32(setup.learner.learning_rate(0)))
    return AgentState(actor._replace(statistics=statistics), train_state, memory)


def outputs_of(setup: Setup, actor: ActorState, observation: PyTree) -> heads.PolicyValue:
    """Returns the outputs of the network for observations u8[B, 84, 84, 4]."""
    observed = actor._replace(statistics=actor.statistics.observation)
    return actor_outputs(setup.learner, observed, observation)


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    outputs = outputs_of(setup, actor, observation)
    action = distributions.sample(key, outputs.logits)
    log_policy = distributions.log_probabilities(outputs.logits)
    value = to_returns(outputs.value, actor.statistics.value)
    extras = Extras(value, distributions.select(log_policy, action))
    return Choice(action, extras, outputs.core)


def predict(setup: Setup, actor: ActorState, observation: PyTree) -> Prediction:
    """Returns the policy and the value of observations u8[B, 84, 84, 4]."""
    outputs = outputs_of(setup, actor, observation)
    value = to_returns(outputs.value, actor.statistics.value)
    return predictions.from_policy(outputs.logits, value)


def make_rollout(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Rollout:
    """Returns the rollout [T, E] with its targets; the value statistics take them in."""
    settings, value_statistics = setup.settings, actor.statistics.value
    newest = batches.at(trajectory.observation, -1)
    bootstrap = to_returns(outputs_of(setup, actor, newest).value, value_statistics)
    value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
    advantage = returns.lambda_advantage(
        **returns.rows(trajectory),
        value=value,
        gamma=settings.gamma,
        lambda_=settings.gae_lambda,
    )
    value, target = value[:-1], advantage + value[:-1]
    valid = trajectory.valid
    if settings.normalize_values:
        value_statistics = update_value_statistics(value_statistics, target, valid)
    batch = Batch(
        observation=batches.at(trajectory.observation, slice(-1)),
        action=trajectory.action,
        log_prob=trajectory.extras.log_prob,
        value=from_returns(value, value_statistics),
        target=from_returns(target, value_statistics),
        advantage=advantage,
        weight=valid.astype(jnp.float32),
    )
    return Rollout(batch, value_statistics)


def loss(
    outputs: heads.PolicyValue, batch: Batch, config: PPOConfig, entropy_coef: jax.typing.ArrayLike
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B], and its parts for the log.

    The Kullback-Leibler divergence is estimated by (r - 1) - log r, which is never negative.
    """
    log_policy = distributions.log_probabilities(outputs.logits)
    log_ratio = distributions.select(log_policy, batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    surrogate = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    error = jnp.square(batch.target - outputs.value)
    if config.clip_value:
        change = jnp.clip(outputs.value - batch.value, -config.clip, config.clip)
        error = jnp.maximum(error, jnp.square(batch.target - (batch.value + change)))
    means = {
        "loss/policy": -surrogate,
        "loss/value": 0.5 * error,
        "policy/entropy": distributions.entropy(outputs.logits),
        "policy/approx_kl": (ratio - 1) - log_ratio,
        "policy/clip_fraction": (jnp.abs(ratio - 1) > config.clip).astype(jnp.float32),
    }
    means = {name: jnp.sum(batch.weight * x) for name, x in means.items()}
    total = (
        means["loss/policy"]
        + config.value_coef * means["loss/value"]
        - entropy_coef * means["policy/entropy"]
    )
    return total, means


def normalize_advantages(advantage: jax.Array, weight: jax.Array) -> jax.Array:
    """Scales f32[B] to mean 0 and deviation 1 over the valid rows of all devices: f32[B]."""
    mean = mean_over_devices(jnp.sum(weight * advantage))
    centered = advantage - mean
    variance = mean_over_devices(jnp.sum(weight * jnp.square(centered)))
    return centered / (jnp.sqrt(variance) + 1e-8)


def explained_variance(value: jax.Array, target: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns 1 - Var(R - v) / Var(R) over the weighted rows of all devices, at most 1.

    A perfect critic has 1. All arguments are [T, E].
    """

    def variance(x: jax.Array) -> jax.Array:
        mean = mean_over_devices(jnp.sum(weight * x))
        return mean_over_devices(jnp.sum(weight * jnp.square(x - mean)))

    return 1 - variance(target - value) / jnp.maximum(variance(target), 1e-8)


def adapt(learning_rate: jax.Array, kl: jax.Array, target: float) -> jax.Array:
    """Returns the learning rate after an epoch of mean divergence `kl` (rl_games' rule)."""
    slower = jnp.maximum(learning_rate / ADAPTIVE_FACTOR, ADAPTIVE_RATES[0])
    faster = jnp.minimum(learning_rate * ADAPTIVE_FACTOR, ADAPTIVE_RATES[1])
    return jnp.where(kl > 2 * target, slower, jnp.where(kl < target / 2, faster, learning_rate))


def gradient_step(
    setup: Setup, actor: ActorState, rollout: Batch, state: EpochState, part: jax.Array
) -> tuple[EpochState, dict[str, jax.Array]]:
    """Takes a gradient step on a minibatch of the rollout [T, E].

    Its part is steps i32[T / M, E] of each environment; with a core environments i32[E / M].
    """
    params, (opt_state, rate) = state
    remembers = setup.learner.network.config.remembers
    batch = (minibatches.take_sequences if remembers else minibatches.take)(rollout, part)
    if setup.settings.normalize_advantages:
        batch = batch._replace(advantage=normalize_advantages(batch.advantage, batch.weight))
    entropy_coef = setup.entropy_coef(actor.updates)
    objective = network_objective(
        setup.learner,
        actor.statistics.observation,
        partial(loss, config=setup.settings, entropy_coef=entropy_coef),
    )
    before = Learned(params, opt_state)
    (params, opt_state), metrics = descend(setup.learner, objective, before, batch, rate)
    return EpochState(params, TrainState(opt_state, rate)), metrics | {"loss/learning_rate": rate}


def epoch(
    setup: Setup, actor: ActorState, rollout: Batch, state: EpochState, order: jax.Array
) -> tuple[EpochState, dict[str, jax.Array]]:
    """Takes the gradient steps of one epoch, on the minibatches i32[M, T / M, E].

    With a core they are i32[M, E / M]. Returns the metrics of each step, [M].
    """
    step = partial(gradient_step, setup, actor, rollout)
    (params, train_state), metrics = jax.lax.scan(step, state, order)
    if setup.adaptive:
        # Not after every minibatch: the first one's divergence is always 0.
        kl = jnp.mean(metrics["policy/approx_kl"])
        rate = adapt(train_state.learning_rate, kl, setup.settings.kl_target)
        train_state = train_state._replace(learning_rate=rate)
    return EpochState(params, train_state), metrics


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes the gradient steps of all epochs on a trajectory [T, E]."""
    actor, train_state = state.actor, state.train_state
    rollout, value_statistics = make_rollout(setup, actor, trajectory)
    if not setup.adaptive:
        train_state = train_state._replace(learning_rate=setup.learner.learning_rate(actor.updates))
    network = setup.learner.network.config
    draw = minibatches.order_of_sequences if network.remembers else minibatches.order
    order = draw(key, setup.settings, setup.learner.spec.num_envs)
    orders = order.reshape(setup.settings.epochs, -1, *order.shape[1:])
    learned, metrics = jax.lax.scan(
        partial(epoch, setup, actor, rollout), EpochState(actor.params, train_state), orders
    )
    newest_frames = batches.stacks(trajectory.observation)[:-1, ..., -1]
    # After the gradients: the ratio must compare policies that see the same.
    statistics = update_statistics(
        actor.statistics.observation, newest_frames, network.skip_blank_frames
    )
    new_actor = ActorState(
        learned.params, Statistics(statistics, value_statistics), actor.updates + 1
    )
    weight = row_weights(trajectory.valid)
    target = mean_over_devices(jnp.sum(weight * rollout.target))
    metrics = jax.tree.map(jnp.mean, metrics) | {
        "value/explained_variance": explained_variance(rollout.value, rollout.target, weight),
        "value/target": to_returns(target, value_statistics),
        "policy/entropy_coef": setup.entropy_coef(actor.updates),
    }
    return AgentState(new_actor, learned.train_state, state.memory), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the PPO agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, PPOConfig)
    adaptive = plan.config.optimizer.schedule == "adaptive"
    setup = Setup(settings, policy_learner(plan, spec), adaptive, entropy_bonus(plan))
    return agent_of(setup, init, act, update, predict)


def update_value_statistics(
    statistics: RunningStatistics, target: jax.Array, valid: jax.Array
) -> RunningStatistics:
    """Adds the valid returns [T, E] of all devices to the statistics."""
    # Joined, because sums by device would round differently on another number of devices.
    target, valid = gather_over_devices((target, valid), axis=1)
    count = valid.sum(dtype=jnp.float32)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(valid, x, 0)) / jnp.maximum(count, 1)

    rough = mean(target)  # off by the rounding of a sum of large numbers
    centered = target - rough
    offset = mean(centered)
    variance = mean(jnp.square(centered - offset))
    return merge_statistics(statistics, rough + offset, variance, count)
