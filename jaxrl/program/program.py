"""The one compiled program: many turns of play and update on every device of the mesh."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.config.plan import Plan
from jaxrl.program import (
    async_learners,
    episode_statistics,
    nonfinite,
    policy_lag,
    population,
    rewards,
    rollout,
)
from jaxrl.runtime.mesh import (
    REPLICATED,
    SHARDED,
    compiler_options,
    map_over_devices,
    num_local_devices,
    put,
)
from jaxrl.types import Agent, AgentState, EnvEngine, LoopState, Metrics


class Program(NamedTuple):
    """The functions that the host calls."""

    init: Callable[[], LoopState]
    # restart(state, *seeds, moved=False) -> state: starts new games, because a checkpoint could not
    # hold the old ones. On other devices (moved) each environment gets a new random key too. Call
    # it before the first `run`: a compiled `run` would step the closed pools.
    restart: Callable[..., LoopState]
    # jitted: run(state, num_updates i32[]) -> state; donates the state. `updates_between_merges`
    # divides num_updates.
    run: Any
    steps_per_update: int  # agent steps over all devices
    updates_between_merges: int
    # take(state, number i32[]) -> the state of a member, as of a run that trains alone; and back
    # from the states of all. Their games have a row for each environment: none that an engine holds
    # itself.
    take: Callable[[LoopState, int], LoopState]
    join: Callable[..., LoopState]


class Turn:
    """One turn of play and update, traced once for its metrics' names and for the program itself.

    A trace holds the addresses of EnvPool's pools, so restarted engines need a new trace.
    """

    def __init__(self, agent: Agent, engines: rollout.Engines) -> None:
        self._agent, self._engines = agent, engines
        self.retrace()

    def retrace(self) -> None:
        """Drops the trace; the next call traces again."""
        # JAX caches traces by function: a new function has none.
        self._traced = jax.jit(_named(turn, self._agent, self._engines))

    def __call__(
        self, learner: AgentState, groups: rollout.GroupStates, key: jax.Array
    ) -> tuple[rollout.TurnResult, jax.Array]:
        """Returns the result of the turn, and the key of the turns that follow."""
        result: tuple[rollout.TurnResult, jax.Array] = self._traced(learner, groups, key)
        return result


@dataclass(frozen=True)
class Parts:
    """The parts of a program that training does not change."""

    plan: Plan
    seeds: tuple[int, ...]  # the run's, or each member's of a population
    learners: async_learners.Learners
    engines: rollout.Engines  # one per group
    mesh: Mesh
    turn: Turn

    @property
    def specs(self) -> Any:
        """The layout of the state on the mesh."""
        return population.specs_of(len(self.seeds))

    def compile(
        self, program: Callable[..., Any], in_specs: tuple[Any, ...], out_specs: Any
    ) -> Any:
        """Returns the jitted per-device program over the mesh; its first argument is donated."""
        mapped = map_over_devices(program, self.mesh, in_specs, out_specs)
        return jax.jit(mapped, donate_argnums=0, compiler_options=compiler_options(self.mesh))


def _named(function: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
    """Binds the first arguments in a new function of the same name, which profiles show."""

    def bound(*arguments: Any) -> Any:
        return function(*fixed, *arguments)

    bound.__name__ = function.__name__
    return bound


def make_program(
    plan: Plan,
    agent: Agent,
    engines: rollout.Engines,
    mesh: Mesh,
    seeds: Sequence[int] = (),
) -> Program:
    """Builds the program's functions; nothing runs or compiles before they are called.

    Args:
      plan: sizes of the run on these devices.
      agent: made for the environments of one learner (`plan.envs_per_learner`).
      engines: one per group.
      mesh: the devices.
      seeds: those of the members of a population; by default the plan's seed, for a single run.

    Raises `ValueError` if the plan is of another number of devices.
    """
    if plan.num_devices != mesh.size:
        raise ValueError(f"the plan is of {plan.num_devices} devices, the mesh has {mesh.size}")
    config = plan.config
    agent = nonfinite.guarded(agent, skip=config.optimizer.on_nonfinite == "skip")
    agent = rewards.logged(agent)  # also of updates that are skipped
    agent = policy_lag.delayed(agent, config.parallel.lag)
    seeds = tuple(seeds) or (config.seed,)
    learners = (
        population.make_members(agent, len(seeds))
        if len(seeds) > 1
        else async_learners.make_learners(plan, agent)
    )
    parts = Parts(plan, seeds, learners, engines, mesh, Turn(learners.agent, engines))
    take, join = population.take_and_join(mesh, len(seeds))
    return Program(
        init=partial(init, parts),
        restart=partial(restart, parts),
        run=parts.compile(_named(run, parts), (parts.specs, REPLICATED), parts.specs),
        steps_per_update=plan.steps_per_update,
        updates_between_merges=learners.updates_between_merges,
        take=take,
        join=join,
    )


# --- on each device ------------------------------------------------------------------------------


def turn(
    agent: Agent,
    engines: rollout.Engines,
    learner: AgentState,
    groups: rollout.GroupStates,
    key: jax.Array,
) -> tuple[rollout.TurnResult, jax.Array]:
    """Plays one trajectory and updates once; returns the key of the turns that follow too."""
    key, update_key = population.split_key(key)
    return rollout.play_and_update(agent, engines, learner, groups, update_key), key


def update(parts: Parts, state: LoopState) -> LoopState:
    """Takes one turn; `state` is every learner's."""
    result, key = parts.turn(state.agent, state.games, state.key)
    return LoopState(
        agent=result.agent,
        games=result.groups,
        key=key,
        metrics=jax.tree.map(jnp.add, state.metrics, result.metrics),
    )


