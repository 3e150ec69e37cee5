"""The parts that one process trains with, and when its compiled calls and log lines end."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config
from jaxrl.envs.flicker import games_of, replace_games
from jaxrl.program import population
from jaxrl.program.program import Program
from jaxrl.runs.checkpoint import Checkpoints
from jaxrl.runtime import processes
from jaxrl.runtime.mesh import SHARDED, local_rows, put
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training.display import Display
from jaxrl.types import AgentState, EnvEngine, LoopState

# Target duration of one compiled call: Ctrl-C and the status line wait for its end.
SECONDS_PER_CALL = 1.0

OnMetrics = Callable[[dict[str, Any]], None]


class TrainingSession(NamedTuple):
    """Plan, devices, compiled program and outputs of one process that trains."""

    plan: Plan
    run_dir: Path
    mesh: jax.sharding.Mesh
    engines: tuple[EnvEngine, ...]
    program: Program
    checkpoints: Checkpoints
    display: Display
    stop: StopSignal
    watchdog: Watchdog
    start_time: float  # when the session began, by time.perf_counter
    members: int = 1  # runs that train together; each has a session with a plan and outputs
    on_metrics: OnMetrics | None = None  # called with every line of metrics.jsonl

    @property
    def config(self) -> Config:
        """The configuration behind the plan."""
        return self.plan.config

    @property
    def name(self) -> str:
        """The beginning of messages about a member of a population; empty for a run alone."""
        return f"seed {self.config.seed}: " if self.members > 1 else ""

    def save_games(self, state: LoopState) -> LoopState:
        """Returns the state with its games as the rows of a checkpoint."""
        groups = []
        for engine, group in zip(self.engines, state.games, strict=True):
            if engine.save is not None:
                games = put(self.mesh, engine.save(), SHARDED)
                group = group._replace(env=replace_games(group.env, games))
            if engine.pack is not None:
                rows = engine.pack(jax.tree.map(local_rows, games_of(group.env)))
                games = put(self.mesh, rows, SHARDED)
                group = group._replace(env=replace_games(group.env, games))
            groups.append(group)
        return state._replace(games=tuple(groups))

    def run_states(self, state: LoopState) -> Iterator[LoopState]:
        """Yields the state of each member, with the games that a checkpoint holds."""
        if self.members == 1:
            yield self.save_games(state)
            return
        saved = self.save_games(state)
        if not self.engines[0].state_format:
            games = tuple(group._replace(env=()) for group in saved.games)
            saved = saved._replace(games=games)
        for number in range(self.members):
            yield self.program.take(saved, number)

    def agents(self, state: LoopState) -> list[AgentState]:
        """Returns the agent of each member, without a memory."""
        if self.members == 1:
            return [state.agent._replace(memory=())]
        return [
            AgentState(
                population.member(state.agent.actor, number),
                population.member(state.agent.train_state, number),
                memory=(),
            )
            for number in range(self.members)
        ]

    def load_games(self, state: LoopState, new: LoopState) -> LoopState:
        """Returns the state whose games go on from those rows; `new` is of what is played now."""
        groups = []
        for engine, group, playing in zip(self.engines, state.games, new.games, strict=True):
            if engine.load is not None:
                engine.load(local_rows(games_of(group.env)))
                group = group._replace(env=replace_games(group.env, games_of(playing.env)))
            if engine.unpack is not None:
                games = put(self.mesh, engine.unpack(local_rows(games_of(group.env))), SHARDED)
                group = group._replace(env=replace_games(group.env, games))
            groups.append(group)
        return state._replace(games=tuple(groups))

    def seconds_since_start(self) -> float:
        """Returns the wall-clock seconds since the session started."""
        return time.perf_counter() - self.start_time

    def next_call(self, updates: int, update_seconds: float) -> tuple[int, int]:
        """Returns the number of updates of the next compiled call, and the next log boundary.

        `updates` are done so far, each of the last call in `update_seconds`.
        """
        lines, whole = self.plan.updates_per_line, self.plan.updates_per_merge
        boundary = min((updates // lines + 1) * lines, self.plan.num_updates)
        count = max(1, int(SECONDS_PER_CALL / update_seconds / whole)) * whole
        return int(processes.agree(min(count, boundary - updates))[0, 0]), boundary
