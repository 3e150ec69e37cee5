"""Several runs in one program: they differ in their seeds, share the engine, and never merge.

The state of a population is one `LoopState`. Each array that is the same on every device has an
axis of members before its own: [M, ...], and so have the memory's arrays of each device. Arrays of
games hold the first member's environments, then the second's: [M · E, ...]. A member's part has the
shapes of a run that trains alone, so its checkpoints are of the same format.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.program.async_learners import Learners, for_each, split_envs
from jaxrl.types import Agent, AgentState, LoopState, Metrics, PyTree, Trajectory


def make_members(agent: Agent, count: int) -> Learners:
    """Makes `count` learners that stay apart; `agent` is made for the environments of one."""
    joint = agent._replace(
        init=partial(_init, agent),
        act=partial(_act, agent, count),
        update=partial(_update, agent, count),
        interrupt=partial(_interrupt, agent),
    )
    return Learners(joint, _same, lambda _, after: after, _same, updates_between_merges=1)


def _same(value: Any) -> Any:
    return value


# --- one agent for all members --------------------------------------------------------------------


def _init(agent: Agent, keys: jax.Array) -> AgentState:
    """Returns the state of all members; key[M]."""
    # One after another, because a batch of decompositions may round otherwise than one of them.
    state = jax.lax.map(lambda key: agent.init(key)._replace(memory=()), keys)
    return state._replace(memory=jax.vmap(lambda key: agent.init(key).memory)(keys))


def _act(
    agent: Agent, count: int, actor: Any, observation: jax.Array, key: jax.Array
) -> tuple[jax.Array, PyTree]:
    """Lets each member act in its environments: actions i32[M · E] and extras [M · E]."""
    own = (split_envs(x, count, axis=0) for x in (observation, key))
    sent = _for_all(count, agent.act, actor, *own)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), sent)


def _update(
    agent: Agent, count: int, state: AgentState, trajectory: Trajectory, keys: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates each member on the trajectory of its environments; key[M], metrics [M]."""
    own = jax.tree.map(lambda x: split_envs(x, count, axis=1), trajectory)
    return _for_all(count, agent.update, state, own, keys)


def _interrupt(agent: Agent, memory: PyTree) -> PyTree:
    """Interrupts the memory of every member."""
    return jax.vmap(agent.interrupt)(memory) if jax.tree.leaves(memory) else memory


def _for_all(count: int, call: Callable[..., Any], *operands: PyTree) -> Any:
    """Calls all members; operands and results are [M, ...]."""
    # On CPUs a product with one matrix for each member is slower than one product after another.
    if jax.default_backend() == "cpu":
        import os
        m=os.environ.get("MODE","map")
        if m=="barrier":
            def inner(*xs):
                return jax.lax.optimization_barrier(call(*jax.lax.optimization_barrier(xs)))
            return for_each(count, inner, *operands)
        if m=="cond":
            def inner(*xs):
                flag = jax.tree.leaves(xs)[0].ravel()[0] == jnp.float32(-1.234e-31)
                out = jax.eval_shape(call, *xs)
                return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0]+1, call(*xs)), (jnp.int32(0), jax.tree.map(lambda o: jnp.zeros(o.shape,o.dtype), out)))[1]
            return for_each(count, inner, *operands)
        if m=="unrollb":
            outs=[]
            for i in range(count):
                xs=jax.lax.optimization_barrier(jax.tree.map(lambda x: x[i], operands))
                outs.append(jax.lax.optimization_barrier(call(*xs)))
            return jax.tree.map(lambda *xs: jnp.stack(xs), *outs)
        return for_each(count, call, *operands)
    return jax.vmap(call)(*operands)


# --- keys -----------------------------------------------------------------------------------------


def first_keys(seeds: Sequence[int]) -> Any:
    """Returns the keys of parameters, updates and actions: key[], of several seeds key[M] each."""
    keys = [jax.random.split(jax.random.key(seed), 3) for seed in seeds]
    return keys[0] if len(keys) == 1 else jnp.unstack(jnp.stack(keys), axis=1)


def split_key(key: jax.Array) -> Any:
    """Splits the key of a run, or of each member, in two: key[] or key[M] each."""
    if key.ndim == 0:
        return jax.random.split(key)
    return jnp.unstack(jax.vmap(jax.random.split)(key), axis=1)


def keys_again(seeds: Sequence[int], later: Sequence[int]) -> jax.Array:
    """Returns the keys of actions in new games, by the seeds of the games: key[] or key[M]."""
    keys = [
        jax.random.fold_in(jax.random.key(seed), new)
        for seed, new in zip(seeds, later, strict=True)
    ]
    return keys[0] if len(keys) == 1 else jnp.stack(keys)


def env_keys(key: jax.Array, env_ids: np.ndarray) -> jax.Array:
    """Returns a key for each environment, by its number i64[devices, E] and its run's key."""
    if key.ndim == 0:
        return jax.vmap(jax.random.fold_in, (None, 0))(key, env_ids.ravel())
    devices, num_envs = env_ids.shape
    owner = np.tile(np.repeat(np.arange(len(key)), num_envs // len(key)), devices)
    return jax.vmap(jax.random.fold_in)(key[owner], env_ids.ravel())


# --- a member's part of the state -----------------------------------------------------------------


def take(count: int, state: LoopState, number: jax.Array) -> LoopState:
    """Returns the state of member i32[] as that of a run that trains alone; on each device."""
    agent, key, metrics = jax.tree.map(lambda x: x[number], (state.agent, state.key, state.metrics))
    games = jax.tree.map(lambda x: split_envs(x, count, axis=0)[number], state.games)
    return LoopState(agent, games, key, metrics)


def join(*states: LoopState) -> LoopState:
    """Returns the state of the population of these members; on each device."""
    agent, key, metrics = jax.tree.map(
        lambda *xs: jnp.stack(xs), *((s.agent, s.key, s.metrics) for s in states)
    )
    games = jax.tree.map(lambda *xs: jnp.concatenate(xs), *(s.games for s in states))
    return LoopState(agent, games, key, metrics)
