"""Metrics and checkpoints of a session, written as training proceeds."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxrl.config import extensions
from jaxrl.errors import StorageError
from jaxrl.runs import metrics, tensorboard
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.sinks import CallbackSink, PackageSink, Row, Sink
from jaxrl.runs.wandb_log import WandbLog
from jaxrl.runtime import processes
from jaxrl.training.session import TrainingSession
from jaxrl.types import LoopState


class Recorder:
    """Writes metrics and checkpoints; training survives some failed writes."""

    def __init__(self, session: TrainingSession, step: int) -> None:
        self._session = session
        self._sinks: list[Sink] = []  # empty but in process 0
        self.wall_before = 0.0  # seconds of earlier sessions
        if processes.index() == 0:
            rows, self.wall_before = metrics.rows_before(session.run_dir, step)
            self._sinks = list(_open_sinks(session, rows))
        self._interval = session.config.checkpoint.interval
        self._next_save = (step // self._interval + 1) * self._interval  # agent steps
        self._failures = 0  # saves that failed in a row
        self.seconds = 0.0  # that training has waited for checkpoints

    def write(self, values: dict[str, Any]) -> None:
        """Passes a line of metrics on to every sink."""
        row = metrics.make_row(values)
        for sink in self._sinks:
            sink.write(dict(row))

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
        """Saves a checkpoint if it is due; only then `state` is called.

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
            except StorageError as error:  # the save before; the last one may still find room
                self._session.display.say(f"warning: {error}")
        try:
            with contextlib.ExitStack() as closing:
                for sink in reversed(self._sinks):  # each is closed, whatever another raises
                    closing.callback(sink.close)
                self._save(state, progress, mean_return)
                self._session.checkpoints.wait()
        except StorageError as error:
            raise StorageError(f"{error}{self._advice()}") from error

    def _save(self, state: LoopState, progress: Progress, mean_return: float | None) -> None:
        """Flushes the sinks and starts to save a checkpoint."""
        for sink in self._sinks:  # a resumed run continues after rows that are safe
            sink.flush()
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


def _open_sinks(session: TrainingSession, rows: list[Row]) -> Iterator[Sink]:
    """Yields what a run reports to, metrics.jsonl first; `rows` are those before this session."""
    run_dir, config, say = session.run_dir, session.config, session.display.say
    yield metrics.open_sink(run_dir, rows, say)
    yield tensorboard.open_sink(run_dir, rows, say)
    if config.log.wandb:
        with session.display.busy("starting Weights & Biases"):
            log = WandbLog(config, run_dir, rows, say)
        yield log
    for name, module in extensions.sinks(config.log.sinks).items():
        yield PackageSink(name, module, config, run_dir, [dict(row) for row in rows])
    if session.on_metrics is not None:
        yield CallbackSink(session.on_metrics)
