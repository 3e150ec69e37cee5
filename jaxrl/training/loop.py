"""The host's loop: runs about a second of compiled updates, logs, saves, and repeats."""

import contextlib
import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from jaxrl.config.schema import Config
from jaxrl.errors import NotFiniteError, StorageError
from jaxrl.program import nonfinite
from jaxrl.program.episode_statistics import EpisodeSummary, summarize
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runtime.mesh import fetch
from jaxrl.training.display import TrainingStatus
from jaxrl.training.evaluator import Evaluator
from jaxrl.training.recorder import Recorder
from jaxrl.training.session import SECONDS_PER_CALL, TrainingSession
from jaxrl.types import FRAME_SKIP, LoopState

SLOWER = 20  # a call that takes this many times as long as expected counts as stuck


def run(
    session: TrainingSession,
    compiled: Any,
    state: LoopState,
    progress: Progress,
    compile_seconds: float,
    new_games: bool,
) -> tuple[LoopState, Progress]:
    """Trains until the last update or a signal, and saves before it returns.

    `new_games` says that all games begin with this session, so that the first to end are short.
    """
    recorder, evaluator = Recorder(session, progress.step), Evaluator(session, progress.step)
    updates, seconds = progress.updates, progress.seconds
    update_seconds = SECONDS_PER_CALL  # until it is measured: one update in the first call
    interval_start = (progress.step, seconds)
    start = time.perf_counter() - seconds
    unsaid = int(new_games or progress.new_games)
    extra = {"compile_seconds": round(compile_seconds, 3), "new_games": unsaid}
    # Games that ended on devices of an earlier session; this state does not count them.
    elsewhere = progress.episodes - _games(state).episodes
    ended_before = progress.episodes if new_games else max(progress.ended_before, elsewhere)
    progress = dataclasses.replace(progress, ended_before=ended_before, new_games=unsaid)
    session.stop.savable = True
    while updates < session.plan.num_updates and not session.stop.agreed():
        count, boundary = session.next_call(updates, update_seconds)
        state, call_seconds = _call(session, compiled, state, count, update_seconds)
        update_seconds, updates = call_seconds / count, updates + count
        # Training stands still while it waits for a save, and for an evaluation.
        seconds = time.perf_counter() - start - recorder.seconds - evaluator.seconds
        step = updates * session.program.steps_per_update
        rate = (step - interval_start[0]) / (seconds - interval_start[1])
        games = _games(state, elsewhere)
        since_line = (updates - 1) % session.plan.updates_per_line + 1  # updates
        means = metrics.means(jax.device_get(state.metrics), since_line)
        check_finite(session, state, step, means)
        progress = Progress(step, updates, seconds, games.episodes, ended_before, unsaid)
        status = TrainingStatus(step, session.plan.total_steps, rate, games, _note(means))
        session.display.update(status, updates == boundary)
        if updates < boundary:
            continue
        _check_learned(means, since_line, step)
        check_finite(session, state, step)
        means |= evaluator.if_due(state, step)
        wall = recorder.wall_before + session.seconds_since_start()
        recorder.write(_log_line(progress, rate, games, wall, recorder.seconds) | extra | means)
        state = state._replace(metrics=jax.tree.map(jnp.zeros_like, state.metrics))
        extra, unsaid, interval_start = {}, 0, (step, seconds)
        progress = dataclasses.replace(progress, new_games=0)
        best_by = _best_by(evaluator, step, games, ended_before, session.config)
        recorder.save_if_due(state, progress, best_by, evaluator.is_best)
    session.stop.agreed()  # a signal may have come with the last update
    check_finite(session, state, progress.step)
    games = _games(state, elsewhere)
    best_by = _best_by(evaluator, progress.step, games, ended_before, session.config)
    recorder.save_last(state, progress, best_by)
    return state, progress


def _call(
    session: TrainingSession, compiled: Any, state: LoopState, count: int, update_seconds: float
) -> tuple[LoopState, float]:
    """Runs `count` compiled updates; returns the state after them and the seconds they took."""
    start = time.perf_counter()
    with session.watchdog.expecting("the emulators", SLOWER * update_seconds * count):
        state = jax.block_until_ready(compiled(state, np.int32(count)))
    for engine in session.engines:
        engine.check()
    return state, time.perf_counter() - start


def check_finite(
    session: TrainingSession,
    state: LoopState,
    step: int,
    means: dict[str, float | None] | None = None,
) -> None:
    """Raises `NotFiniteError` if losses, or without `means` params or opt_state, are not finite.

    Args:
      session: whose newest checkpoint the message names.
      state: of training.
      step: agent steps so far, for the message.
      means: of the metrics since the last log line; None checks the state itself.
    """
    found = nonfinite.lost(means or {})
    if means is None:
        found = nonfinite.faults(state.agent)
    if not found:
        return
    with contextlib.suppress(StorageError):
        session.checkpoints.wait()
    newest = session.checkpoints.newest
    checkpoint = (
        f"the newest checkpoint, of step {newest:,}, is from before"
        if newest
        else "no checkpoint was written"
    )
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise NotFiniteError(
        f"training went wrong by step {step:,}: {', '.join(found[:3])}{more}; {checkpoint}; lower "
        "optimizer.learning_rate, or skip such updates (optimizer.on_nonfinite = 'skip'; in a "
        "resume --override optimizer.on_nonfinite=skip)"
    )


def _check_learned(means: dict[str, float | None], updates: int, step: int) -> None:
    """Raises `NotFiniteError` if every update since the last log line was skipped."""
    if means["loss/learning_rate"] is None:  # every update that is not skipped reports it
        raise NotFiniteError(
            f"all updates of the {updates} up to step {step:,} were skipped: nothing is learned"
        )


def _note(means: dict[str, float | None]) -> str:
    """Returns a note for the status line: losses are missing while a replay fills."""
    filling = None in means.values() and not means[nonfinite.SKIPPED]
    return "filling the memory" if filling else ""


def _best_by(
    evaluator: Evaluator, step: int, games: EpisodeSummary, before: int, config: Config
) -> float | None:
    """Returns the mean that ranks a checkpoint: of its evaluation, where there are such, or return.

    A mean return is None while it favors short games; `before` counts the games that ended before
    those in progress began together.
    """
    if config.evaluation.interval:
        return evaluator.mean_of(step)
    fair = games.episodes - before >= metrics.games_needed(config.num_envs)
    return games.return_mean if fair else None


def _games(state: LoopState, elsewhere: int = 0) -> EpisodeSummary:
    """Returns statistics of all groups' games; `elsewhere` games are added to their number."""
    games = summarize(*fetch([group.episodes for group in state.games]))
    return games._replace(episodes=games.episodes + elsewhere)


def _log_line(
    progress: Progress, rate: float, games: EpisodeSummary, wall: float, saving: float
) -> dict[str, Any]:
    """Returns the keys of metrics.jsonl that every run has."""
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
