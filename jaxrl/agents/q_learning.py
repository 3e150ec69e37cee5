"""Q-learning from a replay, common to DQN, C51 and Rainbow.

Many environments play at once. The ratio of transitions trained on to transitions played is that of
the papers, with more or larger batches (Stooke & Abbeel 2018, section 3.2). The loss of a
transition with n-step rewards G and the bootstrap m ≤ n steps later is

L = w · error(target(G, γᵐ, q⁻(s', a*)), q(s, a)),  a* = argmaxₐ q⁻(s', a)

q⁻ is the target network; for double Q-learning (van Hasselt 2016) a* is the online network's best.
With priorities w corrects for how often a transition is drawn (`replay.prioritized`), else it is 1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.plan import Plan
from jaxrl.config.value_based import QLearningConfig
from jaxrl.networks import heads
from jaxrl.networks.actors import forward, init_actor, next_actor
from jaxrl.ops import batches, distributions, exploration, optimizers, predictions
from jaxrl.ops.gradients import gradient_with_aux, row_weights
from jaxrl.replay import buffer, prioritized
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    AXIS,
    ActorState,
    Agent,
    AgentState,
    Choice,
    EnvSpec,
    Mean,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)


class Method(NamedTuple):
    """The parts in which DQN and C51 differ.

    N is the number of atoms. The network's outputs are f32[..., A, N]; f32[..., A] for N = 0.
    """

    support: jax.Array  # f32[N], the atoms; N = 0 for plain action values
    values: Callable[[jax.Array], jax.Array]  # outputs f32[..., A(, N)] -> f32[..., A]
    distributions: Callable[[jax.Array], jax.Array]  # outputs f32[B, A(, N)] -> f32[B, A, N]
    # (G f32[B], γᵐ f32[B], outputs for the bootstrap's action f32[B(, N)]) -> f32[B(, N)]
    target: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    # (target, outputs for the action taken, f32[B(, N)] both) -> losses f32[B], priorities f32[B]
    error: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    loss_name: str  # in the log


class Setup(NamedTuple):
    """The static parts of an agent that learns from a replay."""

    settings: QLearningConfig
    spec: EnvSpec
    method: Method
    network: heads.ActionValueNetwork
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # of the updates done
    epsilon: Callable[[jax.Array, int], jax.Array]  # (updates done, E) -> f32[E]
    num_envs: int  # over all devices
    num_updates: int  # of the whole run
    num_batches: int  # gradient steps of an update
    target_interval: int  # updates between two copies into the target network

    @property
    def prioritizes(self) -> bool:
        """Whether transitions are drawn by priority."""
        return self.settings.priority_exponent > 0


class TrainState(NamedTuple):
    """The state of the gradient steps beside the parameters."""

    opt_state: PyTree
    target_params: PyTree  # of the target network


class Batch(NamedTuple):
    """The transitions of a gradient step, with their targets."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B(, N)]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows
    importance: jax.Array  # f32[B], of draws by priority; else 1
    noise: PyTree  # key[B] of a noisy network, else None


class Learned(NamedTuple):
    """The arrays that a gradient step changes, and the sums of its metrics."""

    params: PyTree
    train_state: TrainState
    priorities: PyTree  # of the memory
    sums: dict[str, jax.Array]  # f32[]


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state: an empty replay, a target network that is a copy."""
    settings, spec = setup.settings, setup.spec
    actor = init_actor(setup.network, key, spec.frame_shape, spec.stack_size)
    rows = buffer.rows_per_env(settings.replay_capacity, setup.num_envs, settings.rollout_length)
    priorities = prioritized.new(spec.num_envs, rows) if setup.prioritizes else ()
    memory = buffer.new(spec.num_envs, rows, spec.frame_shape)._replace(priorities=priorities)
    train_state = TrainState(setup.optimizer.init(actor.params), actor.params)
    return AgentState(actor, train_state, memory)


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], no extras.

    A noisy network draws its weights for each observation, in evaluation too.
    """
    keys, noise = key, None
    if setup.network.config.noisy:
        keys, noise = jnp.unstack(jax.vmap(jax.random.split)(key), axis=1)
    outputs = forward(setup.network, actor.params, actor.statistics, observation, noise)
    epsilon = setup.epsilon(actor.updates, len(observation))
    return Choice(exploration.epsilon_greedy(keys, setup.method.values(outputs), epsilon))


