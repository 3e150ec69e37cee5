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
import optax

from jaxrl.agents.q_learning import Learned, TrainState, copy_target
from jaxrl.agents.r2d2.settings import R2D2Config
from jaxrl.config.plan import Plan
from jaxrl.networks import heads
from jaxrl.networks.actors import burn_in, forward, init_actor, next_actor
from jaxrl.networks.core import core_of
from jaxrl.ops import distributions, exploration, optimizers, predictions, returns
from jaxrl.ops.gradients import gradient_with_aux, row_weights
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
    Mean,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)

SUMS = ("loss/squared_error", "value/q", "loss/gradient_norm")  # of the gradient steps, logged


class Setup(NamedTuple):
    """The static parts of an R2D2 agent."""

    settings: R2D2Config
    spec: EnvSpec
    network: heads.ActionValueNetwork
    core: Core
    form: sequences.Form
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # of the updates done
    epsilon: Callable[[int], jax.Array]  # E -> f32[E]
    num_envs: int  # over all devices
    num_batches: int  # gradient steps of an update
    target_interval: int  # updates between two copies into the target network


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
    spec, form = setup.spec, setup.form
    actor = init_actor(setup.network, key, spec.frame_shape, spec.stack_size)
    rows = buffer.rows_per_env(setup.settings.replay_capacity, setup.num_envs, form.stride)
    memory = sequences.new(spec.num_envs, rows, spec.frame_shape, setup.core, form)
    train_state = TrainState(setup.optimizer.init(actor.params), actor.params)
    return AgentState(actor, train_state, memory)


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions for a RecurrentObservation [E], key[E] -> i32[E]."""
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    epsilon = setup.epsilon(len(outputs.values))
    action = exploration.epsilon_greedy(key, outputs.values, epsilon)
    return Choice(action, core=outputs.core)


def predict(setup: Setup, actor: ActorState, observation: PyTree) -> Prediction:
    """Returns the policy of evaluation and the best values of a RecurrentObservation [B]."""
    values = forward(setup.network, actor.params, actor.statistics, observation).values
    prediction = predictions.from_action_values(values, setup.settings.evaluation_epsilon)
    return prediction._replace(value=unscale(prediction.value, setup.settings.rescaling))


def targets(config: R2D2Config, outputs: Outputs, steps: Trajectory) -> jax.Array:
    """Returns the rescaled targets of the actions taken: f32[B, L], no gradient.

    Args:
      config: with `n_step`, `gamma`, `double_q` and `rescaling`.
      outputs: of both networks.
      steps: rewards, discounts and valid rows; [B, L].
    """
    selector = outputs.online if config.double_q else outputs.target
    best = distributions.select(outputs.target, jnp.argmax(selector, axis=-1))
    value = unscale(best, config.rescaling)
    found = returns.truncated_n_step_return(
        steps.reward.T, steps.discount.T, steps.valid.T, value.T, config.gamma, config.n_step
    ).T
    return jax.lax.stop_gradient(rescale(found, config.rescaling))


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
    steps = sequences.read(memory, batch.place, setup.form)

    def unroll(params: PyTree) -> jax.Array:
        first = setup.form.burn_in
        observation = burn_in(setup.network, params, statistics, steps.observation, first)
        values: jax.Array = forward(setup.network, params, statistics, observation).values
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
    setup: Setup, actor: ActorState, memory: buffer.Replay, learned: Learned, key: jax.Array
) -> Learned:
    """Takes a gradient step on a batch from the memory, whose priorities are those in `learned`."""
    params, (opt_state, target_params), priorities, sums = learned
    settings, memory = setup.settings, memory._replace(priorities=priorities)
    batch = draw_batch(setup, memory, key)
    gradients, metrics, errors = gradient_with_aux(
        partial(objective, setup, actor.statistics, memory, target_params),
        params,
        batch,
        settings.micro_batch,
        rows_per_item=settings.steps_per_row,
    )
    rate = setup.learning_rate(actor.updates)
    params, opt_state = optimizers.apply(setup.optimizer, gradients, opt_state, params, rate)
    priorities = sequences.update(
        memory, batch.place, errors, settings.priority_exponent, setup.form
    )
    metrics["loss/gradient_norm"] = optax.tree.norm(gradients)
    sums = jax.tree.map(jnp.add, sums, metrics)
    return Learned(params, TrainState(opt_state, target_params), priorities, sums)


def num_gradient_steps(setup: Setup, memory: buffer.Replay) -> jax.Array:
    """Returns the gradient steps i32[] of an update: 0 until the replay holds enough."""
    enough = memory.steps[0] >= setup.settings.learning_starts / setup.num_envs
    return jnp.where(enough & sequences.has_any(memory, setup.form), setup.num_batches, 0)


def log(
    setup: Setup,
    actor: ActorState,
    memory: buffer.Replay,
    sums: dict[str, jax.Array],
    count: jax.Array,
) -> Metrics:
    """Returns the metrics of an update with the sums over its i32[] gradient steps."""
    transitions = jnp.minimum(memory.steps[0], memory.ring.valid.shape[1])
    metrics: Metrics = {name: Mean(x, count.astype(jnp.float32)) for name, x in sums.items()}
    return metrics | {
        "loss/learning_rate": setup.learning_rate(actor.updates),
        "policy/epsilon": mean_over_devices(setup.epsilon(setup.spec.num_envs).mean()),
        "replay/transitions": transitions * jnp.float32(setup.num_envs),
        "replay/largest_priority": mean_over_devices(memory.priorities.largest[0]),
    }


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Adds a trajectory [T, E] to the replay and takes gradient steps on batches from it."""
    actor = state.actor
    memory = sequences.add(state.memory, trajectory, setup.form)
    train_state = copy_target(state, setup.target_interval).train_state
    keys = jax.random.split(key, setup.num_batches)
    sums = {name: jnp.float32(0) for name in SUMS}
    start = Learned(actor.params, train_state, memory.priorities, sums)
    # With too little to learn from, the loop is empty and there are no losses.
    count = num_gradient_steps(setup, memory)
    learned = jax.lax.fori_loop(
        0, count, lambda i, x: gradient_step(setup, actor, memory, x, keys[i]), start
    )
    memory = memory._replace(priorities=learned.priorities)
    metrics = log(setup, actor, memory, learned.sums, count)
    new_actor = next_actor(setup.network, actor, learned.params, trajectory)
    return AgentState(new_actor, learned.train_state, memory), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the R2D2 agent that `config.agent` describes.

    Raises `ValueError` if the network has no core.
    """
    config = plan.config
    settings, core = config.agent, core_of(config.network)
    assert isinstance(settings, R2D2Config)
    if core is None:
        raise ValueError("R2D2 needs a network with a core")
    setup = Setup(
        settings=settings,
        spec=spec,
        network=heads.ActionValueNetwork(spec.num_actions, 1, config.network, spec.planes),
        core=core,
        form=sequences.Form(
            settings.burn_in, settings.sequence_length, settings.sequence_stride, spec.stack_size
        ),
        optimizer=optimizers.make_optimizer(config.optimizer),
        learning_rate=optimizers.learning_rate(plan),
        epsilon=exploration.ladder(
            settings.epsilon_base, settings.epsilon_exponent, config.num_envs
        ),
        num_envs=config.num_envs,
        num_batches=plan.gradient_steps,
        target_interval=max(1, round(settings.target_update_interval / plan.steps_per_update)),
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        predict=partial(predict, setup),
        rollout_length=settings.rollout_length,
        interrupt=buffer.interrupt,
        skip=partial(copy_target, every=setup.target_interval),
        core=core,
    )
