"""Categorical DQN: the distribution of the return on fixed atoms (C51, Bellemare 2017).

The loss of a transition from the replay is the cross-entropy between the projected Bellman target
of a target network and the prediction,

L = -Σᵢ mᵢ · log pᵢ(s, a),  m = Φ(G + γᵐ z, p_target(s', a*)),  a* = argmaxₐ Σᵢ zᵢ pᵢ(s', a)

with n-step rewards G, and a* chosen by the online network for double Q-learning. Many environments
play at once; as many transitions are trained on per transition played as the paper does, in more
or larger batches (Stooke & Abbeel 2018, section 3.2).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl import distributional, networks, optimizers, replay
from jaxrl.config import C51Config, Config, gradient_steps
from jaxrl.optimizers import row_weights
from jaxrl.replay import Transitions
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


class Learner(NamedTuple):
    """What the gradient steps keep; the same on every device."""

    moments: PyTree  # the optimizer's
    target: PyTree  # parameters of the target network


class Rows(NamedTuple):
    """What one gradient is taken of, a batch B."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B, N], the projected distribution
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def epsilon(config: C51Config, steps: jax.Array) -> jax.Array:
    """The probability of a random action after so many agent steps: linear, then constant."""
    share = jnp.minimum(steps / config.epsilon_decay_steps, 1.0)
    return config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)


def epsilon_greedy(key: jax.Array, values: jax.Array, epsilon: jax.Array) -> jax.Array:
    """The best action, or with probability ε any; key[E], f32[E, A], f32[] -> i32[E]."""
    keys = jax.vmap(jax.random.split)(key)
    explores = jax.vmap(jax.random.uniform)(keys[:, 0]) < epsilon
    draw = jax.vmap(lambda k: jax.random.randint(k, (), 0, values.shape[-1]))
    return jnp.where(explores, draw(keys[:, 1]), jnp.argmax(values, axis=-1)).astype(jnp.int32)


def target_distribution(
    logits_tp1: jax.Array,
    selector_tp1: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
    atoms: jax.Array,
) -> jax.Array:
    """The projected Bellman target of one transition.

    Args:
      logits_tp1: f32[A, N], of the target network at the bootstrap.
      selector_tp1: f32[A, N], of the network that chooses the action there.
      reward: f32[], n-step.
      discount: f32[], of the bootstrap.
      atoms: f32[N].

    Returns:
      f32[N].
    """
    best = jnp.argmax(jax.nn.softmax(selector_tp1) @ atoms)
    probabilities = jax.nn.softmax(logits_tp1[best])
    return distributional.project(reward + discount * atoms, probabilities, atoms)


