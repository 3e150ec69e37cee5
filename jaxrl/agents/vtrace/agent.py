"""Actor-critic with V-trace: off-policy correction of a policy that lags (IMPALA, CuLE).

A window holds the last T steps of an environment. The environments are divided into minibatches
that take turns: each gradient step learns from the windows of the next minibatch,

L = mean over valid rows of  -log π(aₜ|sₜ) · Aₜ + c_v · (vₜ - V(sₜ))² - c_e · H(π(·|sₜ))

with V-trace's targets vₜ and advantages Aₜ (Espeholt 2018) and no gradient through either. With
one gradient step per step of play, and as many minibatches as steps in a window, every step is
learned from once (CuLE, Dalton 2019, section 5); with whole rollouts it is IMPALA.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.agents.functions import (
    actor_outputs,
    agent_of,
    entropy_bonus,
    first_state,
    predict_policy,
)
from jaxrl.agents.learner import Learned, Learner, descend, policy_learner
from jaxrl.agents.vtrace.settings import VTraceConfig
from jaxrl.config.plan import Plan
from jaxrl.networks import heads
from jaxrl.networks.actors import burn_in, forward, next_actor
from jaxrl.networks.core import core_of
from jaxrl.ops import batches, distributions, moments, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.replay import buffer
from jaxrl.types import (
    ActorState,
    Agent,
    AgentState,
    Choice,
    EnvSpec,
    Mean,
    Metrics,
    PyTree,
    Trajectory,
)


class Setup(NamedTuple):
    """The static parts of a V-trace agent."""

    settings: VTraceConfig
    learner: Learner
    entropy_coef: optax.Schedule  # by the updates done

    @property
    def steps_read(self) -> int:
        """Steps of an environment that a gradient step reads: the burn-in and the window."""
        return self.settings.burn_in + self.settings.window


class Extras(NamedTuple):
    """Values that `act` stores beside the actions."""

    log_prob: jax.Array  # f32[E], of the action by the policy that acted


class Windows(NamedTuple):
    """The batch of a gradient step: T steps each of B environments, environments first."""

    steps: Trajectory  # [B, T]; observation [B, T+1], with a core after the steps of the burn-in
    weight: jax.Array  # f32[B, T], sums to the mean over all devices' valid rows


class Inputs(NamedTuple):
    """The arrays that all gradient steps of an update read."""

    actor: ActorState  # that played
    memory: buffer.Replay
    newest: PyTree  # u8[E, 84, 84, 4] or a RecurrentObservation [E], after the last step
    full: jax.Array  # f32[], 1 where the memory holds whole windows, else 0


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state, with an empty memory; `train_state` is the optimizer's state."""
    spec, core = setup.learner.spec, core_of(setup.learner.network.config)
    rows = buffer.rows_for_window(setup.steps_read, setup.settings.rollout_length)
    memory = buffer.new(spec.num_envs, rows, spec.frame_shape, Extras(jnp.float32), core)
    return first_state(setup, key)._replace(memory=memory)


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    outputs = actor_outputs(setup.learner, actor, observation)
    action = distributions.sample(key, outputs.logits)
    log_prob = distributions.select(distributions.log_probabilities(outputs.logits), action)
    return Choice(action, Extras(log_prob), outputs.core)


def take_windows(setup: Setup, inputs: Inputs, minibatch: jax.Array) -> Windows:
    """Returns the windows of the environments of minibatch i32[].

    Their observations begin with those of the burn-in, if there is one.
    """
    count, num_envs = setup.settings.num_minibatches, setup.learner.spec.num_envs
    # Every `count`-th environment, so that devices divide minibatches evenly.
    env = minibatch + count * jnp.arange(num_envs // count)
    newest = jax.tree.map(lambda x: x[env], inputs.newest)
    steps = buffer.window(inputs.memory, env, setup.steps_read, newest)
    observation = steps.observation
    steps = batches.at(steps._replace(observation=()), slice(setup.settings.burn_in, None))
    steps = steps._replace(observation=observation)
    steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)  # environments first
    return Windows(steps, row_weights(steps.valid))


