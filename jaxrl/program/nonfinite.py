"""NaN and infinity in losses, parameters and optimizer state: named, or skipped."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import Agent, AgentState, Count, Mean, Metrics, PyTree, Trajectory

SKIPPED = "loss/skipped_updates"


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _mean(value: Any) -> Mean:
    return value if isinstance(value, Mean) else Mean(value, jnp.float32(1))


def guarded(agent: Agent, skip: bool) -> Agent:
    """Returns the agent, which undoes updates that are not finite if `skip`.

    A skipped update leaves parameters, statistics and optimizer state unchanged, except by
    `Agent.skip`; the memory keeps the played steps, and the update counts for the schedules. The
    metrics are means over the other updates. They have the same form without `skip`, so a run may
    change it.
    """

    return agent._replace(update=partial(_guarded_update if skip else _counted_update, agent))


def _counted_update(
    agent: Agent, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates the agent; the metrics have the form of `_guarded_update`."""
    new, metrics = agent.update(state, trajectory, key)
    sums: Metrics = {name: _mean(value) for name, value in metrics.items()}
    return new, sums | {SKIPPED: Count(jnp.float32(0))}


def _guarded_update(
    agent: Agent, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates the agent, or skips the update if it is not finite."""
    new, metrics = agent.update(state, trajectory, key)
    losses = [value for name, value in metrics.items() if name.startswith("loss/")]
    floats = [x for x in jax.tree.leaves((new.actor, new.train_state, losses)) if _is_float(x)]
    here = jnp.all(jnp.stack([jnp.isfinite(x).all() for x in floats]))
    # All devices must take the same parameters.
    fine = mean_over_devices(here.astype(jnp.float32)) == 1

    def choose(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, old)

    def counted(value: Any) -> Mean:
        total, number = _mean(value)
        return Mean(jnp.where(fine, total, 0), jnp.where(fine, number, 0))

    old = agent.skip(state)
    actor = choose(new.actor, old.actor)._replace(updates=new.actor.updates)
    sums: Metrics = {name: counted(value) for name, value in metrics.items()}
    sums[SKIPPED] = Count(1 - fine.astype(jnp.float32))
    return AgentState(actor, choose(new.train_state, old.train_state), new.memory), sums


@jax.jit
def _faults(tree: PyTree) -> PyTree:
    """Returns for each array whether it holds a nan, and whether an infinity: b[2]."""
    return jax.tree.map(lambda x: jnp.stack([jnp.isnan(x).any(), jnp.isinf(x).any()]), tree)


def faults(state: AgentState) -> list[str]:
    """Names the arrays that are not finite: "parameters Dense_0.kernel have nan", ..."""
    named = {"parameters": state.actor.params, "statistics": state.actor.statistics}
    # An agent that keeps nothing else beside the parameters has the optimizer's state alone.
    trained = state.train_state
    parts = trained._asdict() if hasattr(trained, "opt_state") else {"opt_state": trained}
    named |= {"optimizer": parts.pop("opt_state"), **parts}
    floats = {
        f"{name} {jax.tree_util.keystr(path, simple=True, separator='.')}".strip(): x
        for name, part in named.items()
        for path, x in jax.tree_util.tree_flatten_with_path(part)[0]
        if _is_float(x)
    }
    flags = jax.device_get(_faults(list(floats.values())))
    return [
        f"{name} {'have nan' if has_nan else 'have infinity'}"
        for name, (has_nan, has_infinity) in zip(floats, flags, strict=True)
        if has_nan or has_infinity
    ]


def lost(means: dict[str, float | None]) -> list[str]:
    """Names the losses that are not finite: "loss/value is nan", ..."""
    return [
        f"{name} is {value}"
        for name, value in means.items()
        if name.startswith("loss/") and value is not None and not math.isfinite(value)
    ]