def loss(logits: jax.Array, rows: Rows, atoms: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the cross-entropies of logits f32[B, A, N], and sums for the log."""
    chosen = jnp.take_along_axis(logits, rows.action[:, None, None], axis=1)[:, 0]
    cross_entropy = -jnp.sum(rows.target * jax.nn.log_softmax(chosen), axis=-1)
    total = jnp.sum(rows.weight * cross_entropy)
    value = jnp.sum(rows.weight * (jax.nn.softmax(chosen) @ atoms))
    return total, {"loss/cross_entropy": total, "value/q": value}


def make(config: Config, spec: EnvSpec) -> Agent:
    """C51 as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, C51Config)
    network = networks.ActionValueNetwork(spec.num_actions, settings.num_atoms, config.network)
    optimizer = optimizers.make_optimizer(config.optimizer)
    schedule = optimizers.learning_rate(config)
    atoms = distributional.support(settings.v_min, settings.v_max, settings.num_atoms)
    steps_per_update = config.steps_per_update()
    num_batches = gradient_steps(config)
    target_updates = max(1, settings.target_update_interval // steps_per_update)

    def predict(params: PyTree, statistics: PyTree, observation: jax.Array) -> jax.Array:
        return network.apply({"params": params}, networks.normalise(observation, statistics))

    def init(key: jax.Array) -> AgentState:
        params = networks.init_params(network, key)
        actor = ActorState(params, networks.init_statistics(config.network), jnp.int32(0))
        rows = replay.rows_per_env(
            settings.replay_capacity, config.num_envs, settings.rollout_length
        )
        learner = Learner(optimizer.init(params), params)
        return AgentState(actor, learner, replay.new(spec.num_envs, rows))

    def act(actor: ActorState, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple]:
        logits = predict(actor.params, actor.statistics, observation)
        explore = epsilon(settings, actor.updates * float(steps_per_update))
        return epsilon_greedy(key, jax.nn.softmax(logits) @ atoms, explore), ()

    def as_rows(actor: ActorState, learner: Learner, batch: Transitions) -> Rows:
        logits = predict(learner.target, actor.statistics, batch.next_observation)
        selector = logits
        if settings.double_q:
            selector = predict(actor.params, actor.statistics, batch.next_observation)
        targets = jax.vmap(target_distribution, in_axes=(0, 0, 0, 0, None))
        return Rows(
            observation=batch.observation,
            action=batch.action,
            target=targets(logits, selector, batch.reward, batch.discount, atoms),
            weight=row_weights(batch.valid),
        )

    def learn(
        key: jax.Array, memory: replay.Replay, actor: ActorState, learner: Learner
    ) -> tuple[PyTree, Learner, dict[str, jax.Array]]:
        """One gradient step."""
        size = settings.batch_size // jax.lax.axis_size(AXIS)
        place = replay.draw_uniform(key, memory, size, settings.n_step)
        batch = replay.read(memory, place, settings.n_step, settings.gamma)
        rows = as_rows(actor, learner, batch)

        def objective(params: PyTree, part: Rows) -> tuple[jax.Array, dict[str, jax.Array]]:
            return loss(predict(params, actor.statistics, part.observation), part, atoms)

        gradients, metrics = optimizers.gradient(
            objective, actor.params, rows, settings.micro_batch
        )
        params, moments = optimizers.apply(
            optimizer, gradients, learner.moments, actor.params, schedule(actor.updates)
        )
        metrics["loss/gradient_norm"] = optax.tree.norm(gradients)
        return params, learner._replace(moments=moments), metrics

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        memory = replay.add(state.memory, trajectory)
        actor, learner = state.actor, state.optimizer
        copies = actor.updates % target_updates == 0
        learner = learner._replace(
            target=jax.tree.map(
                lambda new, old: jnp.where(copies, new, old), actor.params, learner.target
            )
        )
        ready = (memory.steps[0] >= settings.learning_starts / config.num_envs) & (
            replay.num_places(memory, settings.n_step) > 0
        )
        keys = jax.random.split(key, num_batches)
        names = ("loss/cross_entropy", "value/q", "loss/gradient_norm")

        def body(
            i: jax.Array, carry: tuple[PyTree, Learner, dict[str, jax.Array]]
        ) -> tuple[PyTree, Learner, dict[str, jax.Array]]:
            params, learner, sums = carry
            now = actor._replace(params=params)
            params, learner, metrics = learn(keys[i], memory, now, learner)
            return params, learner, jax.tree.map(jnp.add, sums, metrics)

        # Without enough to learn from the loop is empty, and there are no losses.
        start = (actor.params, learner, {name: jnp.float32(0) for name in names})
        count = jnp.where(ready, num_batches, 0)
        params, learner, sums = jax.lax.fori_loop(0, count, body, start)
        metrics: Metrics = {name: Mean(sums[name], count.astype(jnp.float32)) for name in names}
        metrics |= {
            "loss/learning_rate": schedule(actor.updates),
            "policy/epsilon": epsilon(settings, actor.updates * float(steps_per_update)),
            "replay/transitions": jnp.minimum(memory.steps[0], memory.ring.valid.shape[1])
            * jnp.float32(config.num_envs),
        }
        newest_frames = trajectory.observation[:-1, ..., -1]
        statistics = networks.update_statistics(actor.statistics, newest_frames)
        new_actor = ActorState(params, statistics, actor.updates + 1)
        return AgentState(new_actor, learner, memory), metrics

    return Agent(init, act, update, settings.rollout_length, replay.interrupt)
