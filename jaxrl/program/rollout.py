"""The only scan over environments: a policy plays, and in the overlapped order learns meanwhile.

    strict       send, then T - 1 times [receive, send], receive, UPDATE
    overlapped   T times [receive, send], UPDATE on the received steps

`send` chooses actions and starts the emulators' step, which runs on their own threads until
`receive` waits for it. In the overlapped order the emulators step while the agent updates; the
whole policy lag is the one action in flight, which was chosen before the update. With two groups of
environments one group steps while actions are chosen for the other: receive 0, send 0, receive 1,
send 1, receive 0, ...
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.program import episode_statistics
from jaxrl.types import (
    STACK_SIZE,
    ActorState,
    Agent,
    AgentState,
    EnvEngine,
    Metrics,
    PyTree,
    TimeStep,
    Trajectory,
)


class SentAction(NamedTuple):
    """The actions that the environments of a group are stepping with."""

    action: jax.Array  # i32[E]
    extras: PyTree  # [E], returned by `Agent.act` with the action


class RolloutState(NamedTuple):
    """The state of play of one group of environments on this device."""

    env: PyTree  # the engine's state
    timestep: TimeStep  # the newest
    observation: jax.Array  # u8[E, 84, 84, 4], the stack that the next action is chosen from
    keys: jax.Array  # key[E], for the next actions
    episodes: episode_statistics.Episodes
    sent: PyTree = ()  # SentAction while the environments step, else ()


GroupStates = tuple[RolloutState, ...]  # one per group
Engines = tuple[EnvEngine, ...]  # one per group


class TurnResult(NamedTuple):
    """The states after one turn of play and update, and the metrics of the update."""

    agent: AgentState
    groups: GroupStates
    metrics: Metrics


def start(
    env: PyTree, timestep: TimeStep, keys: jax.Array, episodes: episode_statistics.Episodes
) -> RolloutState:
    """Returns the state at the start of play; `timestep` is the engine's first."""
    return RolloutState(env, timestep, fill_stack(jnp.asarray(timestep.frame)), keys, episodes)


def fill_stack(frame: jax.Array) -> jax.Array:
    """Repeats the first frame of a game four times: u8[E, 84, 84] -> u8[E, 84, 84, 4]."""
    return jnp.repeat(frame[..., None], STACK_SIZE, axis=-1)


def stack_frames(observation: jax.Array, previous: TimeStep, timestep: TimeStep) -> jax.Array:
    """Returns the next stack: refilled where a game begins, else shifted by the newest frame.

    A reset after a lost life continues the same game, so the stack is shifted, unless the game
    ended during the reset (EnvPool does the same).
    """
    new_game = (timestep.reset & (previous.game_over | timestep.game_over))[:, None, None]
    # The four bytes of a pixel are one word, oldest lowest: shifting words is four times faster
    # than moving bytes.
    words = jax.lax.bitcast_convert_type(observation, jnp.uint32)
    newest = timestep.frame.astype(jnp.uint32)
    shifted = (words >> 8) | (newest << 24)
    words = jnp.where(new_game, newest * jnp.uint32(0x01010101), shifted)
    return jax.lax.bitcast_convert_type(words, jnp.uint8)


def send(agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState) -> RolloutState:
    """Chooses an action for every environment of a group and starts its step."""
    keys = jax.vmap(jax.random.split)(state.keys)
    sent = SentAction(*agent.act(actor, state.observation, keys[:, 0]))
    env = engine.send(state.env, sent.action)
    return state._replace(env=env, keys=keys[:, 1], sent=sent)


def receive(engine: EnvEngine, state: RolloutState) -> tuple[RolloutState, Trajectory]:
    """Waits for the step of a group; returns the state after it and its row of the trajectory."""
    env, timestep = engine.recv(state.env)
    row = Trajectory(
        observation=state.observation,
        action=state.sent.action,
        reward=timestep.reward,
        discount=1.0 - timestep.terminated.astype(jnp.float32),
        valid=~timestep.reset,
        extras=state.sent.extras,
    )
    received = RolloutState(
        env=env,
        timestep=timestep,
        observation=stack_frames(state.observation, state.timestep, timestep),
        keys=state.keys,
        episodes=episode_statistics.update(state.episodes, timestep),
    )
    return received, row


def step(
    agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState
) -> tuple[RolloutState, Trajectory]:
    """Plays one step of every environment of a group."""
    return receive(engine, send(agent, engine, actor, state))


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
        received, row = receive(engine, state)
        after.append(then(engine, received))
        rows.append(row)
    return tuple(after), _join(rows)


def _rounds(
    agent: Agent, engines: Engines, actor: ActorState, groups: GroupStates, length: int
) -> tuple[GroupStates, Trajectory]:
    """Runs `length` receive/send rounds over all groups; returns rows [length, E]."""

    def one_round(groups: GroupStates, _: None) -> tuple[GroupStates, Trajectory]:
        return _receive_all(
            engines, groups, lambda engine, state: send(agent, engine, actor, state)
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
        groups, last = _receive_all(engines, groups, lambda _, state: state)
        parts = [rows, jax.tree.map(lambda x: x[None], last)]
    newest = _join([state.observation for state in groups])[None]
    observation = jnp.concatenate([*(part.observation for part in parts), newest])
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