def predict(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy of evaluation and the returns of observations u8[B, 84, 84, 4].

    A noisy network predicts by its mean weights, so its probabilities are those of a game without
    noise, which `act` does not play.
    """
    method = setup.method
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    prediction = predictions.from_action_values(
        method.values(outputs), setup.settings.evaluation_epsilon
    )
    return prediction._replace(distributions=method.distributions(outputs), support=method.support)


def make_batch(
    setup: Setup,
    actor: ActorState,
    target_params: PyTree,
    transitions: buffer.Transitions,
    key: jax.Array,
) -> Batch:
    """Returns transitions [B] with their targets; `actor` selects actions for double Q-learning."""
    size, next_observation = len(transitions.action), transitions.next_observation
    noise: list[PyTree] = [None] * 3
    if setup.network.config.noisy:
        noise = [batches.keys_per_index(k, size) for k in jax.random.split(key, 3)]
    network, statistics = setup.network, actor.statistics
    outputs = forward(network, target_params, statistics, next_observation, noise[0])
    selector = outputs
    if setup.settings.double_q:
        selector = forward(network, actor.params, statistics, next_observation, noise[1])
    value = bootstrap(setup.method, outputs, selector)
    return Batch(
        observation=transitions.observation,
        action=transitions.action,
        target=setup.method.target(transitions.reward, transitions.discount, value),
        weight=row_weights(transitions.valid),
        importance=jnp.ones(size),
        noise=noise[2],
    )


def bootstrap(method: Method, outputs: jax.Array, selector: jax.Array) -> jax.Array:
    """Returns the outputs for the actions that `selector` values most.

    Both arguments are f32[B, A(, N)], the result is f32[B(, N)].
    """
    return distributions.select(outputs, jnp.argmax(method.values(selector), axis=-1))


def loss(
    method: Method, outputs: jax.Array, batch: Batch
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the weighted sum of the losses, with (sums for the log, the priorities f32[B])."""
    chosen = distributions.select(outputs, batch.action)
    losses, priorities = method.error(batch.target, chosen)
    total = jnp.sum(batch.weight * batch.importance * losses)
    value = jnp.sum(batch.weight * method.values(chosen))
    return total, ({method.loss_name: total, "value/q": value}, priorities)


def objective(
    setup: Setup, statistics: PyTree, params: PyTree, batch: Batch
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the loss of the parameters on a batch, with (sums for the log, priorities f32[B])."""
    outputs = forward(setup.network, params, statistics, batch.observation, batch.noise)
    return loss(setup.method, outputs, batch)


def importance_exponent(setup: Setup, updates: jax.Array) -> jax.Array:
    """Returns β of prioritized replay after `updates` updates; it rises linearly to 1."""
    start = setup.settings.importance_exponent
    share = jnp.minimum(updates / max(setup.num_updates, 1), 1.0)
    return start + share * (1 - start)


def draw_batch(
    setup: Setup, actor: ActorState, memory: buffer.Replay, target_params: PyTree, key: jax.Array
) -> tuple[buffer.Place, Batch]:
    """Draws this device's share of a batch from the memory, with the places it begins at."""
    settings = setup.settings
    size = settings.batch_size // jax.lax.axis_size(AXIS)
    place_key, noise_key = jax.random.split(key)
    window = settings.n_step, settings.gamma, setup.spec.stack_size
    if not setup.prioritizes:
        place = buffer.draw_uniform(place_key, memory, size, settings.n_step)
        transitions = buffer.read(memory, place, *window)
        return place, make_batch(setup, actor, target_params, transitions, noise_key)
    place, probability = prioritized.draw(place_key, memory, size)
    transitions = buffer.read(memory, place, *window)
    batch = make_batch(setup, actor, target_params, transitions, noise_key)
    exponent = importance_exponent(setup, actor.updates)
    return place, batch._replace(importance=prioritized.importance(probability, exponent))


def gradient_step(
    setup: Setup, actor: ActorState, memory: buffer.Replay, learned: Learned, key: jax.Array
) -> Learned:
    """Takes a gradient step on a batch from the memory, whose priorities are those in `learned`."""
    params, (opt_state, target_params), priorities, sums = learned
    actor, memory = actor._replace(params=params), memory._replace(priorities=priorities)
    place, batch = draw_batch(setup, actor, memory, target_params, key)
    gradients, metrics, errors = gradient_with_aux(
        partial(objective, setup, actor.statistics), params, batch, setup.settings.micro_batch
    )
    rate = setup.learning_rate(actor.updates)
    params, opt_state = optimizers.apply(setup.optimizer, gradients, opt_state, params, rate)
    if setup.prioritizes:
        exponent = setup.settings.priority_exponent
        priorities = prioritized.update(memory, place, errors, exponent)
    metrics["loss/gradient_norm"] = optax.tree.norm(gradients)
    sums = jax.tree.map(jnp.add, sums, metrics)
    return Learned(params, TrainState(opt_state, target_params), priorities, sums)


def add_to_memory(setup: Setup, memory: buffer.Replay, trajectory: Trajectory) -> buffer.Replay:
    """Adds a trajectory [T, E] to the replay, with the largest priority if it has priorities."""
    memory = buffer.add(memory, trajectory)
    if setup.prioritizes:
        return prioritized.follow(memory, len(trajectory.action), setup.settings.n_step)
    return memory


def num_gradient_steps(setup: Setup, memory: buffer.Replay) -> jax.Array:
    """Returns the gradient steps i32[] of an update: 0 until the replay holds enough."""
    ready = (memory.steps[0] >= setup.settings.learning_starts / setup.num_envs) & (
        buffer.num_places(memory, setup.settings.n_step) > 0
    )
    return jnp.where(ready, setup.num_batches, 0)


def copy_target(state: AgentState, every: int) -> AgentState:
    """Copies the parameters into the target network in each `every`-th update.

    Args:
      state: whose `train_state` has `target_params`.
      every: updates between two copies; the first falls on update 0.
    """
    target_params = optax.periodic_update(
        state.actor.params, state.train_state.target_params, state.actor.updates, every
    )
    return state._replace(train_state=state.train_state._replace(target_params=target_params))


def log(
    setup: Setup,
    actor: ActorState,
    memory: buffer.Replay,
    sums: dict[str, jax.Array],
    count: jax.Array,
) -> Metrics:
    """Returns the metrics of an update with the sums over its i32[] gradient steps."""
    metrics: Metrics = {name: Mean(x, count.astype(jnp.float32)) for name, x in sums.items()}
    transitions = jnp.minimum(memory.steps[0], memory.ring.valid.shape[1])
    metrics |= {
        "loss/learning_rate": setup.learning_rate(actor.updates),
        "policy/epsilon": setup.epsilon(actor.updates, setup.spec.num_envs).mean(),
        "replay/transitions": transitions * jnp.float32(setup.num_envs),
    }
    if setup.prioritizes:
        metrics["replay/importance_exponent"] = importance_exponent(setup, actor.updates)
        largest = memory.priorities.largest[0]
        metrics["replay/largest_priority"] = mean_over_devices(largest)
    return metrics


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Adds a trajectory [T, E] to the replay and takes gradient steps on batches from it."""
    actor = state.actor
    memory = add_to_memory(setup, state.memory, trajectory)
    train_state = copy_target(state, setup.target_interval).train_state
    keys = jax.random.split(key, setup.num_batches)
    names = (setup.method.loss_name, "value/q", "loss/gradient_norm")
    sums = {name: jnp.float32(0) for name in names}
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


def make(plan: Plan, spec: EnvSpec, method: Method) -> Agent:
    """Returns the agent that learns by the method, as `config.agent` describes it."""
    config = plan.config
    settings = config.agent
    assert isinstance(settings, QLearningConfig)
    setup = Setup(
        settings=settings,
        spec=spec,
        method=method,
        network=heads.ActionValueNetwork(
            spec.num_actions, max(1, len(method.support)), config.network, spec.planes
        ),
        optimizer=optimizers.make_optimizer(config.optimizer),
        learning_rate=optimizers.learning_rate(plan),
        epsilon=exploration.schedule(settings, plan.steps_per_update),
        num_envs=config.num_envs,
        num_updates=plan.num_updates,
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
    )
