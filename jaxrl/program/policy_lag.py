"""A policy that lags: what acts is some updates older than what learns (GA3C's study of it).

GA3C's queues make the lag vary with the load of the machine (Babaeizadeh 2017, section 3.3); here
it is the same at every step of every run, so that what it costs can be measured.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Agent, AgentState, Metrics, PyTree, Trajectory


class Delayed(NamedTuple):
    """What an agent learns, with what will act later."""

    train_state: PyTree  # the agent's own
    actors: PyTree  # [lag, ...], the next to act first, the newest last


def delayed(agent: Agent, lag: int) -> Agent:
    """The agent, whose actions come from parameters `lag` updates old; 0 is the agent itself.

    Gradients, and what is computed for them (the bootstrap after the last step), are of the newest
    parameters; what an agent keeps of acting (values, probabilities) is of the older ones.
    `AgentState.actor` is the one that acts.
    """
    if lag == 0:
        return agent

    def init(key: jax.Array) -> AgentState:
        state = agent.init(key)
        actors = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], lag, axis=0), state.actor)
        return state._replace(train_state=Delayed(state.train_state, actors))

    def update(
        state: AgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AgentState, Metrics]:
        train_state, actors = state.train_state
        newest = jax.tree.map(lambda x: x[-1], actors)
        learned, metrics = agent.update(
            AgentState(newest, train_state, state.memory), trajectory, key
        )
        acts = jax.tree.map(lambda x: x[0], actors)
        waiting = jax.tree.map(
            lambda old, new: jnp.concatenate([old[1:], new[None]]), actors, learned.actor
        )
        return AgentState(acts, Delayed(learned.train_state, waiting), learned.memory), metrics

    return agent._replace(init=init, update=update)
