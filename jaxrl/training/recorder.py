"""Metrics and checkpoints of a session, written as training proceeds."""

import time
from collections.abc import Callable
from typing import Any

from jaxrl.errors import StorageError
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.wandb_log import WandbLog
from jaxrl.runtime import processes
from jaxrl.training.session import TrainingSession
from jaxrl.types import LoopState


class Recorder:
    """Writes metrics and checkpoints; training survives some failed writes."""

    def __init__(self, session: TrainingSession, step: int) -> None:
        self._session = session
        self._log = metrics.MetricsLog(session.run_dir, step) if processes.index() == 0 else None
        self._wandb: WandbLog | None = None
        if self._log and session.config.log.wandb:
            with session.display.busy("starting Weights & Biases"):
                self._wandb = WandbLog(session.run_dir, session.config, session.display.say)
        self._interval = session.config.checkpoint.interval
        self._next_save = (step // self._interval + 1) * self._interval  # agent steps
        self._failures = 0  # saves that failed in a row
        self._buffering = False  # metrics wait in memory, because they cannot be written
        self.seconds = 0.0  # that training has waited for checkpoints
        self.wall_before = self._log.wall_seconds if self._log else 0.0  # of earlier sessions

    def write(self, row: dict[str, Any]) -> None:
        """Passes a line of metrics on, and writes it, or keeps it until that is possible."""
        if self._log is None:
            return
        try:
            self._log.write(row)
            self._buffering = False
        except OSError as error:
            if not self._buffering:
                self._session.display.say(
                    f"warning: metrics cannot be written ({error.strerror}): lines stay in memory "
                    "until they can"
                )
            self._buffering = True
        if self._wandb is not None:
            self._wandb.write(row)
        if self._session.on_metrics is not None:
            self._session.on_metrics(row)

    def is_due(self, step: int) -> bool:
        """Returns whether the interval of checkpoints has passed, or the last save has failed."""
        return step >= self._next_save

    def save_if(
        self,
        due: bool,
        state: Callable[[], LoopState],
        progress: Progress,
        mean_return: float | None,
    ) -> None:
        """Saves a checkpoint if it is due, of a state that is asked for only then.

        A failed save is due again at the next line.

        Raises `StorageError` after `checkpoint.max_failures` failures in a row.
        """
        checkpoints, before = self._session.checkpoints, self._session.checkpoints.newest
        start = time.perf_counter()
        try:
            if processes.count() == 1:
                checkpoints.poll()
            if due:
                self._save(state(), progress, mean_return)
                self._next_save = (progress.step // self._interval + 1) * self._interval
            if checkpoints.newest != before:  # one has been completed
                self._failures = 0
        except StorageError as error:
            self._handle_failure(error)
            self._next_save = progress.step
        finally:
            self.seconds += time.perf_counter() - start

    def save_last(self, state: LoopState, progress: Progress, mean_return: float | None) -> None:
        """Saves a checkpoint, and waits until it and all metrics are written."""
        if processes.count() == 1:
            try:
                self._session.checkpoints.wait()
            except StorageError as error:  # of the save before; the last one may still find room
                self._session.display.say(f"warning: {error}")
        try:
            self._save(state, progress, mean_return)
            self._session.checkpoints.wait()
            if self._log is not None:
                self._log.close()
        except StorageError as error:
            raise StorageError(f"{error}{self._advice()}") from error
        except OSError as error:
            raise StorageError(f"metrics could not be written: {error.strerror}") from error
        finally:
            if self._wandb is not None:
                self._wandb.close()

    def _save(self, state: LoopState, progress: Progress, mean_return: float | None) -> None:
        """Flushes the metrics and starts to save a checkpoint."""
        try:
            if self._log is not None:  # a resumed run continues after lines that are on the disk
                self._log.flush()
        except OSError as error:
            raise StorageError(f"metrics could not be written: {error.strerror}") from error
        self._session.checkpoints.save(state, progress, mean_return)

    def _handle_failure(self, error: StorageError) -> None:
        """Warns of a failed save; raises `StorageError` after too many."""
        self._failures += 1
        limit = self._session.config.checkpoint.max_failures
        # Several processes, and the members of a population, would have to agree on how they
        # continue after a failure.
        together = processes.count() > 1 or self._session.members > 1
        if self._failures >= limit or together:
            times = f" ({limit} times in a row)" * (self._failures > 1)
            raise StorageError(f"{error}{times}{self._advice()}") from error
        self._session.display.say(
            f"warning: {error} (failure {self._failures} of {limit}); training continues, and "
            "the save is tried again at the next log line"
        )

    def _advice(self) -> str:
        newest = self._session.checkpoints.newest
        if newest is None:
            return "; there is no checkpoint: make room, then jaxrl resume"
        return f"; the newest checkpoint is of step {newest:,}: make room, then jaxrl resume"
