"""The only scan over environments: a policy plays, and in the overlapped order learns meanwhile.

    strict       send, then T - 1 times [receive, send], receive, UPDATE
    overlapped   T times [receive, send], UPDATE on what was received

`send` chooses actions and starts the emulators' step, which runs on threads of its own until
`receive` waits for it. In the overlapped order the update costs no time of theirs; the one action
in flight, chosen before the update, is all the policy lag. Of two groups of environments one steps
while the other is answered: receive 0, send 0, receive 1, send 1, receive 0, ...
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


class Choice(NamedTuple):
    """What was sent to the environments of a group and has not been answered."""

    action: jax.Array  # i32[E]
    extras: PyTree  # [E], what `Agent.act` returned beside it


class RolloutState(NamedTuple):
    """Where the games of one group on this device stand."""

    env: PyTree  # the engine's
    timestep: TimeStep  # newest row
    observation: jax.Array  # u8[E, 84, 84, 4], the stack that the next action is chosen from
    keys: jax.Array  # key[E], of the actions to come
    episodes: episode_statistics.Episodes
    sent: PyTree = ()  # Choice while the environments step


Games = tuple[RolloutState, ...]  # of each group
Engines = tuple[EnvEngine, ...]  # of each group


def start(
    env: PyTree, timestep: TimeStep, keys: jax.Array, games: episode_statistics.Episodes
) -> RolloutState:
    """Where play begins, with an engine's first rows; one key per environment."""
    return RolloutState(env, timestep, fill_stack(jnp.asarray(timestep.frame)), keys, games)


class Learned(NamedTuple):
    """What one turn of `collect` changes."""

    agent: AgentState
    games: Games
    metrics: Metrics


def fill_stack(frame: jax.Array) -> jax.Array:
    """The stack at the start of a game: u8[E, 84, 84] -> u8[E, 84, 84, 4], four times the frame."""
    return jnp.repeat(frame[..., None], STACK_SIZE, axis=-1)


def stack_frames(observation: jax.Array, previous: TimeStep, timestep: TimeStep) -> jax.Array:
    """The next stack: filled anew where a game begins, else shifted by the newest frame.

    A reset after a lost life goes on in the same game, so it shifts, but where the game ended
    during the reset (EnvPool does the same).
    """
    new_game = (timestep.reset & (previous.game_over | timestep.game_over))[:, None, None]
    # A pixel's four bytes as one word, oldest lowest: a shift, four times faster than moving bytes.
    words = jax.lax.bitcast_convert_type(observation, jnp.uint32)
    newest = timestep.frame.astype(jnp.uint32)
    shifted = (words >> 8) | (newest << 24)
    words = jnp.where(new_game, newest * jnp.uint32(0x01010101), shifted)
    return jax.lax.bitcast_convert_type(words, jnp.uint8)


def send(agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState) -> RolloutState:
    """Chooses an action for every environment of a group and starts its step."""
    keys = jax.vmap(jax.random.split)(state.keys)
    choice = Choice(*agent.act(actor, state.observation, keys[:, 0]))
    env = engine.send(state.env, choice.action)
    return state._replace(env=env, keys=keys[:, 1], sent=choice)


def receive(engine: EnvEngine, state: RolloutState) -> tuple[RolloutState, Trajectory]:
    """Waits for the answers; gives one row of a trajectory, the observation before it."""
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
    """One step of every environment of a group."""
    return receive(engine, send(agent, engine, actor, state))


def _after(value: PyTree, needed: PyTree) -> PyTree:
    """`value` as it is, but not before the numbers of `needed` are there.

    `optimization_barrier` alone is not enough: XLA drops it on CPUs before it schedules. So the
    value is chosen by a comparison that never holds and no compiler can decide.
    """
    value, needed = jax.lax.optimization_barrier((value, needed))

    def is_number(x: jax.Array) -> bool:
        return not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)

    probes = [x.ravel()[0].astype(jnp.float32) for x in jax.tree.leaves(needed) if is_number(x)]
    never = jnp.sum(jnp.stack(probes)) == jnp.float32(-1.2345678e-31)

    def choose(x: jax.Array) -> jax.Array:
        return jnp.where(never, jnp.zeros_like(x), x) if is_number(x) else x

    return jax.tree.map(choose, value)


def _join(groups: list[PyTree]) -> PyTree:
    """Rows of all groups in one, as the agent sees them."""
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *groups) if groups[1:] else groups[0]


def _follow(state: RolloutState, before: RolloutState) -> RolloutState:
    """`state`, whose next call waits until the last one of another group is made."""
    # XLA orders by data alone.
    return state._replace(env=_after(state.env, before.env))


def send_all(agent: Agent, engines: Engines, actor: ActorState, games: Games) -> Games:
    """Starts the first step of every group, in turn."""
    after: list[RolloutState] = []
    for engine, state in zip(engines, games, strict=True):
        state = _follow(state, after[-1]) if after else state
        after.append(send(agent, engine, actor, state))
    return tuple(after)


def _receive_all(
    engines: Engines, games: Games, then: Callable[[EnvEngine, RolloutState], RolloutState]
) -> tuple[Games, Trajectory]:
    """Every group's answers, in turn, and what is done with each before the next; rows [E]."""
    after: list[RolloutState] = []
    rows: list[Trajectory] = []
    for engine, state in zip(engines, games, strict=True):
        if len(games) > 1:
            state = _follow(state, after[-1] if after else games[-1])
        received, row = receive(engine, state)
        after.append(then(engine, received))
        rows.append(row)
    return tuple(after), _join(rows)


def _rounds(
    agent: Agent, engines: Engines, actor: ActorState, games: Games, length: int
) -> tuple[Games, Trajectory]:
    """So many times every group is received and sent again, in turn; rows [length, E]."""

    def turn(games: Games, _: None) -> tuple[Games, Trajectory]:
        return _receive_all(engines, games, lambda engine, state: send(agent, engine, actor, state))

    if length == 1:  # XLA keeps a loop of one round, and copies what it carries
        games, row = turn(games, None)
        return games, jax.tree.map(lambda x: x[None], row)
    return jax.lax.scan(turn, games, length=length)


def collect(
    agent: Agent, engines: Engines, learner: AgentState, games: Games, key: jax.Array
) -> Learned:
    """One trajectory and one update; overlapped where the games have been sent, else strict.

    Args:
      agent: the algorithm.
      engines: the environments of each group.
      learner: the agent's state before.
      games: the games before.
      key: for the update.

    Returns:
      The states after, and the update's metrics.
    """
    actor, length = learner.actor, agent.rollout_length
    overlapped = games[0].sent != ()
    if overlapped:
        games, rows = _rounds(agent, engines, actor, games, length)
        parts = [rows]
    else:
        games = send_all(agent, engines, actor, games)
        games, rows = _rounds(agent, engines, actor, games, length - 1)
        games, last = _receive_all(engines, games, lambda _, state: state)
        parts = [rows, jax.tree.map(lambda x: x[None], last)]
    newest = _join([state.observation for state in games])[None]
    observation = jnp.concatenate([*(part.observation for part in parts), newest])
    trajectory = _join(parts)._replace(observation=observation)
    if overlapped:
        # XLA orders by data alone: the update waits for the sends, the next receive for the update.
        trajectory = _after(trajectory, [state.env for state in games])
    learner, metrics = agent.update(learner, trajectory, key)
    if overlapped:
        # The train_state too: an actor that lags existed before the update.
        learned = learner.actor, learner.train_state
        games = tuple(state._replace(env=_after(state.env, learned)) for state in games)
    return Learned(learner, games, metrics)
