"""Q-learning from a replay, common to DQN, C51, QR-DQN, IQN and Rainbow.

Many environments play at once. The ratio of transitions trained on to transitions played is that of
the papers, with more or larger batches (Stooke & Abbeel 2018, section 3.2). The loss of a
transition with n-step rewards G and the bootstrap m ≤ n steps later is

L = w · error(target(G, γᵐ, q⁻(s', a*)), q(s, a)),  a* = argmaxₐ q⁻(s', a)

q⁻ is the target network; for double Q-learning (van Hasselt 2016) a* is the online network's best.
With priorities w corrects for how often a transition is drawn (`replay.prioritized`), else it is 1.
Munchausen targets (`ops.munchausen`) have a soft bootstrap, and add to G.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, state_with_target
from jaxrl.agents.learner import Learner, copy_target
from jaxrl.agents.replay_learner import (
    ReplayLearned,
    ReplaySizes,
    descend_on_draw,
    learn_from,
    replay_sizes,
)
from jaxrl.config.plan import Plan
from jaxrl.config.value_based import QLearningConfig
from jaxrl.networks.actors import forward
from jaxrl.ops import batches, distributions, exploration, munchausen, predictions
from jaxrl.ops.gradients import row_weights
from jaxrl.replay import buffer, prioritized
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    AXIS,
    ActorState,
    Agent,
    AgentState,
    Choice,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)


class Draws(NamedTuple):
    """The numbers of quantiles that a network draws of an action's return."""

    acting: int  # K, to choose an action
    target: int  # N', of the bootstrap
    online: int  # N, of what is learned


class Method(NamedTuple):
    """The parts in which DQN, C51 and their like differ.

    N is the number of atoms, or of quantiles. The network's outputs are arrays f32[..., A, N], or
    f32[..., A] for N = 0: one, or a record of several.
    """

    support: jax.Array  # f32[N], the atoms; N = 0 without fixed ones
    values: Callable[[PyTree], jax.Array]  # outputs f32[..., A(, N)] -> f32[..., A]
    distributions: Callable[[PyTree], jax.Array]  # outputs f32[B, A(, N)] -> f32[B, A, N]
    # (G f32[B], γᵐ f32[B], outputs for the bootstrap's action f32[B(, N)]) -> f32[B(, N)]. Where
    # targets may be Munchausen's, what is added to G is added to each number.
    target: Callable[[jax.Array, jax.Array, PyTree], jax.Array]
    # (target f32[B(, N')], outputs for the action taken f32[B(, N)]) -> losses, priorities f32[B]
    error: Callable[[jax.Array, PyTree], tuple[jax.Array, jax.Array]]
    loss_name: str  # in the log
    # Of a network that draws quantiles: it is called with the key of each, key[B, N], where agents
    # act and learn, and with None where it predicts.
    draws: Draws | None = None


class Setup(NamedTuple):
    """The static parts of an agent that learns from single transitions of a replay."""

    settings: QLearningConfig
    method: Method
    learner: Learner
    replay: ReplaySizes
    epsilon: Callable[[jax.Array, int], jax.Array]  # (updates done, E) -> f32[E]
    num_updates: int  # updates of the whole run

    @property
    def prioritizes(self) -> bool:
        """Returns whether transitions are drawn by priority."""
        return self.settings.priority_exponent > 0

    @property
    def draws(self) -> bool:
        """Returns whether the network draws, quantiles or the noise of its weights."""
        return self.method.draws is not None or self.learner.network.config.noisy

    def keys(self, rows: jax.Array, part: str) -> jax.Array:
        """Returns the network's keys: key[B] of noise, or key[B, N] of a part of `Draws`."""
        if self.method.draws is None:
            return rows
        count = getattr(self.method.draws, part)
        return jax.vmap(lambda key: jax.random.split(key, count))(rows)


