"""Q-learning from a replay: what DQN, C51 and Rainbow share.

Many environments play at once; as many transitions are trained on per transition played as the
papers do, in more or larger batches (Stooke & Abbeel 2018, section 3.2). Of a transition with
n-step rewards G and the bootstrap m ≤ n steps later,

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

from jaxrl.config.algorithms import ReplayConfig
from jaxrl.config.schema import Config, gradient_steps
from jaxrl.networks import heads
from jaxrl.networks.actors import init_actor, next_actor
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import exploration, optimizers
from jaxrl.ops.gradients import gradient_and_rows, row_weights
from jaxrl.replay import buffer, prioritized
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    AXIS,
    ActorState,
    Agent,
    AgentState,
    EnvSpec,
    Mean,
    Metrics,
    PyTree,
    Trajectory,
)


class Method(NamedTuple):
    """What tells one algorithm from another; N are what the network says of one action."""

    num_atoms: int  # N; for 1 the network says f32[..., A], else f32[..., A, N]
    values: Callable[[jax.Array], jax.Array]  # f32[..., A(, N)] -> f32[..., A], or without A
    # (G f32[B], γᵐ f32[B], the bootstrap's f32[B(, N)]) -> f32[B(, N)]
    target: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    # (target, f32[B(, N)] of the chosen action) -> the losses f32[B], the priorities f32[B]
    error: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    loss_name: str  # in the log


class Learner(NamedTuple):
    """What the gradient steps keep; the same on every device."""

    moments: PyTree  # the optimizer's
    target: PyTree  # parameters of the target network


class Rows(NamedTuple):
    """What one gradient is taken of, a batch B."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B(, N)]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows
    importance: jax.Array  # f32[B], of draws by priority; else 1
    noise: PyTree  # key[B] of a noisy network, else None


def bootstrap(method: Method, prediction: jax.Array, selector: jax.Array) -> jax.Array:
    """What `prediction` says of the actions that `selector` values most; f32[B, A(, N)] both.

    Returns f32[B(, N)].
    """
    return select(prediction, jnp.argmax(method.values(selector), axis=-1))


def loss(
    method: Method, prediction: jax.Array, rows: Rows
) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
    """The weighted sum of the rows' losses, with (sums for the log, the priorities f32[B])."""
    chosen = select(prediction, rows.action)
    losses, priorities = method.error(rows.target, chosen)
    total = jnp.sum(rows.weight * rows.importance * losses)
    value = jnp.sum(rows.weight * method.values(chosen))
    return total, ({method.loss_name: total, "value/q": value}, priorities)


def select(prediction: jax.Array, action: jax.Array) -> jax.Array:
    """What is said of one action each: f32[B, A(, N)], i32[B] -> f32[B(, N)]."""
    index = action.reshape(-1, *[1] * (prediction.ndim - 1))
    return jnp.take_along_axis(prediction, index, axis=1)[:, 0]


def copy_target(state: AgentState, every: int) -> AgentState:
    """Copies the parameters into the target network in each `every`-th update.

    Args:
      state: whose `optimizer` has a `target`, the parameters of the target network.
      every: updates between two copies; the first falls on update 0.
    """
    target = optax.periodic_update(
        state.actor.params, state.optimizer.target, state.actor.updates, every
    )
    return state._replace(optimizer=state.optimizer._replace(target=target))


