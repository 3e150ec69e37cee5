"""Actor-critic with V-trace: off-policy correction of a policy that lags (IMPALA, CuLE).

A window holds the last T steps of every environment. The environments are divided into minibatches
that take turns: each gradient step learns from the windows of the next one,

L = mean over valid rows of  -log π(aₜ|sₜ) · Aₜ + c_v · (vₜ - V(sₜ))² - c_e · H(π(·|sₜ))

with V-trace's targets vₜ and advantages Aₜ (Espeholt 2018) and no gradient through either. With
one gradient step per step of play, and as many minibatches as steps in a window, every step is
learned from once (CuLE, Dalton 2019, section 5); with whole rollouts it is IMPALA.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.algorithms import VTraceConfig
from jaxrl.config.schema import Config
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor, next_actor
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import distributions, optimizers, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.replay import buffer
from jaxrl.types import ActorState, Agent, AgentState, EnvSpec, Mean, Metrics, PyTree, Trajectory


class Extras(NamedTuple):
    """What `act` knows beside the action."""

    log_prob: jax.Array  # f32[E], of the action by the policy that acted


class Windows(NamedTuple):
    """What one gradient is taken of: T steps each of B environments, environments first."""

    steps: Trajectory  # [B, T]; observation [B, T+1]
    weight: jax.Array  # f32[B, T], sums to the mean over all devices' valid rows


def loss(
    prediction: heads.PolicyValue,
    windows: Windows,
    config: VTraceConfig,
    entropy_coef: jax.typing.ArrayLike,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the rows' losses of predictions [B, T+1], and its parts for the log."""
    steps, weight = windows
    log_policy = distributions.log_probabilities(prediction.logits[:, :-1])
    log_prob = distributions.select(log_policy, steps.action)
    ratio = jax.lax.stop_gradient(jnp.exp(log_prob - steps.extras.log_prob))
    value = prediction.value[:, :-1]
    over_envs = jax.vmap(returns.vtrace, in_axes=(0, 0, 0, 0, 0, None, None, None, None))
    target, advantage = over_envs(
        steps.reward,
        steps.discount,
        steps.valid,
        jax.lax.stop_gradient(prediction.value),
        ratio,
        config.gamma,
        config.clip_rho,
        config.clip_c,
        config.vtrace_lambda,
    )
    policy_loss = -jnp.sum(weight * log_prob * advantage)
    value_loss = jnp.sum(weight * jnp.square(target - value))
    mean_entropy = jnp.sum(weight * distributions.entropy(prediction.logits[:, :-1]))
    total = policy_loss + config.value_coef * value_loss - entropy_coef * mean_entropy
    parts = {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": mean_entropy,
        "policy/ratio": jnp.sum(weight * ratio),
        "policy/clip_fraction": jnp.sum(weight * (ratio > config.clip_rho)),
        "value/target": jnp.sum(weight * target),
    }
    return total, parts


def make(config: Config, spec: EnvSpec) -> Agent:
    """V-trace as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, VTraceConfig)
    network = heads.PolicyValueNetwork(spec.num_actions, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    final_entropy = 0.0 if settings.entropy_schedule == "linear" else settings.entropy_coef
    entropy_schedule = optax.linear_schedule(
        settings.entropy_coef, final_entropy, config.num_updates()
    )
    length, num_batches = settings.window, settings.num_minibatches

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> heads.PolicyValue:
        return network.apply({"params": params}, normalize(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        rows = buffer.rows_for_window(length, settings.rollout_length)
        memory = buffer.new(spec.num_envs, rows, spec.frame_shape, Extras(jnp.float32))
        return AgentState(actor, optimizer.init(actor.params), memory)

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Extras]:
        logits = predict(actor.params, actor.statistics, observation).logits
        action = distributions.sample(key, logits)
        log_prob = distributions.select(distributions.log_probabilities(logits), action)
        return action, Extras(log_prob)

    def windows_of(memory: buffer.Replay, batch: jax.Array, newest: jax.Array) -> Windows:
        # Every num_minibatches-th environment, so that devices divide minibatches evenly.
        env = batch + num_batches * jnp.arange(spec.num_envs // num_batches)
        steps = buffer.window(memory, env, length, newest[env])
        steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
        return Windows(steps, row_weights(steps.valid))

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        actor, moments = state.actor, state.optimizer
        memory = buffer.add(state.memory, trajectory)
        rate, entropy_coef = schedule(actor.updates), entropy_schedule(actor.updates)
        full = buffer.holds_window(memory, length).astype(jnp.float32)

        def objective(params: PyTree, part: Windows) -> tuple[jax.Array, dict[str, jax.Array]]:
            observation = part.steps.observation
            rows = predict(
                params, actor.statistics, observation.reshape(-1, *observation.shape[2:])
            )
            prediction = jax.tree.map(
                lambda x: x.reshape(*observation.shape[:2], *x.shape[1:]), rows
            )
            return loss(prediction, part, settings, entropy_coef)

        def learn(
            carry: tuple[PyTree, PyTree], turn: jax.Array
        ) -> tuple[tuple[PyTree, PyTree], dict[str, jax.Array]]:
            params, moments = carry
            windows = windows_of(memory, turn % num_batches, trajectory.observation[-1])
            gradients, metrics = gradient(
                objective, params, windows, settings.micro_batch, rows_per_item=length + 1
            )
            # Momentum alone must not move parameters while a resumed run fills its windows.
            carry = optimizers.apply(optimizer, gradients, moments, params, rate * full)
            return carry, metrics | {"loss/gradient_norm": optax.tree.norm(gradients)}

        turns = actor.updates * settings.updates_per_rollout + jnp.arange(
            settings.updates_per_rollout
        )
        (params, moments), metrics = jax.lax.scan(learn, (actor.params, moments), turns)
        new_actor = next_actor(actor, params, trajectory)
        means: Metrics = {name: Mean(jnp.mean(x) * full, full) for name, x in metrics.items()}
        means |= {"loss/learning_rate": rate, "policy/entropy_coef": entropy_coef}
        return AgentState(new_actor, moments, memory), means

    return Agent(init, act, update, settings.rollout_length, buffer.interrupt)
