"""The one compiled program: many turns of play and update on every device of the mesh."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl import distribute, episodes, learners, replay, rollout
from jaxrl.checks import check_divides
from jaxrl.config import C51Config, Config, UserError, VTraceConfig
from jaxrl.distribute import REPLICATED, SHARDED
from jaxrl.types import Agent, AgentState, EnvEngine, Metrics


class LoopState(NamedTuple):
    """All that training changes."""

    agent: AgentState
    games: rollout.Games  # sent already in the overlapped order, not in the strict one
    key: jax.Array  # key[], of the updates to come
    metrics: Metrics  # sums over the updates since the last line of the log


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
    # old ones; on other devices (moved) each environment has a new random key too
    restart: Callable[..., LoopState]
    # jitted: run(state, num_updates i32[]) -> state; the state is donated. As many updates as
    # `updates_between_merges` divides.
    run: Any
    steps_per_update: int  # agent steps over all devices
    updates_between_merges: int


def envs_per_device(config: Config, mesh: Mesh) -> int:
    """Environments on each device. Raises `UserError` if they do not divide."""
    check_divides(config, mesh.size)
    return config.num_envs // mesh.size


def envs_per_learner(config: Config, mesh: Mesh) -> int:
    """Environments that one agent is made for."""
    return config.num_envs // (config.num_learners or mesh.size)


def _check_windows(config: Config, agent: VTraceConfig, mesh: Mesh) -> None:
    local = 1 if mesh.local_devices[0].platform != "cpu" else distribute.num_local_devices(mesh)
    free = distribute.free_host_memory() if local > 1 else distribute.free_device_memory(mesh)
    free = distribute.free_host_memory() if free is None else free
    each = config.num_envs // mesh.size * local * replay.BYTES  # of one step
    need = replay.rows_for_window(agent.window, agent.rollout_length) * each
    usable = replay.USABLE * free
    if need > usable:
        raise UserError(
            f"agent.window = {agent.window} and agent.rollout_length = {agent.rollout_length} of "
            f"{config.num_envs} environments need {need / 1e9:.1f} GB, and {usable / 1e9:.1f} GB "
            "can be used: take fewer of num_envs, or shorter windows"
        )


def check_memory(config: Config, mesh: Mesh) -> None:
    """Refuses a replay that the devices, or the host that writes checkpoints, cannot hold."""
    if isinstance(config.agent, VTraceConfig):
        _check_windows(config, config.agent, mesh)
    if not isinstance(config.agent, C51Config):
        return
    capacity, keeps = config.agent.replay_capacity, config.checkpoint_memory
    local = distribute.num_local_devices(mesh) / mesh.size
    host = distribute.free_host_memory()
    if mesh.local_devices[0].platform == "cpu":
        where = "of memory" + ", half of it for checkpoints" * keeps
        hint = ", or twice as much with --no-checkpoint-memory" * keeps
        replay.check_fits(capacity, local, host, 1 + keeps, where, hint)
        return
    free = distribute.free_device_memory(mesh)
    if free is not None:
        replay.check_fits(capacity, 1 / mesh.size, free, 1, "on each device")
    if keeps:
        where, hint = "of the host's memory for checkpoints", ", or any --no-checkpoint-memory"
        replay.check_fits(capacity, local, host, 1, where, hint)


def _start_games(
    config: Config, engine: EnvEngine, mesh: Mesh, seed: int, key: jax.Array
) -> rollout.RolloutState:
    """New games of one group on every device, laid out over the mesh; `key` is the actions'."""
    local = distribute.num_local_devices(mesh)
    env, timestep = engine.init(seed)
    # One key per environment, by its number: devices and groups change no action.
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, engine.env_ids.ravel())
    games = episodes.init(engine.spec.num_envs, local, counted=config.random_start_steps == 0)
    return distribute.put(mesh, rollout.start(env, timestep, keys, games), SHARDED)


def make_program(config: Config, agent: Agent, engines: rollout.Engines, mesh: Mesh) -> Program:
    """Builds the functions; nothing runs or compiles before they are called.

    Args:
      config: what to train.
      agent: made for the environments of one learner (`envs_per_learner`).
      engines: of each group.
      mesh: the devices.
    """
    overlapped = config.order == "overlapped"
    team = learners.make(config, agent, mesh.size)

    @jax.jit  # traced once for its metrics' names and for the program itself
    def collect(
        learner: AgentState, games: rollout.Games, key: jax.Array
    ) -> tuple[rollout.Learned, jax.Array]:
        key, update_key = jax.random.split(key)
        return rollout.collect(team.agent, engines, learner, games, update_key), key

    def update(_: Any, state: LoopState) -> LoopState:
        learned, key = collect(state.agent, state.games, state.key)
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

    mapped = distribute.map_over_devices(run, mesh, (SPECS, REPLICATED), SPECS)

    def send_first(state: LoopState) -> LoopState:
        actor = team.spread(state.agent).actor
        return state._replace(games=rollout.send_all(team.agent, engines, actor, state.games))

    def under_way(state: LoopState) -> LoopState:
        """With the first step sent, where the order is overlapped."""
        mapped = distribute.map_over_devices(send_first, mesh, (SPECS,), SPECS)
        return jax.jit(mapped, donate_argnums=0)(state) if overlapped else state

    def no_metrics(state: LoopState) -> Metrics:
        def metrics(state: LoopState) -> Metrics:
            return collect(team.spread(state.agent), state.games, state.key)[0].metrics

        mapped_metrics = distribute.map_over_devices(metrics, mesh, (SPECS,), REPLICATED)
        shapes = jax.eval_shape(mapped_metrics, state)
        return jax.tree.map(lambda _: np.float32(0), shapes)

    def init() -> LoopState:
        params_key, update_key, act_key = jax.random.split(jax.random.key(config.seed), 3)
        # Apart, because the first is the same program for every size of the second. Each device
        # makes its own memory, where it stays.
        learner = jax.jit(lambda key: team.agent.init(key)._replace(memory=()))(params_key)
        memory = distribute.map_over_devices(
            lambda key: team.agent.init(key).memory, mesh, (REPLICATED,), SHARDED
        )
        replicated_key = distribute.put(mesh, params_key, REPLICATED)
        state = LoopState(
            agent=distribute.put(mesh, learner, REPLICATED)._replace(
                memory=jax.jit(memory)(replicated_key)
            ),
            games=tuple(
                _start_games(config, engine, mesh, config.seed, act_key) for engine in engines
            ),
            key=distribute.put(mesh, update_key, REPLICATED),
            metrics={},
        )
        state = under_way(state)
        state = state._replace(metrics=distribute.put(mesh, no_metrics(state), REPLICATED))
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
        mapped = distribute.map_over_devices(interrupt, mesh, (SPECS,), SPECS)
        state = jax.jit(mapped, donate_argnums=0)(state._replace(games=tuple(games)))
        return jax.block_until_ready(under_way(state))

    return Program(
        init=init,
        restart=restart,
        run=jax.jit(mapped, donate_argnums=0),
        steps_per_update=config.steps_per_update(),
        updates_between_merges=team.updates,
    )