def loss(
    outputs: heads.PolicyValue,
    windows: Windows,
    config: VTraceConfig,
    entropy_coef: jax.typing.ArrayLike,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B, T+1], and its parts for the log."""
    steps, weight = windows
    log_policy = distributions.log_probabilities(outputs.logits[:, :-1])
    log_prob = distributions.select(log_policy, steps.action)
    ratio = jax.lax.stop_gradient(jnp.exp(log_prob - steps.extras.log_prob))
    target, advantage = returns.vtrace(
        **returns.rows(steps),
        value=jax.lax.stop_gradient(outputs.value),
        ratio_t=ratio,
        gamma=config.gamma,
        clip_rho=config.clip_rho,
        clip_c=config.clip_c,
        lambda_=config.vtrace_lambda,
        time_axis=1,
    )
    policy_loss = -jnp.sum(weight * log_prob * advantage)
    value_sums = moments.moments(target, outputs.value[:, :-1], weight)
    mean_entropy = jnp.sum(weight * distributions.entropy(outputs.logits[:, :-1]))
    total = policy_loss + config.value_coef * value_sums["loss/value"] - entropy_coef * mean_entropy
    parts = {
        "loss/policy": policy_loss,
        "policy/entropy": mean_entropy,
        "policy/ratio": jnp.sum(weight * ratio),
        "policy/clip_fraction": jnp.sum(weight * (ratio > config.clip_rho)),
    }
    return total, parts | value_sums


def objective(
    setup: Setup, actor: ActorState, params: PyTree, windows: Windows
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of the parameters on windows [B, T], and its parts.

    `actor` is the one that played: its statistics normalize, its updates date the entropy bonus.
    """
    network, steps = setup.learner.network, setup.settings.burn_in
    observation = burn_in(network, params, actor.statistics, windows.steps.observation, steps)
    outputs = forward(network, params, actor.statistics, observation)
    return loss(outputs, windows, setup.settings, setup.entropy_coef(actor.updates))


def gradient_step(
    setup: Setup, inputs: Inputs, learned: Learned, number: jax.Array
) -> tuple[Learned, dict[str, jax.Array]]:
    """Takes gradient step i32[] of the minibatches in their order, on its minibatch of windows."""
    windows = take_windows(setup, inputs, number % setup.settings.num_minibatches)
    # Momentum alone must not move parameters while a resumed run fills its windows.
    rate = setup.learner.learning_rate(inputs.actor.updates) * inputs.full
    total_loss = partial(objective, setup, inputs.actor)
    return descend(setup.learner, total_loss, learned, windows, rate)


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Adds a trajectory [T, E] to the memory and takes gradient steps; `key` is not used."""
    settings, actor = setup.settings, state.actor
    memory = buffer.add(state.memory, trajectory)
    full = buffer.holds_window(memory, setup.steps_read).astype(jnp.float32)
    inputs = Inputs(actor, memory, batches.at(trajectory.observation, -1), full)
    steps = settings.updates_per_rollout
    learned, metrics = jax.lax.scan(
        partial(gradient_step, setup, inputs),
        Learned(actor.params, state.train_state),
        # The remainder alone: the number of all gradient steps may pass 2³¹.
        actor.updates % settings.num_minibatches * steps + jnp.arange(steps),
    )
    means: Metrics = moments.explained_variance(metrics)
    means = {name: _mean_over_steps(x, full) for name, x in means.items()} | {
        "loss/learning_rate": setup.learner.learning_rate(actor.updates),
        "policy/entropy_coef": setup.entropy_coef(actor.updates),
    }
    new_actor = next_actor(setup.learner.network, actor, learned.params, trajectory)
    return AgentState(new_actor, learned.opt_state, memory), means


def _mean_over_steps(steps: jax.Array | Mean, full: jax.Array) -> Mean:
    """Returns the mean over gradient steps [K], of none before the windows are full."""
    total, number = steps if isinstance(steps, Mean) else Mean(steps, jnp.ones_like(steps))
    return Mean(jnp.mean(total) * full, jnp.mean(number) * full)


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the V-trace agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, VTraceConfig)
    setup = Setup(settings, policy_learner(plan, spec), entropy_bonus(plan))
    return agent_of(setup, init, act, update, predict_policy, interrupt=buffer.interrupt)
