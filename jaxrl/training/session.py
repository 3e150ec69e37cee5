"""The parts that one process trains with, and when its compiled calls and log lines end."""

import time
from pathlib import Path
from typing import NamedTuple

import jax

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
    """Configuration, devices, compiled program and outputs of one process that trains."""

    config: Config
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
    def log_updates(self) -> int:
        """Updates between two log lines, so lines fall at the same steps in every run."""
        whole = self.program.updates_between_merges
        steps = self.program.steps_per_update * whole
        return whole * max(1, round(self.config.log.interval / steps))

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return self.config.num_updates()

    @property
    def total_steps(self) -> int:
        """Agent steps at the end: whole updates, so at least the configured `total_steps`."""
        return self.num_updates * self.program.steps_per_update

    def seconds_since_start(self) -> float:
        """Returns the wall-clock seconds since the session started."""
        return time.perf_counter() - self.start_time

    def next_call(self, updates: int, update_seconds: float) -> tuple[int, int]:
        """Returns the number of updates of the next compiled call, and the next log boundary.

        Args:
          updates: number of updates done so far.
          update_seconds: duration of one update in the call before.
        """
        boundary = (updates // self.log_updates + 1) * self.log_updates
        boundary = min(boundary, self.num_updates)
        whole = self.program.updates_between_merges
        count = max(1, int(SECONDS_PER_CALL / update_seconds / whole)) * whole
        return int(processes.agree(min(count, boundary - updates))[0, 0]), boundary
