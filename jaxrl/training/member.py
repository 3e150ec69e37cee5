"""The host's part of one run in training; the members of a population have one each."""

import contextlib
import dataclasses
from typing import Any

import psutil

from jaxrl.errors import NotFiniteError, StorageError
from jaxrl.program import nonfinite
from jaxrl.program.episode_statistics import EpisodeSummary, games_between
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.training.evaluator import Evaluator
from jaxrl.training.recorder import Recorder
from jaxrl.training.session import TrainingSession
from jaxrl.types import AgentState


class Member:
    """Progress, log, evaluations and checkpoints of one run."""

    def __init__(
        self,
        session: TrainingSession,
        progress: Progress,
        games: EpisodeSummary,
        compile_seconds: float,
        new_games: bool,
    ) -> None:
        """Continues from `progress`; `games` are those that the state counts.

        `new_games` says that all games begin with this session, so that the first to end are short.
        """
        self.session = session
        self.recorder = Recorder(session, progress.step)
        self.evaluator = Evaluator(session, progress.step)
        self._extra = {"compile_seconds": round(compile_seconds, 3)}
        # The values in an owed line, which is of the session before, and in this one's first line.
        self._new_games = progress.new_games, int(new_games)
        # Games that ended on devices of an earlier session; this state does not count them.
        elsewhere = progress.episodes - games_between(0, games.episodes)
        ended_before = progress.episodes if new_games else max(progress.ended_before, elsewhere)
        self._counted = games.episodes
        self._seconds_before = progress.seconds
        unsaid = max(self._new_games)
        self.progress = dataclasses.replace(progress, ended_before=ended_before, new_games=unsaid)
        self.games = games
        self._means: dict[str, float | None] = {}
        # Whether the line of this step is still to be written, because a signal ended its
        # evaluation.
        self.owes_line = False

    def begin_at_line(self) -> None:
        """Sets whether the session before owes the line of the step that this session begins at.

        It does where the log lacks the line, and the metrics, which `follow` has taken over, are of
        some updates.
        """
        learned = self._means["loss/learning_rate"] is not None or self._means[nonfinite.SKIPPED]
        self.owes_line = self.evaluator.line_before < self.progress.step and bool(learned)

    @property
    def waited(self) -> float:
        """The seconds that training stood still for saves and evaluations of this run."""
        return self.recorder.seconds + self.evaluator.seconds

    def follow(
        self,
        updates: int,
        seconds: float,
        games: EpisodeSummary,
        means: dict[str, float | None],
    ) -> None:
        """Takes over the figures after a compiled call; `seconds` are those of this session.

        `games` are those that the state counts, `means` those of the metrics since the last line of
        the log. Raises `NotFiniteError` if a loss is not finite.
        """
        step = updates * self.session.program.steps_per_update
        check_finite(self.session, nonfinite.lost(means), step)
        ended = games_between(self._counted, games.episodes)
        self._counted = games.episodes
        self.games = games._replace(episodes=self.progress.episodes + ended)
        self._means = means
        self.progress = dataclasses.replace(
            self.progress,
            step=step,
            updates=updates,
            seconds=self._seconds_before + seconds,
            episodes=self.games.episodes,
        )

    @property
    def note(self) -> str:
        """A note for the status line: losses are missing while a replay fills."""
        losses = [mean for name, mean in self._means.items() if name.startswith("loss/")]
        filling = None in losses and not self._means[nonfinite.SKIPPED]
        return "filling the memory" if filling else ""

    def write_line(self, agent: AgentState, rate: float, updates: int) -> None:
        """Checks the agent, evaluates it if that is due, and writes a line of the log.

        `rate` counts agent steps per second, and `updates` are those since the last line. Where a
        signal ends the evaluation, the line stays owed: a resumed session writes it. Raises
        `NotFiniteError` if an array is not finite, or nothing was learned.
        """
        progress, step = self.progress, self.progress.step
        _check_learned(self.session, self._means, updates, step)
        check_finite(self.session, nonfinite.faults(agent), step)
        owed, last = self.owes_line, progress.updates >= self.session.plan.num_updates
        evaluated = self.evaluator.evaluate_if_due(agent.actor, step)
        self.owes_line = self.evaluator.stopped and not last
        if self.owes_line:
            return
        wall = self.recorder.wall_before + self.session.seconds_since_start()
        frame_skip = self.session.config.env.frame_skip
        line = _log_line(progress, frame_skip, rate, self.games, wall, self.recorder.seconds)
        if owed:  # it is of the session before
            before, now = self._new_games
            self.recorder.write(line | {"new_games": before} | self._means | evaluated)
            self.progress = dataclasses.replace(progress, new_games=now)
            return
        self.recorder.write(line | self._extra | self._means | evaluated)
        self._extra = {}
        self.progress = dataclasses.replace(progress, new_games=0)

    def should_save(self) -> bool:
        """Returns whether a checkpoint is due, or would be the best."""
        return self.evaluator.is_best or self.recorder.is_due(self.progress.step)

    def best_by(self) -> float | None:
        """Returns the mean that ranks a checkpoint: that of its evaluation, or the return."""
        config = self.session.config
        if config.evaluation.interval:
            return self.evaluator.mean_of(self.progress.step)
        return _fair_mean(self.games, self.progress.ended_before, config.num_envs)


def check_finite(session: TrainingSession, faults: list[str], step: int) -> None:
    """Raises `NotFiniteError` if there are faults, from `nonfinite.lost` or `nonfinite.faults`."""
    if not faults:
        return
    with contextlib.suppress(StorageError):
        session.checkpoints.wait()
    newest = session.checkpoints.newest
    checkpoint = (
        f"the newest checkpoint, of step {newest:,}, is from before"
        if newest
        else "no checkpoint was written"
    )
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    raise NotFiniteError(
        f"{session.name}training went wrong by step {step:,}: {', '.join(faults[:3])}{more}; "
        f"{checkpoint}; lower optimizer.learning_rate, or skip such updates "
        "(optimizer.on_nonfinite = 'skip'; in a resume --override optimizer.on_nonfinite=skip)"
    )


def _check_learned(
    session: TrainingSession, means: dict[str, float | None], updates: int, step: int
) -> None:
    """Raises `NotFiniteError` if every update since the last log line was skipped."""
    if means["loss/learning_rate"] is None:  # every update that is not skipped reports it
        raise NotFiniteError(
            f"{session.name}all updates of the {updates} up to step {step:,} were skipped: "
            "nothing is learned"
        )


def _fair_mean(games: EpisodeSummary, before: int, num_envs: int) -> float | None:
    """Returns the mean return; None while it favors short games.

    `before` counts the games that ended before those in progress began together.
    """
    fair = games.episodes - before >= metrics.games_needed(num_envs)
    return games.return_mean if fair else None


def _log_line(
    progress: Progress,
    frame_skip: int,
    rate: float,
    games: EpisodeSummary,
    wall: float,
    saving: float,
) -> dict[str, Any]:
    """Returns the keys of metrics.jsonl that every run has."""
    return {
        "step": progress.step,
        "frames": progress.step * frame_skip,
        "seconds": round(progress.seconds, 3),
        "steps_per_second": round(rate, 1),
        "updates": progress.updates,
        **games._asdict(),
        "wall_seconds": round(wall, 3),
        "goodput": round(progress.seconds / wall, 4),
        "checkpoint_seconds": round(saving, 3),
        "memory_gb": round(psutil.Process().memory_info().rss / 1e9, 3),
        "new_games": progress.new_games,
    }
