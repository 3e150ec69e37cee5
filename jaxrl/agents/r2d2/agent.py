"""R2D2: recurrent Q-learning from a replay of sequences (Kapturowski 2019).

A sequence begins with the core's state as it was played. Its first steps, the burn-in, are played
again by the online and by the target network, each for itself and without a gradient; then both
unroll the learned steps. With h the rescaling of values (`ops.rescaling`) and m ≤ n,

L = ½ · w · Σₜ (h(Gₜ + γᵐ · h⁻¹(q⁻(sₜ₊ₘ, a*))) - q(sₜ, aₜ))²,  a* = argmaxₐ q(sₜ₊ₘ, a)

in the mean over valid steps, times the length of a sequence; w corrects for how often a sequence
is drawn. A sequence's priority is η · max |δ| + (1 - η) · mean |δ|. Each environment has a separate
epsilon (Ape-X, Horgan 2018).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, state_with_target
from jaxrl.agents.learner import Learner, copy_target, value_learner
from jaxrl.agents.r2d2.settings import R2D2Config
from jaxrl.agents.replay_learner import (
    ReplayLearned,
    ReplaySizes,
    descend_on_draw,
    learn_from,
    replay_sizes,
)
from jaxrl.config.plan import Plan
from jaxrl.networks.actors import burn_in, forward
from jaxrl.networks.core import core_of
from jaxrl.ops import distributions, exploration, predictions, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.ops.rescaling import rescale, unscale
from jaxrl.replay import buffer, prioritized, sequences
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    AXIS,
    ActorState,
    Agent,
    AgentState,
    Choice,
    Core,
    EnvSpec,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)

SUMS = ("loss/squared_error", "value/q")  # over gradient steps, logged


class Setup(NamedTuple):
    """The static parts of an R2D2 agent."""

    settings: R2D2Config
    learner: Learner
    replay: ReplaySizes
    core: Core
    form: sequences.Form
    epsilon: Callable[[int], jax.Array]  # E -> f32[E]


class Batch(NamedTuple):
    """The sequences of a gradient step, which reads them part by part."""

    place: buffer.Place  # [B]
    weight: jax.Array  # f32[B, L], sums to the mean over all devices' valid rows
    importance: jax.Array  # f32[B]


class Outputs(NamedTuple):
    """The action values of both networks at the learned steps and the one after them."""

    online: jax.Array  # f32[B, L+1, A], rescaled
    target: jax.Array  # f32[B, L+1, A], rescaled


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state: an empty replay, a target network that is a copy."""
    spec, form, num_envs = setup.learner.spec, setup.form, setup.replay.num_envs
    rows = buffer.rows_per_env(setup.settings.replay_capacity, num_envs, form.stride)
    memory = sequences.new(spec.num_envs, rows, spec.frame_shape, setup.core, form)
    return state_with_target(setup, key)._replace(memory=memory)


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions for a RecurrentObservation [E], key[E] -> i32[E]."""
    outputs = actor_outputs(setup.learner, actor, observation)
    epsilon = setup.epsilon(len(outputs.values))
    action = exploration.epsilon_greedy(key, outputs.values, epsilon)
    return Choice(action, core=outputs.core)


def predict(setup: Setup, actor: ActorState, observation: PyTree) -> Prediction:
    """Returns the policy of evaluation and the best values of a RecurrentObservation [B]."""
    values = actor_outputs(setup.learner, actor, observation).values
    prediction = predictions.from_action_values(values, setup.settings.evaluation_epsilon)
    return prediction._replace(value=unscale(prediction.value, setup.settings.rescaling))


def targets(config: R2D2Config, outputs: Outputs, steps: Trajectory) -> jax.Array:
    """Returns the rescaled targets of the actions taken: f32[B, L], no gradient.

    Args:
      config: with `n_step`, `gamma`, `double_q` and `rescaling`.
      outputs: those of both networks.
      steps: rewards, discounts and valid rows; [B, L].
    """
    selector = outputs.online if config.double_q else outputs.target
    best = distributions.select(outputs.target, jnp.argmax(selector, axis=-1))
    value = unscale(best, config.rescaling)
    target = returns.truncated_n_step_return(
        reward_t=steps.reward.T,
        discount_t=steps.discount.T,
        valid_t=steps.valid.T,
        value=value.T,
        gamma=config.gamma,
        n_step=config.n_step,
    ).T
    return jax.lax.stop_gradient(rescale(target, config.rescaling))


def priority(error: jax.Array, valid: jax.Array, max_weight: float) -> jax.Array:
    """Returns η · max |δ| + (1 - η) · mean |δ| over valid rows; f32[B, L], b[B, L] -> f32[B]."""
    size = jnp.where(valid, jnp.abs(error), 0.0)
    mean = size.sum(axis=1) / jnp.maximum(valid.sum(axis=1), 1)
    return max_weight * size.max(axis=1) + (1 - max_weight) * mean


def loss(
    config: R2D2Config, outputs: Outputs, steps: Trajectory, batch: Batch
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the weighted sum of the losses, with (sums for the log, the priorities f32[B])."""
    chosen = distributions.select(outputs.online[:, :-1], steps.action)
    error = targets(config, outputs, steps) - chosen
    square = jnp.sum(batch.weight * batch.importance[:, None] * jnp.square(error))
    value = jnp.sum(batch.weight * unscale(chosen, config.rescaling))
    sizes = priority(error, steps.valid, config.priority_max_weight)
    # The sum over the steps of a sequence, whose size matters to the optimizer's eps.
    total = 0.5 * config.sequence_length * square
    return total, ({"loss/squared_error": square, "value/q": value}, sizes)