class Batch(NamedTuple):
    """The transitions of a gradient step, with their targets."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B(, N)], without what `objective` adds
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows
    importance: jax.Array  # f32[B], of draws by priority; else 1
    keys: PyTree  # key[B(, N)] of a network that draws, else None


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state: an empty replay, a target network that is a copy."""
    settings, spec, num_envs = setup.settings, setup.learner.spec, setup.replay.num_envs
    rows = buffer.rows_per_env(settings.replay_capacity, num_envs, settings.rollout_length)
    priorities = prioritized.new(spec.num_envs, rows) if setup.prioritizes else ()
    memory = buffer.new(spec.num_envs, rows, spec.frame_shape)._replace(priorities=priorities)
    return state_with_target(setup, key)._replace(memory=memory)


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], no extras.

    A network that draws does so for each observation, in evaluation too.
    """
    act_keys, keys = key, None
    if setup.draws:
        act_keys, rows = jnp.unstack(jax.vmap(jax.random.split)(key), axis=1)
        keys = setup.keys(rows, "acting")
    outputs = actor_outputs(setup.learner, actor, observation, keys)
    epsilon = setup.epsilon(actor.updates, len(observation))
    return Choice(exploration.epsilon_greedy(act_keys, setup.method.values(outputs), epsilon))


def predict(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy of evaluation and the returns of observations u8[B, 84, 84, 4].

    A noisy network predicts by its mean weights, and one of drawn quantiles by even levels, so its
    probabilities are those of a game without draws, which `act` does not play.
    """
    method = setup.method
    outputs = actor_outputs(setup.learner, actor, observation)
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
    """Returns transitions [B] with their targets; `actor` is the online network's.

    The online network's Munchausen bonus is left to `objective`.
    """
    size, next_observation = len(transitions.action), transitions.next_observation
    keys: list[PyTree] = [None] * 3
    if setup.draws:
        parts = zip(jax.random.split(key, 3), ("target", "acting", "online"), strict=True)
        keys = [setup.keys(batches.keys_per_index(k, size), part) for k, part in parts]
    network, statistics = setup.learner.network, actor.statistics
    outputs = forward(network, target_params, statistics, next_observation, keys[0])
    reward = transitions.reward
    if soft := setup.settings.munchausen:
        if not soft.online:
            before = forward(network, target_params, statistics, transitions.observation, keys[1])
            reward += bonus(setup, before, transitions.action)
        values = setup.method.values(outputs)
        value = munchausen.soft_bootstrap(outputs, values, soft.temperature)
    else:
        selector = outputs
        if setup.settings.double_q:
            selector = forward(network, actor.params, statistics, next_observation, keys[1])
        value = bootstrap(setup.method, outputs, selector)
    return Batch(
        observation=transitions.observation,
        action=transitions.action,
        target=setup.method.target(reward, transitions.discount, value),
        weight=row_weights(transitions.valid),
        importance=jnp.ones(size),
        keys=keys[2],
    )


def bonus(setup: Setup, outputs: PyTree, action: jax.Array) -> jax.Array:
    """Returns what Munchausen targets add to rewards, of outputs f32[B, A(, N)]: f32[B]."""
    soft = setup.settings.munchausen
    assert soft
    values = jax.lax.stop_gradient(setup.method.values(outputs))
    return munchausen.bonus(values, action, soft.scale, soft.temperature, soft.clip)


def select(outputs: PyTree, action: jax.Array) -> PyTree:
    """Returns the outputs for actions i32[B]: f32[B, A(, N)] -> f32[B(, N)]."""
    return jax.tree.map(lambda x: distributions.select(x, action), outputs)


def bootstrap(method: Method, outputs: PyTree, selector: PyTree) -> PyTree:
    """Returns the outputs for the actions that `selector` values most.

    Both arguments are f32[B, A(, N)], the result is f32[B(, N)].
    """
    return select(outputs, jnp.argmax(method.values(selector), axis=-1))


