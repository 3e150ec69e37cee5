"""The one compiled program: many turns of play and update on every device of the mesh."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.program import async_learners, episode_statistics, nonfinite, policy_lag, rollout
from jaxrl.runtime.mesh import (
    REPLICATED,
    SHARDED,
    compiler_options,
    map_over_devices,
    num_local_devices,
    put,
)
from jaxrl.types import Agent, AgentState, EnvEngine, LoopState, Metrics

# How each part lies on the mesh: a tree of specs, in the shape of the state.
SPECS: Any = LoopState(
    agent=AgentState(actor=REPLICATED, optimizer=REPLICATED, memory=SHARDED),
    games=SHARDED,
    key=REPLICATED,
    metrics=REPLICATED,
)


class Program(NamedTuple):
    """What the host calls."""

    init: Callable[[], LoopState]
    # restart(state, seed, moved=False) -> state: new games, where a checkpoint could not keep the
    # old ones; on other devices (moved) each environment has a new random key too. Before the
    # first `run`, which would go on with the pools that are gone.
    restart: Callable[..., LoopState]
    # jitted: run(state, num_updates i32[]) -> state; the state is donated. As many updates as
    # `updates_between_merges` divides.
    run: Any
    steps_per_update: int  # agent steps over all devices
    updates_between_merges: int


def envs_per_device(config: Config, mesh: Mesh) -> int:
    """Environments on each device. Raises `UserError` if they do not divide."""
    return resolve(config, mesh.size).envs_per_device


def envs_per_learner(config: Config, mesh: Mesh) -> int:
    """Environments that one agent is made for."""
    return config.num_envs // (config.parallel.num_learners or mesh.size)


def _start_games(
    config: Config, engine: EnvEngine, mesh: Mesh, seed: int, key: jax.Array
) -> rollout.RolloutState:
    """New games of one group on every device, laid out over the mesh; `key` is the actions'."""
    local = num_local_devices(mesh)
    env, timestep = engine.init(seed)
    # One key per environment, by its number: devices and groups change no action.
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, engine.env_ids.ravel())
    games = episode_statistics.init(
        engine.spec.num_envs, local, counted=config.env.random_start_steps == 0
    )
    return put(mesh, rollout.start(env, timestep, keys, games), SHARDED)