def objective(
    setup: Setup,
    statistics: PyTree,
    memory: buffer.Replay,
    target_params: PyTree,
    params: PyTree,
    batch: Batch,
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the loss of the parameters on a batch, and (sums for the log, priorities f32[B])."""
    steps, network = sequences.read(memory, batch.place, setup.form), setup.learner.network

    def unroll(params: PyTree) -> jax.Array:
        first = setup.form.burn_in
        observation = burn_in(network, params, statistics, steps.observation, first)
        values: jax.Array = forward(network, params, statistics, observation).values
        return values

    outputs = Outputs(unroll(params), unroll(target_params))
    return loss(setup.settings, outputs, steps, batch)


def draw_batch(setup: Setup, memory: buffer.Replay, key: jax.Array) -> Batch:
    """Draws this device's share of a batch from the memory."""
    size = setup.settings.batch_size // jax.lax.axis_size(AXIS)
    place, probability = sequences.draw(key, memory, size, setup.form)
    exponent = jnp.float32(setup.settings.importance_exponent)
    return Batch(
        place,
        row_weights(sequences.valid(memory, place, setup.form)),
        prioritized.importance(probability, exponent),
    )


def gradient_step(
    setup: Setup,
    actor: ActorState,
    memory: buffer.Replay,
    learned: ReplayLearned,
    key: jax.Array,
) -> ReplayLearned:
    """Takes a gradient step on a batch from the memory, whose priorities are those in `learned`."""
    memory = memory._replace(priorities=learned.priorities)
    batch = draw_batch(setup, memory, key)
    target_params = learned.train_state.target_params
    total_loss = partial(objective, setup, actor.statistics, memory, target_params)
    rate = setup.learner.learning_rate(actor.updates)
    learned, errors = descend_on_draw(setup.learner, total_loss, learned, batch, rate)
    exponent = setup.settings.priority_exponent
    priorities = sequences.update(memory, batch.place, errors, exponent, setup.form)
    return learned._replace(priorities=priorities)


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Adds a trajectory [T, E] to the replay and takes gradient steps on batches from it."""
    memory = sequences.add(state.memory, trajectory, setup.form)
    state = state._replace(memory=memory)
    has_any = sequences.has_any(memory, setup.form)
    step = partial(gradient_step, setup, state.actor, memory)
    new, metrics = learn_from(setup, step, state, trajectory, has_any, key, SUMS)
    epsilon = setup.epsilon(setup.learner.spec.num_envs).mean()
    return new, metrics | {
        "policy/epsilon": mean_over_devices(epsilon),
        "replay/largest_priority": mean_over_devices(new.memory.priorities.largest[0]),
    }


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the R2D2 agent that `config.agent` describes.

    Raises `ValueError` if the network has no core.
    """
    settings, core = plan.config.agent, core_of(plan.config.network)
    assert isinstance(settings, R2D2Config)
    if core is None:
        raise ValueError("R2D2 needs a network with a core")
    setup = Setup(
        settings=settings,
        learner=value_learner(plan, spec),
        replay=replay_sizes(plan, settings),
        core=core,
        form=sequences.Form(
            settings.burn_in, settings.sequence_length, settings.sequence_stride, spec.stack_size
        ),
        epsilon=exploration.ladder(
            settings.epsilon_base, settings.epsilon_exponent, plan.config.num_envs
        ),
    )
    skip = partial(copy_target, every=setup.replay.target_interval)
    return agent_of(setup, init, act, update, predict, interrupt=buffer.interrupt, skip=skip)