def loss(
    method: Method, outputs: PyTree, batch: Batch
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the weighted sum of the losses, with (sums for the log, the priorities f32[B])."""
    chosen = select(outputs, batch.action)
    losses, priorities = method.error(batch.target, chosen)
    total = jnp.sum(batch.weight * batch.importance * losses)
    value = jnp.sum(batch.weight * method.values(chosen))
    return total, ({method.loss_name: total, "value/q": value}, priorities)


def objective(
    setup: Setup, statistics: PyTree, params: PyTree, batch: Batch
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """Returns the loss of the parameters on a batch, with (sums for the log, priorities f32[B]).

    Munchausen's log-probability, if it is the online network's, comes from the same pass: of the
    quantiles and the noise that learn, where the network draws.
    """
    network = setup.learner.network
    outputs = forward(network, params, statistics, batch.observation, batch.keys)
    soft = setup.settings.munchausen
    if soft and soft.online:
        added = bonus(setup, outputs, batch.action)
        quantiles = (1,) * (batch.target.ndim - 1)
        batch = batch._replace(target=batch.target + added.reshape(-1, *quantiles))
    return loss(setup.method, outputs, batch)


def importance_exponent(setup: Setup, updates: jax.Array) -> jax.Array:
    """Returns β of prioritized replay after `updates` updates; it moves linearly to its end."""
    start, end = setup.settings.importance_exponent, setup.settings.importance_exponent_end
    share = jnp.minimum(updates / max(setup.num_updates, 1), 1.0)
    return start + share * (end - start)


def draw_batch(
    setup: Setup, actor: ActorState, memory: buffer.Replay, target_params: PyTree, key: jax.Array
) -> tuple[buffer.Place, Batch]:
    """Draws this device's share of a batch from the memory, with the places it begins at."""
    settings = setup.settings
    size = settings.batch_size // jax.lax.axis_size(AXIS)
    place_key, network_key = jax.random.split(key)
    window = settings.n_step, settings.gamma, setup.learner.spec.stack_size
    if not setup.prioritizes:
        place = buffer.draw_uniform(place_key, memory, size, settings.n_step)
        transitions = buffer.read(memory, place, *window)
        return place, make_batch(setup, actor, target_params, transitions, network_key)
    place, probability = prioritized.draw(place_key, memory, size)
    transitions = buffer.read(memory, place, *window)
    batch = make_batch(setup, actor, target_params, transitions, network_key)
    exponent = importance_exponent(setup, actor.updates)
    return place, batch._replace(importance=prioritized.importance(probability, exponent))


def gradient_step(
    setup: Setup,
    actor: ActorState,
    memory: buffer.Replay,
    learned: ReplayLearned,
    key: jax.Array,
) -> ReplayLearned:
    """Takes a gradient step on a batch from the memory, whose priorities are those in `learned`."""
    actor = actor._replace(params=learned.params)
    memory = memory._replace(priorities=learned.priorities)
    place, batch = draw_batch(setup, actor, memory, learned.train_state.target_params, key)
    total_loss = partial(objective, setup, actor.statistics)
    rate = setup.learner.learning_rate(actor.updates)
    learned, errors = descend_on_draw(setup.learner, total_loss, learned, batch, rate)
    if not setup.prioritizes:
        return learned
    exponent = setup.settings.priority_exponent
    return learned._replace(priorities=prioritized.update(memory, place, errors, exponent))


def add_to_memory(setup: Setup, memory: buffer.Replay, trajectory: Trajectory) -> buffer.Replay:
    """Adds a trajectory [T, E] to the replay, with the largest priority if it has priorities."""
    memory = buffer.add(memory, trajectory)
    if setup.prioritizes:
        return prioritized.follow(memory, len(trajectory.action), setup.settings.n_step)
    return memory


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Adds a trajectory [T, E] to the replay and takes gradient steps on batches from it."""
    actor, memory = state.actor, add_to_memory(setup, state.memory, trajectory)
    state = state._replace(memory=memory)
    has_any = buffer.num_places(memory, setup.settings.n_step) > 0
    step = partial(gradient_step, setup, actor, memory)
    names = (setup.method.loss_name, "value/q")
    new, metrics = learn_from(setup, step, state, trajectory, has_any, key, names)
    metrics["policy/epsilon"] = setup.epsilon(actor.updates, setup.learner.spec.num_envs).mean()
    if setup.prioritizes:
        metrics["replay/importance_exponent"] = importance_exponent(setup, actor.updates)
        metrics["replay/largest_priority"] = mean_over_devices(new.memory.priorities.largest[0])
    return new, metrics


def make(plan: Plan, learner: Learner, method: Method) -> Agent:
    """Returns the agent that learns by the method, as `config.agent` describes it."""
    settings = plan.config.agent
    assert isinstance(settings, QLearningConfig)
    replay = replay_sizes(plan, settings)
    epsilon = exploration.schedule(settings, plan.steps_per_update)
    setup = Setup(settings, method, learner, replay, epsilon, plan.num_updates)
    skip = partial(copy_target, every=replay.target_interval)
    return agent_of(setup, init, act, update, predict, interrupt=buffer.interrupt, skip=skip)
