"""The host's loop: runs about a second of compiled updates, logs, saves, and repeats."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.program import episode_statistics, nonfinite, population
from jaxrl.program.episode_statistics import EpisodeSummary, summarize
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runtime.mesh import fetch
from jaxrl.training.display import TrainingStatus
from jaxrl.training.member import Member, check_finite
from jaxrl.training.session import SECONDS_PER_CALL, TrainingSession
from jaxrl.types import LoopState

SLOWER = 20  # a call that takes this many times as long as expected counts as stuck


def run(
    sessions: Sequence[TrainingSession],
    compiled: Any,
    state: LoopState,
    begun: Sequence[Progress],
    compile_seconds: float,
    new_games: bool,
) -> tuple[LoopState, Progress]:
    """Trains until the last update or a signal, and saves before it returns.

    There is a session, and the progress with which it has begun, for each member of a population.
    With `new_games` all games begin with this session, so that the first to end are short.
    """
    session, before = sessions[0], begun[0]
    members = [
        Member(run_session, progress, games, compile_seconds, new_games)
        for run_session, progress, games in zip(
            sessions, begun, _games(session, state), strict=True
        )
    ]
    updates = before.updates
    update_seconds = SECONDS_PER_CALL  # until it is measured: one update in the first call
    interval_start = (before.step, 0.0)
    start = time.perf_counter()
    session.stop.savable = True
    if updates and updates % session.plan.updates_per_line == 0:
        state = _begin_at_line(session, members, state, before)
    while updates < session.plan.num_updates and not session.stop.agreed():
        count, boundary = session.next_call(updates, update_seconds)
        state, call_seconds = _call(session, compiled, state, count, update_seconds)
        update_seconds, updates = call_seconds / count, updates + count
        # Training stands still while it waits for a save, and for an evaluation.
        seconds = time.perf_counter() - start - sum(member.waited for member in members)
        since_line = _follow(session, members, state, updates, seconds)
        step = members[0].progress.step
        rate = (step - interval_start[0]) / (seconds - interval_start[1])
        session.display.update(_status(session, members, rate), updates == boundary)
        if updates < boundary:
            continue
        state = _end_interval(session, members, state, rate, since_line)
        interval_start = (step, seconds)
        _save_if_due(session, members, state)
    session.stop.agreed()  # a signal may have come with the last update
    for member, agent in zip(members, session.agents(state), strict=True):
        check_finite(member.session, nonfinite.faults(agent), member.progress.step)
    for member, run_state in zip(members, session.run_states(state), strict=True):
        member.recorder.save_last(run_state, member.progress, member.best_by())
    return state, members[0].progress


def _follow(
    session: TrainingSession,
    members: Sequence[Member],
    state: LoopState,
    updates: int,
    seconds: float,
) -> int:
    """Passes the figures of the state on to every run; returns the updates since the last line."""
    since_line = (updates - 1) % session.plan.updates_per_line + 1
    games, means = _games(session, state), _means(session, state, since_line)
    for member, played, learned in zip(members, games, means, strict=True):
        member.follow(updates, seconds, played, learned)
    return since_line


def _begin_at_line(
    session: TrainingSession, members: Sequence[Member], state: LoopState, before: Progress
) -> LoopState:
    """Writes the lines that the session before owes; returns the state with metrics of zero."""
    since_line = _follow(session, members, state, before.updates, 0.0)
    for member in members:
        member.begin_at_line()
    rate = before.step / max(before.seconds, 1e-9)
    return _end_interval(session, members, state, rate, since_line, only_owed=True)


def _end_interval(
    session: TrainingSession,
    members: Sequence[Member],
    state: LoopState,
    rate: float,
    since_line: int,
    only_owed: bool = False,
) -> LoopState:
    """Writes the lines of the log; returns the state whose metrics begin again at zero.

    Where a signal leaves a line owed, the metrics stay, for the session that writes it.
    """
    for member, agent in zip(members, session.agents(state), strict=True):
        if member.owes_line or not only_owed:
            member.write_line(agent, rate, since_line)
    if any(member.owes_line for member in members):
        return state
    return state._replace(metrics=jax.tree.map(jnp.zeros_like, state.metrics))


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


def _games(session: TrainingSession, state: LoopState) -> list[EpisodeSummary]:
    """Returns statistics of all groups' games, of each run."""
    fetched = fetch([group.episodes for group in state.games])
    groups = [
        episode_statistics.split_members(group, session.mesh.size, session.members)
        for group in fetched
    ]
    return [summarize(*parts) for parts in zip(*groups, strict=True)]


def _means(
    session: TrainingSession, state: LoopState, updates: int
) -> list[dict[str, float | None]]:
    """Returns the means of the metrics over the updates since the last line, of each run."""
    sums = jax.device_get(state.metrics)
    if session.members == 1:
        return [metrics.means(sums, updates)]
    numbers = range(session.members)
    return [metrics.means(population.member(sums, number), updates) for number in numbers]


def _status(session: TrainingSession, members: Sequence[Member], rate: float) -> TrainingStatus:
    """Returns the figures of the status line, of a population's members together."""
    progress, first = members[0].progress, members[0]
    games = episode_statistics.summarize_members([member.games for member in members])
    total, frame_skip = session.plan.total_steps, session.config.env.frame_skip
    return TrainingStatus(progress.step, total, rate, games, first.note, len(members), frame_skip)


def _save_if_due(session: TrainingSession, members: Sequence[Member], state: LoopState) -> None:
    """Saves a checkpoint of every run if one of them is due; all must have one of the same step."""
    due = any(member.should_save() for member in members)
    states = session.run_states(state)
    for member in members:
        member.recorder.save_if(due, lambda: next(states), member.progress, member.best_by())