def make_program(config: Config, agent: Agent, engines: rollout.Engines, mesh: Mesh) -> Program:
    """Builds the functions; nothing runs or compiles before they are called.

    Args:
      config: what to train.
      agent: made for the environments of one learner (`envs_per_learner`).
      engines: of each group.
      mesh: the devices.
    """
    overlapped = config.parallel.order == "overlapped"
    agent = nonfinite.guarded(agent, skip=config.optimizer.on_nonfinite == "skip")
    agent = policy_lag.delayed(agent, config.parallel.lag)
    team = async_learners.make(config, agent, mesh.size)

    def make_collect() -> Any:
        """Jitted, to be traced once for its metrics' names and for the program itself."""

        def collect(
            learner: AgentState, games: rollout.Games, key: jax.Array
        ) -> tuple[rollout.Learned, jax.Array]:
            key, update_key = jax.random.split(key)
            return rollout.collect(team.agent, engines, learner, games, update_key), key

        return jax.jit(collect)

    # A trace holds the addresses of the pools that its engines had, so that engines that are
    # started anew need a new one.
    collects = [make_collect()]

    def update(_: Any, state: LoopState) -> LoopState:
        learned, key = collects[-1](state.agent, state.games, state.key)
        return LoopState(
            agent=learned.agent,
            games=learned.games,
            key=key,
            metrics=jax.tree.map(jnp.add, state.metrics, learned.metrics),
        )

    def updates_and_merge(_: Any, state: LoopState) -> LoopState:
        own = state._replace(agent=team.spread(state.agent))
        if team.updates == 1:  # XLA keeps a loop of one round, and copies what it carries
            own = update(0, own)
        else:
            own = jax.lax.fori_loop(0, team.updates, update, own)
        return own._replace(
            agent=team.merge(state.agent, own.agent), metrics=team.average(own.metrics)
        )

    def run(state: LoopState, num_updates: jax.Array) -> LoopState:
        return jax.lax.fori_loop(0, num_updates // team.updates, updates_and_merge, state)

    mapped = map_over_devices(run, mesh, (SPECS, REPLICATED), SPECS)
    options = compiler_options(mesh)

    def send_first(state: LoopState) -> LoopState:
        actor = team.spread(state.agent).actor
        return state._replace(games=rollout.send_all(team.agent, engines, actor, state.games))

    def under_way(state: LoopState) -> LoopState:
        """With the first step sent, where the order is overlapped."""
        if not overlapped:
            return state
        mapped = map_over_devices(send_first, mesh, (SPECS,), SPECS)
        return jax.jit(mapped, donate_argnums=0, compiler_options=options)(state)

    def no_metrics(state: LoopState) -> Metrics:
        def metrics(state: LoopState) -> Metrics:
            return collects[-1](team.spread(state.agent), state.games, state.key)[0].metrics

        mapped_metrics = map_over_devices(metrics, mesh, (SPECS,), REPLICATED)
        shapes = jax.eval_shape(mapped_metrics, state)
        return jax.tree.map(lambda _: np.float32(0), shapes)

    def init() -> LoopState:
        params_key, update_key, act_key = jax.random.split(jax.random.key(config.seed), 3)
        # Apart, because the first is the same program for every size of the second. Each device
        # makes its own memory, where it stays.
        learner = jax.jit(lambda key: team.agent.init(key)._replace(memory=()))(params_key)
        memory = map_over_devices(
            lambda key: team.agent.init(key).memory, mesh, (REPLICATED,), SHARDED
        )
        replicated_key = put(mesh, params_key, REPLICATED)
        state = LoopState(
            agent=put(mesh, learner, REPLICATED)._replace(memory=jax.jit(memory)(replicated_key)),
            games=tuple(
                _start_games(config, engine, mesh, config.seed, act_key) for engine in engines
            ),
            key=put(mesh, update_key, REPLICATED),
            metrics={},
        )
        state = under_way(state)
        state = state._replace(metrics=put(mesh, no_metrics(state), REPLICATED))
        return jax.block_until_ready(state)

    def interrupt(state: LoopState) -> LoopState:
        """The new games do not continue the newest steps of the old ones."""
        memory = team.agent.interrupt(state.agent.memory)
        return state._replace(agent=state.agent._replace(memory=memory))

    def new_games(
        engine: EnvEngine, old: rollout.RolloutState, seed: int, moved: bool
    ) -> rollout.RolloutState:
        act_key = jax.random.fold_in(jax.random.key(config.seed), seed)
        fresh = _start_games(config, engine, mesh, seed, act_key)
        started = {name: getattr(fresh.episodes, name) for name in ("score", "length", "counted")}
        return fresh._replace(
            keys=fresh.keys if moved else old.keys, episodes=old.episodes._replace(**started)
        )

    def restart(state: LoopState, seed: int, moved: bool = False) -> LoopState:
        jax.block_until_ready(state)  # no call may still be on its way to the old pools
        games = [new_games(*group, seed, moved) for group in zip(engines, state.games, strict=True)]
        collects[:] = [make_collect()]
        mapped = map_over_devices(interrupt, mesh, (SPECS,), SPECS)
        state = jax.jit(mapped, donate_argnums=0)(state._replace(games=tuple(games)))
        return jax.block_until_ready(under_way(state))

    return Program(
        init=init,
        restart=restart,
        run=jax.jit(mapped, donate_argnums=0, compiler_options=options),
        steps_per_update=config.steps_per_update(),
        updates_between_merges=team.updates,
    )
