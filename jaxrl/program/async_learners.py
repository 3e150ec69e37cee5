"""Learners that each train a copy of the parameters and merge regularly, or one for all devices.

Asynchronous optimization made deterministic (A3C, Mnih 2016; APPO, Stooke & Abbeel 2018, section 4
and appendix B). Each learner plays its share of the environments with a separate copy of parameters
and optimizer and takes `sync_every` updates on it. Then all merge as if one after another had
pushed its changes to a central copy. With n gradient steps a learner contributes

θ ← θ + Σᵢ Δθᵢ,  m ← β₁ⁿ m + (1-β₁) Σᵢ β₁ⁿ⁻ⁱ gᵢ,  v ← β₂ⁿ v + (1-β₂) Σᵢ β₂ⁿ⁻ⁱ gᵢ²

(the multi-step rule of Adam; RMSProp's mean of squares follows the rule of v). A learner that began
with x₀ and ended with x_d holds βⁿ x₀ + its sum, so D learners push, in their order,

x ← x₀ + Σ_d (βⁿ)ᴰ⁻¹⁻ᵈ (x_d - x₀),  with β = 1 for parameters and counts.

With one learner this is x_d: one device with `sync_every = 1` trains with plain Adam.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.plan import Plan
from jaxrl.networks.running_statistics import RunningStatistics, join_statistics
from jaxrl.runtime.collectives import mean_over_devices, sum_over_devices
from jaxrl.types import AXIS, Agent, AgentState, Metrics, PyTree, Trajectory

STATES = (optax.ScaleByAdamState, optax.ScaleByRmsState, RunningStatistics)


class Learners(NamedTuple):
    """The learners of each device, as one agent for all its environments."""

    agent: Agent  # takes states as `spread` makes them
    spread: Callable[[AgentState], AgentState]  # the common state -> every learner's
    merge: Callable[[AgentState, AgentState], AgentState]  # (common before, learners') -> common
    average: Callable[[Metrics], Metrics]  # means over a device's learners -> over all learners
    updates_between_merges: int


def make_learners(plan: Plan, agent: Agent) -> Learners:
    """Makes the configured learners; `agent` is made for the environments of one learner."""
    if not plan.config.parallel.sync_every:
        return unmerged(agent)
    count = plan.num_learners // plan.num_devices
    return Learners(
        agent=_joint_agent(agent, count),
        spread=partial(_spread, count),
        merge=partial(_merge, plan),
        average=mean_over_devices,
        updates_between_merges=plan.updates_per_merge,
    )


def unmerged(agent: Agent) -> Learners:
    """Returns an agent as one learner for all devices, or as learners that stay apart."""

    def same(value: Any) -> Any:
        return value

    return Learners(agent, same, lambda _, after: after, same, updates_between_merges=1)


def _spread(count: int, state: AgentState) -> AgentState:
    """Copies the common state for each of a device's learners; each has a memory already."""
    actor, train_state = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (count, *x.shape)), (state.actor, state.train_state)
    )
    return AgentState(actor, train_state, state.memory)


def _merge(plan: Plan, before: AgentState, after: AgentState) -> AgentState:
    """Returns the common state after all learners have pushed their changes."""
    push = partial(_push, decay=1.0)
    params = jax.tree.map(push, before.actor.params, after.actor.params)
    statistics, train_state = jax.tree.map(
        partial(_merge_part, plan),
        (before.actor.statistics, before.train_state),
        (after.actor.statistics, after.train_state),
        is_leaf=lambda x: isinstance(x, STATES),
    )
    actor = before.actor._replace(
        params=params, statistics=statistics, updates=after.actor.updates[0]
    )
    return AgentState(actor, train_state, after.memory)


def _push(before: jax.Array, after: jax.Array, decay: float) -> jax.Array:
    """Returns x₀ + Σ_d decayᴰ⁻¹⁻ᵈ (x_d - x₀) over all learners; `after` is x_d: [L, ...]."""
    count = after.shape[0]
    total = jax.lax.axis_size(AXIS) * count
    later = total - 1 - (jax.lax.axis_index(AXIS) * count + jnp.arange(count))
    difference = (after - before).astype(jnp.float32)
    weighted = jnp.tensordot(jnp.float32(decay) ** later, difference, axes=1)
    return before + sum_over_devices(weighted).astype(before.dtype)


