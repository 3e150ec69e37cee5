"""A policy lag: the acting parameters are some updates older than the learning ones.

GA3C's queues make the lag vary with the load of the machine (Babaeizadeh 2017, section 3.3). Here
it is the same at every step of every run, so its cost can be measured.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Agent, AgentState, Metrics, PyTree, Trajectory


class Delayed(NamedTuple):
    """The agent's train_state, and the actors of the next updates."""

    train_state: PyTree  # the agent's
    actors: PyTree  # [lag, ...], the next to act first, the newest last


def delayed(agent: Agent, lag: int) -> Agent:
    """Returns the agent with actions from parameters `lag` updates old; 0 is the agent itself.

    Gradients and their inputs (the bootstrap after the last step) come from the newest parameters;
    the values and probabilities that acting stores come from the older ones. `AgentState.actor` is
    the acting one.
    """
    if lag == 0:
        return agent

    return agent._replace(init=partial(_init, agent, lag), update=partial(_update, agent))


def _init(agent: Agent, lag: int, key: jax.Array) -> AgentState:
    """Returns the initial state, with the same actor for the first `lag` updates."""
    state = agent.init(key)
    actors = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], lag, axis=0), state.actor)
    return state._replace(train_state=Delayed(state.train_state, actors))


def _update(
    agent: Agent, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates the newest actor; the oldest waiting one acts next."""
    train_state, actors = state.train_state
    newest = jax.tree.map(lambda x: x[-1], actors)
    learned, metrics = agent.update(AgentState(newest, train_state, state.memory), trajectory, key)
    acts = jax.tree.map(lambda x: x[0], actors)
    waiting = jax.tree.map(
        lambda old, new: jnp.concatenate([old[1:], new[None]]), actors, learned.actor
    )
    return AgentState(acts, Delayed(learned.train_state, waiting), learned.memory), metrics
