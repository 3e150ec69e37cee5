"""The host's loop: run a compiled second, log it, keep it, until the last update or a signal."""

import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from jaxrl.config.schema import Config
from jaxrl.errors import NotFiniteError, StorageError
from jaxrl.program import episode_statistics, nonfinite
from jaxrl.program.program import Program
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint import Checkpoints
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runtime import processes
from jaxrl.runtime.mesh import fetch
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training.display import Display, Moment
from jaxrl.types import FRAME_SKIP, EnvEngine, LoopState

SECONDS_PER_CALL = 1.0  # of one compiled call: how long Ctrl-C and the progress line wait
SLOWER = 20  # so many times the usual a call may take before it counts as stuck


class Session(NamedTuple):
    """What one process trains with."""

    config: Config
    run_dir: Path
    mesh: jax.sharding.Mesh
    engines: tuple[EnvEngine, ...]
    program: Program
    checkpoints: Checkpoints
    display: Display
    stop: StopSignal
    watch: Watchdog
    began: float  # when this process did, by time.perf_counter

    @property
    def log_updates(self) -> int:
        """Updates between two lines of the log, so that lines fall at the same steps every time."""
        whole = self.program.updates_between_merges
        steps = self.program.steps_per_update * whole
        return whole * max(1, round(self.config.log.interval / steps))

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return self.config.num_updates()

    @property
    def total_steps(self) -> int:
        """Agent steps at the end: of whole updates, so at least those that were asked for."""
        return self.num_updates * self.program.steps_per_update

    def next_call(self, updates: int, update_seconds: float) -> tuple[int, int]:
        """Updates of the next compiled call, and where the line of the log after it is due."""
        boundary = (updates // self.log_updates + 1) * self.log_updates
        boundary = min(boundary, self.num_updates)
        whole = self.program.updates_between_merges
        count = max(1, int(SECONDS_PER_CALL / update_seconds / whole)) * whole
        return int(processes.agree(min(count, boundary - updates))[0, 0]), boundary


class Keeper:
    """Writes metrics and checkpoints, and goes on without for a while where it cannot."""

    def __init__(self, session: Session, step: int) -> None:
        self._session = session
        self._log = metrics.MetricsLog(session.run_dir, step) if processes.index() == 0 else None
        self._interval = session.config.checkpoint.interval
        self._next = (step // self._interval + 1) * self._interval
        self._failures = 0
        self._lines_kept = False  # back, because the disk is full
        self.seconds = 0.0  # that training has waited for checkpoints
        self.wall_before = self._log.wall_seconds if self._log else 0.0

    def write(self, row: dict[str, Any]) -> None:
        """One line of metrics."""
        if self._log is None:
            return
        try:
            self._log.write(row)
            self._lines_kept = False
        except OSError as error:
            if not self._lines_kept:
                self._session.display.say(
                    f"warning: metrics cannot be written ({error.strerror}): kept until they can"
                )
            self._lines_kept = True

    def save_if_due(self, state: LoopState, progress: Progress, mean: float | None) -> None:
        """At the end of an interval of the log; a save that failed is tried again at the next."""
        checkpoints, before = self._session.checkpoints, self._session.checkpoints.newest
        began = time.perf_counter()
        try:
            if processes.count() == 1:
                checkpoints.poll()
            if progress.step >= self._next:
                self._save(state, progress, mean)
                self._next = (progress.step // self._interval + 1) * self._interval
            if checkpoints.newest != before:  # one has been completed
                self._failures = 0
        except StorageError as error:
            self._failures += 1
            most = self._session.config.checkpoint.max_failures
            # What several processes do after a failure they would have to agree on.
            if self._failures >= most or processes.count() > 1:
                times = f" ({most} times in a row)" * (self._failures > 1)
                raise StorageError(f"{error}{times}{self._newest()}") from error
            self._next = progress.step
            self._session.display.say(
                f"warning: {error} (failure {self._failures} of {most}); training goes on, and "
                "a save is tried again soon"
            )
        finally:
            self.seconds += time.perf_counter() - began

    def save_last(self, state: LoopState, progress: Progress, mean: float | None) -> None:
        """Saves, and waits until all is written."""
        check_finite(self._session, state, progress.step)
        if processes.count() == 1:
            try:
                self._session.checkpoints.wait()
            except StorageError as error:  # of a save before; this one may find room
                self._session.display.say(f"warning: {error}")
        try:
            self._save(state, progress, mean)
            self._session.checkpoints.wait()
            if self._log is not None:
                self._log.close()
        except StorageError as error:
            raise StorageError(f"{error}{self._newest()}") from error
        except OSError as error:
            raise StorageError(f"metrics could not be written: {error.strerror}") from error

    def _save(self, state: LoopState, progress: Progress, mean: float | None) -> None:
        try:
            if self._log is not None:  # a checkpoint goes on after lines that are there
                self._log.flush()
        except OSError as error:
            raise StorageError(f"metrics could not be written: {error.strerror}") from error
        self._session.checkpoints.save(state, progress, mean)

    def _newest(self) -> str:
        newest = self._session.checkpoints.newest
        if newest is None:
            return "; there is no checkpoint: make room, then jaxrl resume"
        return f"; the newest checkpoint is of step {newest:,}: make room, then jaxrl resume"


def check_finite(
    session: Session, state: LoopState, step: int, means: dict[str, float | None] | None = None
) -> None:
    """Raises `NotFiniteError` that names what is not finite in losses, parameters or optimizer."""
    found = nonfinite.lost(means or {})
    if means is None:
        found = nonfinite.faults(state.agent)
    if not found:
        return
    with contextlib.suppress(StorageError):
        session.checkpoints.wait()
    newest = session.checkpoints.newest
    go_back = (
        f"the newest checkpoint, of step {newest:,}, is from before"
        if newest
        else "no checkpoint was written"
    )
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise NotFiniteError(
        f"training went wrong by step {step:,}: {', '.join(found[:3])}{more}; {go_back}; lower "
        "optimizer.learning_rate, or leave such updates out (on_nonfinite = 'skip'; in a resume "
        "--override on_nonfinite=skip)"
    )


def run(
    session: Session, compiled: Any, state: LoopState, progress: Progress, compile_seconds: float
) -> tuple[LoopState, Progress]:
    """Compiled calls until the last update or a signal; saves before it returns."""
    program, stop = session.program, session.stop
    keeper = Keeper(session, progress.step)
    updates, seconds = progress.updates, progress.seconds
    update_seconds = SECONDS_PER_CALL  # until it is measured: one update in the first call
    interval_start = (progress.step, seconds)
    began = time.perf_counter() - seconds
    extra = {"compile_seconds": round(compile_seconds, 3)}
    # Of devices that it was moved from; theirs are not among this state's.
    elsewhere = progress.episodes - _games(state).episodes
    # Games that were not in progress together with those of this session.
    ended_before = elsewhere if session.engines[0].restorable else progress.episodes
    stop.savable = True
    while updates < session.num_updates and not stop.agreed():
        count, boundary = session.next_call(updates, update_seconds)
        call_began = time.perf_counter()
        with session.watch.expecting("the emulators", SLOWER * update_seconds * count):
            state = jax.block_until_ready(compiled(state, np.int32(count)))
        for engine in session.engines:
            engine.check()
        now = time.perf_counter()
        update_seconds, updates = (now - call_began) / count, updates + count
        seconds = now - began - keeper.seconds  # no training happens while it waits for a save
        step = updates * program.steps_per_update
        rate = (step - interval_start[0]) / (seconds - interval_start[1])
        games = _games(state, elsewhere)
        since = (updates - 1) % session.log_updates + 1
        means = metrics.means(jax.device_get(state.metrics), since)
        check_finite(session, state, step, means)
        progress = Progress(step, updates, seconds, games.episodes)
        filling = None in means.values() and not means[nonfinite.SKIPPED]
        note = "filling the memory" if filling else ""
        session.display.update(
            Moment(step, session.total_steps, rate, games, note), updates == boundary
        )
        if updates < boundary:
            continue
        if means["loss/learning_rate"] is None:  # which every update has
            raise NotFiniteError(
                f"all updates of the {since} up to step {step:,} were skipped: nothing is learned"
            )
        wall = keeper.wall_before + time.perf_counter() - session.began
        check_finite(session, state, step)
        keeper.write(_line(progress, rate, games, wall, keeper.seconds) | extra | means)
        state = state._replace(metrics=jax.tree.map(jnp.zeros_like, state.metrics))
        extra, interval_start = {}, (step, seconds)
        best_by = _mean_to_keep(games, ended_before, session.config)
        keeper.save_if_due(state, progress, best_by)
    stop.agreed()  # a signal that came with the last update
    best_by = _mean_to_keep(_games(state, elsewhere), ended_before, session.config)
    keeper.save_last(state, progress, best_by)
    return state, progress


def _mean_to_keep(
    games: episode_statistics.EpisodeSummary, before: int, config: Config
) -> float | None:
    """Returns the mean by which a checkpoint may be the best; None while it favors short games.

    `before` counts the games that ended before those in progress began together.
    """
    fair = games.episodes - before >= metrics.games_needed(config.num_envs)
    return games.return_mean if fair else None


def _games(state: LoopState, elsewhere: int = 0) -> episode_statistics.EpisodeSummary:
    games = episode_statistics.summarize(*fetch([group.episodes for group in state.games]))
    return games._replace(episodes=games.episodes + elsewhere)


def _line(
    progress: Progress,
    rate: float,
    games: episode_statistics.EpisodeSummary,
    wall: float,
    saving: float,
) -> dict[str, Any]:
    return {
        "step": progress.step,
        "frames": progress.step * FRAME_SKIP,
        "seconds": round(progress.seconds, 3),
        "steps_per_second": round(rate, 1),
        "updates": progress.updates,
        **games._asdict(),
        "wall_seconds": round(wall, 3),
        "goodput": round(progress.seconds / wall, 4),
        "checkpoint_seconds": round(saving, 3),
        "memory_gb": round(psutil.Process().memory_info().rss / 1e9, 3),
    }