def make(config: Config, spec: EnvSpec, method: Method) -> Agent:
    """An agent that learns by the method, as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, ReplayConfig)
    network = heads.ActionValueNetwork(spec.num_actions, method.num_atoms, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    epsilon = exploration.schedule(config)
    num_batches = gradient_steps(config)
    target_updates = max(1, round(settings.target_update_interval / config.steps_per_update()))
    prioritizes = settings.priority_exponent > 0
    names = (method.loss_name, "value/q", "loss/gradient_norm")

    def predict(
        params: PyTree, statistics: PyTree, observation: jax.Array, noise: PyTree
    ) -> jax.Array:
        x = normalize(observation, statistics)
        return network.apply({"params": params}, x, noise)

    def keys_of_noise(key: jax.Array, number: int) -> PyTree:
        if not config.network.noisy:
            return None
        rows = buffer.batch_rows(number)
        return jax.vmap(jax.random.fold_in, (None, 0))(key, rows)

    def init(key: jax.Array) -> AgentState:
        actor = init_actor(network, key, spec.frame_shape)
        rows = buffer.rows_per_env(
            settings.replay_capacity, config.num_envs, settings.rollout_length
        )
        priorities = prioritized.new(spec.num_envs, rows) if prioritizes else ()
        memory = buffer.new(spec.num_envs, rows, spec.frame_shape)._replace(priorities=priorities)
        return AgentState(actor, Learner(optimizer.init(actor.params), actor.params), memory)

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple]:
        keys, noise = key, None
        if config.network.noisy:
            keys, noise = jnp.unstack(jax.vmap(jax.random.split)(key), axis=1)
        values = method.values(predict(actor.params, actor.statistics, observation, noise))
        action = exploration.epsilon_greedy(keys, values, epsilon(actor.updates, len(observation)))
        return action, ()

    def as_rows(
        key: jax.Array, actor: ActorState, learner: Learner, batch: buffer.Transitions
    ) -> Rows:
        size = len(batch.action)
        keys = [keys_of_noise(k, size) for k in jax.random.split(key, 3)]
        there = predict(learner.target, actor.statistics, batch.next_observation, keys[0])
        selector = there
        if settings.double_q:
            selector = predict(actor.params, actor.statistics, batch.next_observation, keys[1])
        value = bootstrap(method, there, selector)
        return Rows(
            observation=batch.observation,
            action=batch.action,
            target=method.target(batch.reward, batch.discount, value),
            weight=row_weights(batch.valid),
            importance=jnp.ones(size),
            noise=keys[2],
        )

    def learn(
        key: jax.Array, memory: buffer.Replay, actor: ActorState, learner: Learner
    ) -> tuple[PyTree, Learner, PyTree, dict[str, jax.Array]]:
        """One gradient step; the priorities after it."""
        size = settings.batch_size // jax.lax.axis_size(AXIS)
        place_key, noise_key = jax.random.split(key)
        if prioritizes:
            place, probability = prioritized.draw(place_key, memory, size)
        else:
            place = buffer.draw_uniform(place_key, memory, size, settings.n_step)
        batch = buffer.read(memory, place, settings.n_step, settings.gamma)
        rows = as_rows(noise_key, actor, learner, batch)
        if prioritizes:
            importance = prioritized.importance(probability, beta(actor.updates))
            rows = rows._replace(importance=importance)

        def objective(
            params: PyTree, part: Rows
        ) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
            seen = predict(params, actor.statistics, part.observation, part.noise)
            return loss(method, seen, part)

        gradients, metrics, errors = gradient_and_rows(
            objective, actor.params, rows, settings.micro_batch
        )
        params, moments = optimizers.apply(
            optimizer, gradients, learner.moments, actor.params, schedule(actor.updates)
        )
        priorities = memory.priorities
        if prioritizes:
            priorities = prioritized.update(memory, place, errors, settings.priority_exponent)
        metrics["loss/gradient_norm"] = optax.tree.norm(gradients)
        return params, learner._replace(moments=moments), priorities, metrics

    def beta(updates: jax.Array) -> jax.Array:
        share = jnp.minimum(updates / max(config.num_updates(), 1), 1.0)
        return settings.importance_exponent + share * (1 - settings.importance_exponent)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        memory = buffer.add(state.memory, trajectory)
        if prioritizes:
            memory = prioritized.follow(memory, len(trajectory.action), settings.n_step)
        actor, learner = state.actor, copy_target(state, target_updates).optimizer
        ready = (memory.steps[0] >= settings.learning_starts / config.num_envs) & (
            buffer.num_places(memory, settings.n_step) > 0
        )
        keys = jax.random.split(key, num_batches)

        def body(
            i: jax.Array, carry: tuple[PyTree, Learner, PyTree, dict[str, jax.Array]]
        ) -> tuple[PyTree, Learner, PyTree, dict[str, jax.Array]]:
            params, learner, priorities, sums = carry
            now, then = actor._replace(params=params), memory._replace(priorities=priorities)
            *learned, metrics = learn(keys[i], then, now, learner)
            return *learned, jax.tree.map(jnp.add, sums, metrics)

        # Without enough to learn from the loop is empty, and there are no losses.
        start = (actor.params, learner, memory.priorities, {n: jnp.float32(0) for n in names})
        count = jnp.where(ready, num_batches, 0)
        params, learner, priorities, sums = jax.lax.fori_loop(0, count, body, start)
        metrics: Metrics = {name: Mean(sums[name], count.astype(jnp.float32)) for name in names}
        metrics |= {
            "loss/learning_rate": schedule(actor.updates),
            "policy/epsilon": epsilon(actor.updates, spec.num_envs).mean(),
            "replay/transitions": jnp.minimum(memory.steps[0], memory.ring.valid.shape[1])
            * jnp.float32(config.num_envs),
        }
        if prioritizes:
            metrics["replay/importance_exponent"] = beta(actor.updates)
            metrics["replay/largest_priority"] = mean_over_devices(priorities.largest[0])
        new_actor = next_actor(actor, params, trajectory)
        return AgentState(new_actor, learner, memory._replace(priorities=priorities)), metrics

    skip = partial(copy_target, every=target_updates)
    return Agent(init, act, update, settings.rollout_length, buffer.interrupt, skip)
