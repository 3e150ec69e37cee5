"""Learners with parameters of their own that merge from time to time, or one for all devices.

Asynchronous optimization made deterministic (A3C, Mnih 2016; APPO, Stooke & Abbeel 2018, section 4
and appendix B). Each learner plays its share of the environments with its own copy of parameters
and optimizer, takes `sync_every` updates on it, and then all merge as if one after another had
pushed what it did to a central copy. Of n gradient steps a learner contributes

θ ← θ + Σᵢ Δθᵢ,  m ← β₁ⁿ m + (1-β₁) Σᵢ β₁ⁿ⁻ⁱ gᵢ,  v ← β₂ⁿ v + (1-β₂) Σᵢ β₂ⁿ⁻ⁱ gᵢ²

(the multi-step rule of Adam; RMSProp's mean of squares follows the rule of v). A learner that began
with x₀ and ended with x_d holds βⁿ x₀ + its own sum, so D of them push, in their order,

x ← x₀ + Σ_d (βⁿ)ᴰ⁻¹⁻ᵈ (x_d - x₀),  with β = 1 for parameters and counts.

Of one learner this is what it holds: with one device and `sync_every = 1`, plain Adam.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.schema import Config, gradient_steps
from jaxrl.networks.running_statistics import RunningStatistics, join_statistics
from jaxrl.runtime.collectives import mean_over_devices, sum_over_devices
from jaxrl.types import AXIS, Agent, AgentState, Metrics, PyTree, Trajectory

STATES = (optax.ScaleByAdamState, optax.ScaleByRmsState, RunningStatistics)


class Team(NamedTuple):
    """The learners of each device, as one agent for all its environments."""

    agent: Agent  # of states as `spread` makes them
    spread: Callable[[AgentState], AgentState]  # the common state -> every learner's
    merge: Callable[[AgentState, AgentState], AgentState]  # (common before, learners') -> common
    average: Callable[[Metrics], Metrics]  # of a device's learners -> of all learners
    updates: int  # between spread and merge


def make(config: Config, agent: Agent, num_devices: int) -> Team:
    """The learners as the configuration says; `agent` is made for the environments of one."""
    if not config.parallel.sync_every:
        return Team(agent, lambda state: state, lambda _, state: state, lambda x: x, updates=1)
    total = config.parallel.num_learners or num_devices
    count = total // num_devices
    steps = gradient_steps(config) * config.parallel.sync_every

    def spread(state: AgentState) -> AgentState:
        actor, optimizer = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (count, *x.shape)), (state.actor, state.optimizer)
        )
        return AgentState(actor, optimizer, state.memory)

    def merge(before: AgentState, after: AgentState) -> AgentState:
        push = partial(_push, decay=1.0, total=total)
        params = jax.tree.map(push, before.actor.params, after.actor.params)
        statistics, optimizer = jax.tree.map(
            lambda old, own: _merge(old, own, config, steps, total),
            (before.actor.statistics, before.optimizer),
            (after.actor.statistics, after.optimizer),
            is_leaf=lambda x: isinstance(x, STATES),
        )
        actor = before.actor._replace(
            params=params, statistics=statistics, updates=after.actor.updates[0]
        )
        return AgentState(actor, optimizer, after.memory)

    return Team(
        _team_agent(agent, count), spread, merge, mean_over_devices, config.parallel.sync_every
    )


def _push(before: jax.Array, own: jax.Array, decay: float, total: int) -> jax.Array:
    """x₀ + Σ_d decayᴰ⁻¹⁻ᵈ (x_d - x₀) over the learners of all devices, x_d in `own` [L, ...]."""
    later = total - 1 - (jax.lax.axis_index(AXIS) * own.shape[0] + jnp.arange(own.shape[0]))
    difference = (own - before).astype(jnp.float32)
    weighted = jnp.tensordot(jnp.float32(decay) ** later, difference, axes=1)
    return before + sum_over_devices(weighted).astype(before.dtype)


def _merge(before: PyTree, own: PyTree, config: Config, steps: int, total: int) -> PyTree:
    """One of STATES, or a number that all learners share."""
    decay, decay_mean = config.optimizer.decay**steps, config.optimizer.decay_mean**steps

    def push(old: PyTree, new: PyTree, decay: float) -> PyTree:
        return jax.tree.map(partial(_push, decay=decay, total=total), old, new)

    if isinstance(before, optax.ScaleByAdamState):
        return optax.ScaleByAdamState(
            # Not the same of all, where one has skipped an update.
            count=before.count + sum_over_devices(jnp.sum(own.count - before.count)),
            mu=push(before.mu, own.mu, decay_mean),
            nu=push(before.nu, own.nu, decay),
        )
    if isinstance(before, optax.ScaleByRmsState):
        return before._replace(nu=push(before.nu, own.nu, decay))
    if isinstance(before, RunningStatistics):
        return join_statistics(before, own)
    return own[0]


def _team_agent(agent: Agent, count: int) -> Agent:
    """An agent for all environments of a device: the first E / L are the first learner's, ..."""

    def split(x: jax.Array, axis: int) -> jax.Array:
        """[..., E, ...] -> [L, ..., E / L, ...]"""
        parts = x.reshape(*x.shape[:axis], count, -1, *x.shape[axis + 1 :])
        return jnp.moveaxis(parts, axis, 0)

    def alone(update: Callable[..., Any]) -> Callable[..., Any]:
        """With an axis of its own, of size one, under the name that agents take means over."""

        def run(*operands: PyTree) -> Any:
            results = jax.vmap(update, axis_name=AXIS)(*jax.tree.map(lambda x: x[None], operands))
            return jax.tree.map(lambda x: x[0], results)

        return run

    def for_each(call: Callable[..., Any], *operands: PyTree) -> Any:
        """One learner after another; XLA keeps a loop of one round, and copies what it carries."""
        if count > 1:
            return jax.lax.map(lambda xs: call(*xs), operands)
        results = call(*jax.tree.map(lambda x: x[0], operands))
        return jax.tree.map(lambda x: x[None], results)

    def init(key: jax.Array) -> AgentState:
        state = agent.init(key)
        memory = jax.tree.map(lambda x: jnp.repeat(x[None], count, axis=0), state.memory)
        return state._replace(memory=memory)

    def act(actor: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, PyTree]:
        choice = for_each(agent.act, actor, split(observation, 0), split(key, 0))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), choice)

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        own = jax.tree.map(lambda x: split(x, 1), trajectory)
        numbers = jax.lax.axis_index(AXIS) * count + jnp.arange(count)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        state, metrics = for_each(alone(agent.update), state, own, keys)
        return state, jax.tree.map(lambda x: x.mean(0), metrics)

    def interrupt(memory: PyTree) -> PyTree:
        return jax.vmap(agent.interrupt)(memory) if jax.tree.leaves(memory) else memory

    return Agent(init, act, update, agent.rollout_length, interrupt)