def _merge_part(plan: Plan, before: PyTree, after: PyTree) -> PyTree:
    """Merges one of STATES, or returns a number that all learners share."""
    optimizer, steps = plan.config.optimizer, plan.gradient_steps * plan.updates_per_merge
    decay, decay_mean = optimizer.decay**steps, optimizer.decay_mean**steps

    def push(old: PyTree, new: PyTree, decay: float) -> PyTree:
        return jax.tree.map(partial(_push, decay=decay), old, new)

    if isinstance(before, optax.ScaleByAdamState):
        # The learners' counts differ if one has skipped an update.
        count = before.count + sum_over_devices(jnp.sum(after.count - before.count))
        return optax.ScaleByAdamState(
            # It stays at the largest number, as optax's count does, where the sum would wrap.
            count=jnp.where(count < before.count, jnp.iinfo(count.dtype).max, count),
            mu=push(before.mu, after.mu, decay_mean),
            nu=push(before.nu, after.nu, decay),
        )
    if isinstance(before, optax.ScaleByRmsState):
        return before._replace(nu=push(before.nu, after.nu, decay))
    if isinstance(before, RunningStatistics):
        return join_statistics(before, after)
    return after[0]


# --- one agent for all environments of a device: the first E / L are the first learner's, ... ---


def _joint_agent(agent: Agent, count: int) -> Agent:
    """Makes the agent whose states hold those of `count` learners: L = count."""
    return Agent(
        init=partial(_init, agent, count),
        act=partial(_act, agent, count),
        predict=agent.predict,  # by the merged actor
        update=partial(_update, agent, count),
        rollout_length=agent.rollout_length,
        interrupt=partial(_interrupt, agent),
        core=agent.core,
    )


def _init(agent: Agent, count: int, key: jax.Array) -> AgentState:
    """Returns the common state, with a memory for each learner."""
    state = agent.init(key)
    memory = jax.tree.map(lambda x: jnp.repeat(x[None], count, axis=0), state.memory)
    return state._replace(memory=memory)


def _act(
    agent: Agent, count: int, actor: Any, observation: PyTree, key: jax.Array
) -> tuple[PyTree, ...]:
    """Lets each learner act in its environments: actions i32[E], extras [E] and cores [E]."""
    operands = jax.tree.map(lambda x: split_envs(x, count, axis=0), (observation, key))
    sent: tuple[PyTree, ...] = _for_each(count, agent.act, actor, *operands)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), sent)


def _update(
    agent: Agent, count: int, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates each learner on the trajectory of its environments; the metrics are their means."""
    parts = jax.tree.map(lambda x: split_envs(x, count, axis=1), trajectory)
    numbers = jax.lax.axis_index(AXIS) * count + jnp.arange(count)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    state, metrics = _for_each(count, partial(_alone, agent.update), state, parts, keys)
    return state, jax.tree.map(lambda x: x.mean(0), metrics)


def _interrupt(agent: Agent, memory: PyTree) -> PyTree:
    """Interrupts the memory of every learner."""
    return jax.vmap(agent.interrupt)(memory) if jax.tree.leaves(memory) else memory


def split_envs(x: jax.Array, count: int, axis: int) -> jax.Array:
    """Divides environments among `count` learners: [..., E, ...] -> [L, ..., E / L, ...]."""
    parts = x.reshape(*x.shape[:axis], count, -1, *x.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


def _alone(update: Callable[..., Any], *operands: PyTree) -> Any:
    """Calls `update` on an axis of size one under the name that agents take means over."""
    results = jax.vmap(update, axis_name=AXIS)(*jax.tree.map(lambda x: x[None], operands))
    return jax.tree.map(lambda x: x[0], results)


def _for_each(count: int, call: Callable[..., Any], *operands: PyTree) -> Any:
    """Calls one learner after another; operands and results are [L, ...]."""
    if count > 1:
        return jax.lax.map(lambda xs: call(*xs), operands)
    # XLA keeps a loop of one round, and copies its carry.
    results = call(*jax.tree.map(lambda x: x[0], operands))
    return jax.tree.map(lambda x: x[None], results)
