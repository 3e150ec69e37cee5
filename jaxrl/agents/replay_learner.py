"""Gradient steps on batches from a replay, which DQN, C51, Rainbow and R2D2 share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import Setup
from jaxrl.agents.learner import (
    GRADIENT_SUMS,
    Learned,
    Learner,
    TrainState,
    copy_target,
    descend_with_aux,
    target_interval,
)
from jaxrl.config.plan import Plan
from jaxrl.config.value_based import ReplayConfig
from jaxrl.networks.actors import next_actor
from jaxrl.replay import buffer
from jaxrl.types import ActorState, AgentState, Mean, Metrics, PyTree, Trajectory


class ReplaySizes(NamedTuple):
    """Numbers of environments that fill a replay, and of steps that learn from it."""

    num_envs: int  # over all devices
    num_batches: int  # gradient steps of an update
    target_interval: int  # updates between two copies into the target network


class ReplaySetup(Setup, Protocol):
    """The static parts of an agent with a replay; its settings are a `ReplayConfig`."""

    @property
    def replay(self) -> ReplaySizes:
        """The sizes of learning."""


class ReplayLearned(NamedTuple):
    """The arrays that a gradient step changes, and the sums of its metrics."""

    params: PyTree
    train_state: TrainState
    priorities: PyTree  # the memory's
    sums: dict[str, jax.Array]  # f32[]


def replay_sizes(plan: Plan, settings: ReplayConfig) -> ReplaySizes:
    """Returns the sizes of a plan."""
    every = target_interval(plan, settings.target_update_interval)
    return ReplaySizes(plan.config.num_envs, plan.gradient_steps, every)


def descend_on_draw(
    learner: Learner,
    objective: Callable[[PyTree, PyTree], tuple[jax.Array, Any]],
    learned: ReplayLearned,
    batch: PyTree,
    rate: jax.Array,
) -> tuple[ReplayLearned, PyTree]:
    """Takes a gradient step on a batch, as `descend_with_aux`; returns the auxiliary arrays, too.

    The priorities are left to the caller.
    """
    before = Learned(learned.params, learned.train_state.opt_state)
    after, metrics, aux = descend_with_aux(learner, objective, before, batch, rate)
    train_state = learned.train_state._replace(opt_state=after.opt_state)
    sums = jax.tree.map(jnp.add, learned.sums, metrics)
    return ReplayLearned(after.params, train_state, learned.priorities, sums), aux


def learn_from(
    setup: ReplaySetup,
    step: Callable[[ReplayLearned, jax.Array], ReplayLearned],
    state: AgentState,
    trajectory: Trajectory,
    has_any: jax.Array,
    key: jax.Array,
    names: Sequence[str],
) -> tuple[AgentState, Metrics]:
    """Takes gradient steps on a memory that holds the newest trajectory, and logs them.

    Args:
      setup: the agent's.
      step: (learned, key[]) -> learned.
      state: before the update, with the new memory.
      trajectory: [T, E], the newest.
      has_any: b[], whether the memory holds anything to learn from.
      key: key[], of all steps.
      names: the sums that the objective of a step returns.
    """
    sizes = setup.replay
    train_state = copy_target(state, sizes.target_interval).train_state
    ready = (state.memory.steps[0] >= setup.settings.learning_starts / sizes.num_envs) & has_any
    count = jnp.where(ready, sizes.num_batches, 0)  # with 0 there are no losses
    keys = jax.random.split(key, sizes.num_batches)
    sums = {name: jnp.float32(0) for name in (*names, *GRADIENT_SUMS)}
    start = ReplayLearned(state.actor.params, train_state, state.memory.priorities, sums)
    learned = jax.lax.fori_loop(0, count, lambda i, learned: step(learned, keys[i]), start)
    memory = state.memory._replace(priorities=learned.priorities)
    new_actor = next_actor(setup.learner.network, state.actor, learned.params, trajectory)
    metrics = _log(setup, state.actor, memory, learned.sums, count)
    return AgentState(new_actor, learned.train_state, memory), metrics


def _log(
    setup: ReplaySetup,
    actor: ActorState,
    memory: buffer.Replay,
    sums: dict[str, jax.Array],
    count: jax.Array,
) -> Metrics:
    """Returns the metrics that all agents with a replay have, of i32[] gradient steps."""
    metrics: Metrics = {name: Mean(x, count.astype(jnp.float32)) for name, x in sums.items()}
    transitions = jnp.minimum(memory.steps[0], memory.ring.valid.shape[1])
    return metrics | {
        "loss/learning_rate": setup.learner.learning_rate(actor.updates),
        "replay/transitions": transitions * jnp.float32(setup.replay.num_envs),
    }
