"""The only scan over environments: a policy plays, and in the overlapped order learns meanwhile.

    strict       act, send, recv  T times, then update on what was played
    overlapped   act, send, UPDATE on what was played before, recv, then the other T - 1 steps

Between `send` and `recv` the emulators run on threads of their own, so in the overlapped order the
update costs no time of theirs. The one action chosen before the update is all the policy lag.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl import episodes
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


class RolloutState(NamedTuple):
    """Where the games on this device stand."""

    env: PyTree  # the engine's
    timestep: TimeStep  # newest row
    observation: jax.Array  # u8[E, 84, 84, 4], the stack that the next action is chosen from
    keys: jax.Array  # key[E], of the actions to come
    episodes: episodes.Episodes


def start(
    env: PyTree, timestep: TimeStep, keys: jax.Array, games: episodes.Episodes
) -> RolloutState:
    """Where play begins, with an engine's first rows; one key per environment."""
    return RolloutState(env, timestep, fill_stack(jnp.asarray(timestep.frame)), keys, games)


class Learned(NamedTuple):
    """What one turn of `collect` changes."""

    agent: AgentState
    rollout: RolloutState
    trajectory: Trajectory
    metrics: Metrics


def fill_stack(frame: jax.Array) -> jax.Array:
    """The stack at the start of a game: u8[E, 84, 84] -> u8[E, 84, 84, 4], four times the frame."""
    return jnp.repeat(frame[..., None], STACK_SIZE, axis=-1)


def stack_frames(observation: jax.Array, previous: TimeStep, timestep: TimeStep) -> jax.Array:
    """The next stack: filled anew where a game begins, else shifted by the newest frame.

    A reset after a lost life goes on in the same game, so it shifts (EnvPool does the same).
    """
    new_game = (timestep.reset & previous.game_over)[:, None, None]
    # A pixel's four bytes as one word, oldest lowest: a shift, four times faster than moving bytes.
    words = jax.lax.bitcast_convert_type(observation, jnp.uint32)
    newest = timestep.frame.astype(jnp.uint32)
    shifted = (words >> 8) | (newest << 24)
    words = jnp.where(new_game, newest * jnp.uint32(0x01010101), shifted)
    return jax.lax.bitcast_convert_type(words, jnp.uint8)


def _act_and_send(
    agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState
) -> tuple[RolloutState, tuple[jax.Array, PyTree]]:
    keys = jax.vmap(jax.random.split)(state.keys)
    action, extras = agent.act(actor, state.observation, keys[:, 0])
    env = engine.send(state.env, action)
    return state._replace(env=env, keys=keys[:, 1]), (action, extras)


def _receive(
    engine: EnvEngine, sent: RolloutState, choice: tuple[jax.Array, PyTree]
) -> tuple[RolloutState, Trajectory]:
    """Waits for the answer."""
    env, timestep = engine.recv(sent.env)
    row = Trajectory(
        observation=sent.observation,
        action=choice[0],
        reward=timestep.reward,
        discount=1.0 - timestep.terminated.astype(jnp.float32),
        valid=~timestep.reset,
        extras=choice[1],
    )
    received = RolloutState(
        env=env,
        timestep=timestep,
        observation=stack_frames(sent.observation, sent.timestep, timestep),
        keys=sent.keys,
        episodes=episodes.update(sent.episodes, timestep),
    )
    return received, row


def step(
    agent: Agent, engine: EnvEngine, actor: ActorState, state: RolloutState
) -> tuple[RolloutState, Trajectory]:
    """One step of every environment; gives one row of a trajectory, the observation before it."""
    return _receive(engine, *_act_and_send(agent, engine, actor, state))


def _after(value: PyTree, needed: PyTree) -> PyTree:
    """`value` as it is, but not before the numbers of `needed` are there.

    `optimization_barrier` alone is not enough: XLA drops it on CPUs before it schedules. So a
    leaf of the value is chosen by a comparison that never holds and no compiler can decide.
    """
    value, needed = jax.lax.optimization_barrier((value, needed))

    def is_number(x: jax.Array) -> bool:
        return not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)

    probes = [x.ravel()[0].astype(jnp.float32) for x in jax.tree.leaves(needed) if is_number(x)]
    never = jnp.sum(jnp.stack(probes)) == jnp.float32(-1.2345678e-31)
    leaves, structure = jax.tree.flatten(value)
    place = next(i for i, x in enumerate(leaves) if is_number(x))
    leaves[place] = jnp.where(never, jnp.zeros_like(leaves[place]), leaves[place])
    return jax.tree.unflatten(structure, leaves)


def play(
    agent: Agent,
    engine: EnvEngine,
    actor: ActorState,
    state: RolloutState,
    first: Trajectory | None = None,
) -> tuple[RolloutState, Trajectory]:
    """Plays a trajectory of `agent.rollout_length` steps, of which `first` may be there already."""

    length = agent.rollout_length - (first is not None)
    state, rows = jax.lax.scan(
        lambda state, _: step(agent, engine, actor, state), state, length=length
    )
    if first is not None:
        rows = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, rows)
    observation = jnp.concatenate([rows.observation, state.observation[None]])
    return state, rows._replace(observation=observation)


def collect(
    agent: Agent,
    engine: EnvEngine,
    learner: AgentState,
    state: RolloutState,
    key: jax.Array,
    pending: Trajectory | None = None,
) -> Learned:
    """One trajectory and one update, in the strict order, or overlapped if one is `pending`.

    Args:
      agent: the algorithm.
      engine: the environments.
      learner: the agent's state before.
      state: the games before.
      key: for the update.
      pending: the previous trajectory, from which the update learns while the emulators play.

    Returns:
      The states after, the trajectory played (the next `pending`) and the update's metrics.
    """
    if pending is None:
        state, trajectory = play(agent, engine, learner.actor, state)
        learner, metrics = agent.update(learner, trajectory, key)
        return Learned(learner, state, trajectory, metrics)
    sent, choice = _act_and_send(agent, engine, learner.actor, state)
    # XLA orders by data alone: the update waits for the send, the recv for the update.
    learner, metrics = agent.update(learner, _after(pending, sent.env), key)
    env = _after(sent.env, learner.actor)
    state, first = _receive(engine, sent._replace(env=env), choice)
    state, trajectory = play(agent, engine, learner.actor, state, first)
    return Learned(learner, state, trajectory, metrics)