def updates_and_merge(parts: Parts, state: LoopState) -> LoopState:
    """Spreads the common state over the learners, lets each update it, and merges the results."""
    learners = parts.learners
    apart = state._replace(agent=learners.spread(state.agent))
    if learners.updates_between_merges == 1:  # XLA keeps a loop of one round, and copies its carry
        apart = update(parts, apart)
    else:
        apart = jax.lax.fori_loop(
            0, learners.updates_between_merges, lambda _, apart: update(parts, apart), apart
        )
    return apart._replace(
        agent=learners.merge(state.agent, apart.agent), metrics=learners.average(apart.metrics)
    )


def run(parts: Parts, state: LoopState, num_updates: jax.Array) -> LoopState:
    """Trains for `num_updates` updates."""
    rounds = num_updates // parts.learners.updates_between_merges
    return jax.lax.fori_loop(0, rounds, lambda _, state: updates_and_merge(parts, state), state)


def send_first(parts: Parts, state: LoopState) -> LoopState:
    """Starts the first step of every group, as the overlapped order needs."""
    agent, actor = parts.learners.agent, parts.learners.spread(state.agent).actor
    return state._replace(games=rollout.send_all(agent, parts.engines, actor, state.games))


def metrics_of_turn(parts: Parts, state: LoopState) -> Metrics:
    """Returns the metrics of one turn; the program traces this for their names only."""
    learner = parts.learners.spread(state.agent)
    return parts.turn(learner, state.games, state.key)[0].metrics


def interrupt(parts: Parts, state: LoopState) -> LoopState:
    """Marks in the memory that the next games do not continue its newest steps."""
    memory = parts.learners.agent.interrupt(state.agent.memory)
    return state._replace(agent=state.agent._replace(memory=memory))


# --- on the host ---------------------------------------------------------------------------------


