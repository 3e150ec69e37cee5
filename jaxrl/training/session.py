"""The parts that one process trains with, and when its compiled calls and log lines end."""

import time
from pathlib import Path
from typing import NamedTuple

import jax

from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config
from jaxrl.program.program import Program
from jaxrl.runs.checkpoint import Checkpoints
from jaxrl.runtime import processes
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training.display import Display
from jaxrl.types import EnvEngine

# Target duration of one compiled call: Ctrl-C and the status line wait for its end.
SECONDS_PER_CALL = 1.0


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
    start_time: float  # of the session, by time.perf_counter

    @property
    def config(self) -> Config:
        """The configuration behind the plan."""
        return self.plan.config

    def seconds_since_start(self) -> float:
        """Returns the wall-clock seconds since the session started."""
        return time.perf_counter() - self.start_time

    def next_call(self, updates: int, update_seconds: float) -> tuple[int, int]:
        """Returns the number of updates of the next compiled call, and the next log boundary.

        Args:
          updates: number of updates done so far.
          update_seconds: duration of one update in the call before.
        """
        lines, whole = self.plan.updates_per_line, self.plan.updates_per_merge
        boundary = min((updates // lines + 1) * lines, self.plan.num_updates)
        count = max(1, int(SECONDS_PER_CALL / update_seconds / whole)) * whole
        return int(processes.agree(min(count, boundary - updates))[0, 0]), boundary
