"""The only scan over environments: a policy plays, and in the overlapped order learns meanwhile.

    strict       send, then T - 1 times [receive, send], receive, UPDATE
    overlapped   T times [receive, send], UPDATE on the received steps

`send` chooses actions and starts the emulators' step, which runs on other threads until
`receive` waits for it. In the overlapped order the emulators step while the agent updates; the
whole policy lag is the one action in flight, which was chosen before the update. With two groups of
environments one group steps while actions are chosen for the other: receive 0, send 0, receive 1,
send 1, receive 0, ...
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.networks.core import first_observation
from jaxrl.program import episode_statistics
from jaxrl.program.observations import fill_stack, observe
from jaxrl.types import (
    STACK_SIZE,
    ActorState,
    Agent,
    AgentState,
    Choice,
    Core,
    EnvEngine,
    Metrics,
    PyTree,
    TimeStep,
    Trajectory,
)


class RolloutState(NamedTuple):
    """The state of play of one group of environments on this device."""

    env: PyTree  # the engine's state
    timestep: TimeStep  # the newest
    # u8[E, 84, 84, 4], the stack that the next action is chosen from; of an agent that remembers a
    # RecurrentObservation
    observation: PyTree
    keys: jax.Array  # key[E], for the next actions
    episodes: episode_statistics.Episodes
    sent: PyTree = ()  # Choice while the environments step, else ()


GroupStates = tuple[RolloutState, ...]  # one per group
Engines = tuple[EnvEngine, ...]  # one per group


class TurnResult(NamedTuple):
    """The states after one turn of play and update, and the metrics of the update."""

    agent: AgentState
    groups: GroupStates
    metrics: Metrics


def start(
    env: PyTree,
    timestep: TimeStep,
    keys: jax.Array,
    episodes: episode_statistics.Episodes,
    core: Core | None,
    stack_size: int = STACK_SIZE,
) -> RolloutState:
    """Returns the state at the start of play.

    Args:
      env: the engine's state.
      timestep: the engine's first.
      keys: key[E], of the actions.
      episodes: statistics of no games yet.
      core: that of an agent that remembers, else None.
      stack_size: frames that the agent sees at once.
    """
    stack = fill_stack(jnp.asarray(timestep.frame), stack_size)
    observation = first_observation(stack, core)
    return RolloutState(env, timestep, observation, keys, episodes)


def send(agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState) -> RolloutState:
    """Chooses an action for every environment of a group and starts its step."""
    keys = jax.vmap(jax.random.split)(state.keys)
    sent = Choice(*agent.act(actor, state.observation, keys[:, 0]))
    env = engine.send(state.env, sent.action)
    return state._replace(env=env, keys=keys[:, 1], sent=sent)


def receive(
    agent: Agent, engine: EnvEngine, state: RolloutState
) -> tuple[RolloutState, Trajectory]:
    """Waits for the step of a group; returns the state after it and its row of the trajectory."""
    env, timestep = engine.recv(state.env)
    row = Trajectory(
        observation=state.observation,
        action=state.sent.action,
        reward=timestep.reward,
        discount=1.0 - timestep.terminated.astype(jnp.float32),
        valid=~timestep.reset,
        extras=state.sent.extras,
        score=timestep.score,
    )
    received = RolloutState(
        env=env,
        timestep=timestep,
        observation=observe(state.observation, state.sent, state.timestep, timestep, agent.core),
        keys=state.keys,
        episodes=episode_statistics.update(state.episodes, timestep),
    )
    return received, row


def step(
    agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState
) -> tuple[RolloutState, Trajectory]:
    """Plays one step of every environment of a group."""
    return receive(agent, engine, send(agent, engine, actor, state))


def _after(value: PyTree, needed: PyTree) -> PyTree:
    """Returns `value` unchanged, but not before the numbers of `needed` have been computed.

    `optimization_barrier` alone is not enough: XLA drops it on CPUs before it schedules. So the
    value depends on a comparison that never holds, which no compiler can decide.
    """
    value, needed = jax.lax.optimization_barrier((value, needed))

    def is_number(x: jax.Array) -> bool:
        return not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)

    probes = [x.ravel()[0].astype(jnp.float32) for x in jax.tree.leaves(needed) if is_number(x)]
    never = jnp.sum(jnp.stack(probes)) == jnp.float32(-1.2345678e-31)

    def choose(x: jax.Array) -> jax.Array:
        return jnp.where(never, jnp.zeros_like(x), x) if is_number(x) else x

    return jax.tree.map(choose, value)


def _join(parts: list[PyTree]) -> PyTree:
    """Concatenates arrays along the first axis; a single part is not copied."""
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *parts) if parts[1:] else parts[0]


def _follow(state: RolloutState, before: RolloutState) -> RolloutState:
    """Makes the next call of a group wait for the last call of another; XLA orders by data only."""
    return state._replace(env=_after(state.env, before.env))


def send_all(agent: Agent, engines: Engines, actor: ActorState, groups: GroupStates) -> GroupStates:
    """Starts the first step of every group, in turn."""
    after: list[RolloutState] = []
    for engine, state in zip(engines, groups, strict=True):
        state = _follow(state, after[-1]) if after else state
        after.append(send(agent, engine, actor, state))
    return tuple(after)


def _receive_all(
    agent: Agent,
    engines: Engines,
    groups: GroupStates,
    then: Callable[[EnvEngine, RolloutState], RolloutState],
) -> tuple[GroupStates, Trajectory]:
    """Receives every group in turn, with `then` on each before the next; returns one row [E]."""
    after: list[RolloutState] = []
    rows: list[Trajectory] = []
    for engine, state in zip(engines, groups, strict=True):
        if len(groups) > 1:
            state = _follow(state, after[-1] if after else groups[-1])
        received, row = receive(agent, engine, state)
        after.append(then(engine, received))
        rows.append(row)
    return tuple(after), _join(rows)


def _rounds(
    agent: Agent, engines: Engines, actor: ActorState, groups: GroupStates, length: int
) -> tuple[GroupStates, Trajectory]:
    """Runs `length` receive/send rounds over all groups; returns rows [length, E]."""

    def one_round(groups: GroupStates, _: None) -> tuple[GroupStates, Trajectory]:
        return _receive_all(
            agent, engines, groups, lambda engine, state: send(agent, engine, actor, state)
        )

    if length == 1:  # XLA keeps a loop of one round, and copies its carry
        groups, row = one_round(groups, None)
        return groups, jax.tree.map(lambda x: x[None], row)
    return jax.lax.scan(one_round, groups, length=length)


def play_and_update(
    agent: Agent, engines: Engines, learner: AgentState, groups: GroupStates, update_key: jax.Array
) -> TurnResult:
    """Plays one trajectory and updates the agent once.

    The order is overlapped where actions have been sent already, else strict.

    Args:
      agent: the algorithm.
      engines: one per group.
      learner: the agent's state before.
      groups: the states of play before, one per group.
      update_key: random key of the update.
    """
    actor, length = learner.actor, agent.rollout_length
    overlapped = groups[0].sent != ()
    if overlapped:
        groups, rows = _rounds(agent, engines, actor, groups, length)
        parts = [rows]
    else:
        groups = send_all(agent, engines, actor, groups)
        groups, rows = _rounds(agent, engines, actor, groups, length - 1)
        groups, last = _receive_all(agent, engines, groups, lambda _, state: state)
        parts = [rows, jax.tree.map(lambda x: x[None], last)]
    newest = jax.tree.map(lambda x: x[None], _join([state.observation for state in groups]))
    observation = _join([*(part.observation for part in parts), newest])
    trajectory = _join(parts)._replace(observation=observation)
    if overlapped:
        # XLA orders by data only: the update waits for the sends, the next receive for the update.
        trajectory = _after(trajectory, [state.env for state in groups])
    learner, metrics = agent.update(learner, trajectory, update_key)
    if overlapped:
        # The train_state too: a lagging actor existed before the update.
        updated = learner.actor, learner.train_state
        groups = tuple(state._replace(env=_after(state.env, updated)) for state in groups)
    return TurnResult(learner, groups, metrics)