def init(parts: Parts) -> LoopState:
    """Returns the state at the start of training, laid out over the mesh."""
    keys = [jax.random.split(jax.random.key(seed), 3) for seed in parts.seeds]
    params_keys, update_keys, act_keys = zip(*keys, strict=True)
    groups = (start_group(parts, engine, parts.seeds, act_keys) for engine in parts.engines)
    state = LoopState(
        agent=_new_agent(parts, params_keys),
        games=tuple(groups),
        key=put(parts.mesh, population.gather(update_keys), REPLICATED),
        metrics={},
    )
    state = _with_first_step(parts, state)
    state = state._replace(metrics=put(parts.mesh, _zero_metrics(parts, state), REPLICATED))
    return jax.block_until_ready(state)


def restart(parts: Parts, state: LoopState, *seeds: int, moved: bool = False) -> LoopState:
    """Returns the state with new games of every group (see `Program.restart`)."""
    jax.block_until_ready(state)  # no call may still be on its way to the old pools
    act_keys = [
        jax.random.fold_in(jax.random.key(first), seed)
        for first, seed in zip(parts.seeds, seeds, strict=True)
    ]
    groups = []
    for engine, old in zip(parts.engines, state.games, strict=True):
        groups.append(_continue(old, start_group(parts, engine, seeds, act_keys), moved))
    parts.turn.retrace()
    mapped = map_over_devices(partial(interrupt, parts), parts.mesh, (parts.specs,), parts.specs)
    state = jax.jit(mapped, donate_argnums=0)(state._replace(games=tuple(groups)))
    return jax.block_until_ready(_with_first_step(parts, state))


def start_group(
    parts: Parts, engine: EnvEngine, seeds: Sequence[int], act_keys: Sequence[jax.Array]
) -> rollout.RolloutState:
    """Starts the games of one group on every device, laid out over the mesh."""
    env, timestep = engine.init(*seeds)
    # One key per environment, by its number: devices and groups change no action.
    keys = population.env_keys(act_keys, engine.env_ids)
    episodes = episode_statistics.init(
        engine.spec.num_envs,
        num_local_devices(parts.mesh),
        counted=parts.plan.config.env.random_start_steps == 0,
        members=len(seeds),
    )
    core, stack_size = parts.learners.agent.core, engine.spec.stack_size
    state = rollout.start(env, timestep, keys, episodes, core, stack_size)
    return put(parts.mesh, state, SHARDED)


def _continue(
    old: rollout.RolloutState, new: rollout.RolloutState, moved: bool
) -> rollout.RolloutState:
    """Returns new games with the old statistics, and the old keys on the same devices."""
    started = {name: getattr(new.episodes, name) for name in ("score", "length", "counted")}
    return new._replace(
        keys=new.keys if moved else old.keys, episodes=old.episodes._replace(**started)
    )


def _new_agent(parts: Parts, params_keys: Sequence[jax.Array]) -> AgentState:
    """Returns the initial agent, or that of all members, laid out over the mesh."""
    agent, mesh = parts.learners.agent, parts.mesh
    # Two programs, because the one without the memory is the same for every size of memory. Each
    # device makes its memory, where it stays.
    learner = jax.jit(lambda key: agent.init(key)._replace(memory=()))
    memory = jax.jit(
        map_over_devices(lambda key: agent.init(key).memory, mesh, (REPLICATED,), SHARDED)
    )
    agents = []
    for key in params_keys:
        replicated_key = put(mesh, key, REPLICATED)
        replicated = put(mesh, learner(key), REPLICATED)
        agents.append(replicated._replace(memory=memory(replicated_key)))
    return population.put_agents(mesh, agents)


def _with_first_step(parts: Parts, state: LoopState) -> LoopState:
    """Sends the first actions if the order is overlapped."""
    if parts.plan.config.parallel.order != "overlapped":
        return state
    program = parts.compile(_named(send_first, parts), (parts.specs,), parts.specs)
    sent: LoopState = program(state)
    return sent


def _zero_metrics(parts: Parts, state: LoopState) -> Metrics:
    """Returns a zero for each metric of a turn, of a population one for each member."""
    names = partial(metrics_of_turn, parts)
    mapped = map_over_devices(names, parts.mesh, (parts.specs,), REPLICATED)
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(mapped, state))
