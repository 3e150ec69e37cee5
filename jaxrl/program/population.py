"""Several runs in one program: they differ in their seeds, share the engine, and never merge.

The state of a population is one `LoopState`. Its games are those of the first member, then those of
the second: [M · E, ...] on each device. Of everything else it holds a tree for each member, by the
platform's `Layout`.

A member's part has the shapes of a run that trains alone, so its checkpoints have the same format.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxrl.program.async_learners import Learners, split_envs, unmerged
from jaxrl.runtime.mesh import REPLICATED, SHARDED, map_over_devices, put
from jaxrl.types import AXIS, ActorState, Agent, AgentState, LoopState, Metrics, PyTree, Trajectory


def specs_of(members: int) -> Any:
    """Returns how each part lies on the mesh: a tree of specs, in the shape of the state."""
    memory = _layout().memory_spec if members > 1 else SHARDED
    return LoopState(
        agent=AgentState(actor=REPLICATED, train_state=REPLICATED, memory=memory),
        games=SHARDED,
        key=REPLICATED,
        metrics=REPLICATED,
    )


def make_members(agent: Agent, count: int) -> Learners:
    """Makes `count` learners that stay apart; `agent` is made for the environments of one.

    `Agent.init` of the result makes the state of one member.
    """
    joint = agent._replace(
        act=partial(_act, agent, count),
        update=partial(_update, agent, count),
        interrupt=partial(_interrupt, agent, count),
    )
    return unmerged(joint)


# --- trees of members -----------------------------------------------------------------------------


class Layout(NamedTuple):
    """Conversions between the trees of M members and the one tree that holds them."""

    gather: Callable[[Sequence[PyTree]], PyTree]  # trees of the members -> tree of all
    member: Callable[[PyTree, int], PyTree]  # tree of all, number of a member -> its tree
    # [..., M · E, ...], M, axis -> tree of all, of [..., E, ...]
    split: Callable[[PyTree, int, int], PyTree]
    flatten: Callable[[PyTree], PyTree]  # tree of [E, ...] -> [M · E, ...]
    for_all: Callable[..., list[PyTree]]  # function, trees of all -> its results, each of all
    memory_spec: Any  # how the memories of all members lie on the mesh: each is sharded by device


def _split_tuple(tree: PyTree, count: int, axis: int) -> PyTree:
    def part(number: int, x: jax.Array) -> jax.Array:
        size = x.shape[axis] // count
        return jax.lax.slice_in_dim(x, number * size, (number + 1) * size, axis=axis)

    return tuple(jax.tree.map(partial(part, number), tree) for number in range(count))


def _map_tuple(call: Callable[..., Any], *operands: PyTree) -> list[PyTree]:
    results = [call(*parts) for parts in zip(*operands, strict=True)]
    return list(zip(*results, strict=True))


# A tuple of M trees: each member computes what it would compute alone, to the last bit.
TUPLE = Layout(
    gather=tuple,
    member=lambda tree, number: tree[number],
    split=_split_tuple,
    flatten=lambda tree: jax.tree.map(lambda *xs: jnp.concatenate(xs), *tree),
    for_all=_map_tuple,
    memory_spec=SHARDED,
)
# One tree whose arrays have an axis of members first, [M, ...]: one operation serves all.
AXIS_FIRST = Layout(
    gather=lambda trees: jax.tree.map(lambda *xs: jnp.stack(xs), *trees),
    member=lambda tree, number: jax.tree.map(lambda x: x[number], tree),
    split=lambda tree, count, axis: jax.tree.map(lambda x: split_envs(x, count, axis), tree),
    flatten=lambda tree: jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree),
    for_all=lambda call, *operands: list(jax.vmap(call)(*operands)),
    memory_spec=PartitionSpec(None, AXIS),
)


def _layout() -> Layout:
    return TUPLE if jax.default_backend() == "cpu" else AXIS_FIRST


def gather(trees: Sequence[PyTree]) -> PyTree:
    """Returns the tree that holds those of all members; a run alone is its only member."""
    return trees[0] if len(trees) == 1 else _layout().gather(trees)


def member(tree: PyTree, number: int) -> PyTree:
    """Returns the tree of a member of a population."""
    return _layout().member(tree, number)


def gather_agents(agents: Sequence[AgentState]) -> AgentState:
    """Returns the agent of a population."""
    return AgentState(*(gather(parts) for parts in zip(*agents, strict=True)))


def agent_of(agent: AgentState, number: int) -> AgentState:
    """Returns the agent of a member."""
    return AgentState(*(member(part, number) for part in agent))


# --- one agent for all members --------------------------------------------------------------------


def _act(
    agent: Agent, count: int, actor: PyTree, observation: PyTree, key: jax.Array
) -> tuple[PyTree, ...]:
    """Lets each member act in its environments: actions i32[M · E], extras and cores [M · E]."""
    layout = _layout()
    operands = (layout.split(x, count, 0) for x in (observation, key))
    return tuple(map(layout.flatten, layout.for_all(agent.act, actor, *operands)))


def _update(
    agent: Agent, count: int, state: AgentState, trajectory: Trajectory, key: PyTree
) -> tuple[AgentState, Metrics]:
    """Updates each member on the trajectory of its environments."""

    def update(actor: ActorState, train_state: PyTree, memory: PyTree, *inputs: Any) -> Any:
        new, metrics = agent.update(AgentState(actor, train_state, memory), *inputs)
        return *new, metrics

    layout = _layout()
    *new, metrics = layout.for_all(update, *state, layout.split(trajectory, count, 1), key)
    return AgentState(*new), metrics


def _interrupt(agent: Agent, count: int, memory: PyTree) -> PyTree:
    """Interrupts the memory of every member."""
    if not jax.tree.leaves(memory):
        return memory
    [memory] = _layout().for_all(lambda x: (agent.interrupt(x),), memory)
    return memory


# --- keys -----------------------------------------------------------------------------------------


def split_key(key: PyTree) -> tuple[PyTree, PyTree]:
    """Splits the key of a run, or of each member, in two."""

    def split(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = jax.random.split(key)
        return first, second

    if isinstance(key, jax.Array) and not key.ndim:
        return split(key)
    first, second = _layout().for_all(split, key)
    return first, second


def env_keys(keys: Sequence[jax.Array], env_ids: np.ndarray) -> jax.Array:
    """Returns a key for each environment, by its number i64[devices, M · E] and its run's key."""
    devices, num_envs = env_ids.shape
    owner = np.tile(np.repeat(np.arange(len(keys)), num_envs // len(keys)), devices)
    return jax.vmap(jax.random.fold_in)(jnp.stack(keys)[owner], env_ids.ravel())


# --- games of a member ----------------------------------------------------------------------------


def take_games(count: int, games: PyTree, number: jax.Array) -> PyTree:
    """Returns the games of member i32[], which have a row for each environment; on each device."""
    return jax.tree.map(lambda x: split_envs(x, count, axis=0)[number], games)


def join_games(*games: PyTree) -> PyTree:
    """Returns the games of the population of these members; on each device."""
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *games)


# --- the state of a member, and back --------------------------------------------------------------


def put_agents(mesh: Mesh, agents: Sequence[AgentState]) -> AgentState:
    """Returns the agent of all members, laid out over the mesh; a run alone is its only member."""
    agent = gather_agents(agents)
    if len(agents) == 1:
        return agent
    return AgentState(*(put(mesh, *part) for part in zip(agent, specs_of(2).agent, strict=True)))


def take_and_join(mesh: Mesh, count: int) -> tuple[Any, Any]:
    """Returns `Program.take` and `Program.join`; a run alone is its only member."""
    if count == 1:
        return lambda state, number: state, lambda state: state
    games = map_over_devices(partial(take_games, count), mesh, (SHARDED, REPLICATED), SHARDED)
    joined = map_over_devices(join_games, mesh, (SHARDED,) * count, SHARDED)
    return partial(_take, jax.jit(games)), partial(_join, mesh, jax.jit(joined))


def _take(take_games: Any, state: LoopState, number: int) -> LoopState:
    """Returns the state of a member (see `Program.take`)."""
    return LoopState(
        agent_of(state.agent, number),
        take_games(state.games, np.int32(number)),
        member(state.key, number),
        member(state.metrics, number),
    )


def _join(mesh: Mesh, join_games: Any, *states: LoopState) -> LoopState:
    """Returns the state of a population (see `Program.join`)."""
    agents, games, keys, metrics = zip(*states, strict=True)
    return LoopState(
        put_agents(mesh, agents),
        join_games(*games),
        put(mesh, gather(keys), REPLICATED),
        put(mesh, gather(metrics), REPLICATED),
    )
