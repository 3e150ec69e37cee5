"""The comparison at the top of a report: configurations over their seeds, and which is better."""

import re
from dataclasses import dataclass, field

import numpy as np

from jaxrl.analysis import comparison
from jaxrl.analysis.comparison import ComparisonReport
from jaxrl.analysis.report.entries import Entry
from jaxrl.analysis.report.reader import ReportedRun
from jaxrl.analysis.statistics import Estimate, mean_over_seeds
from jaxrl.errors import UserError

MOST_COMPARED = 12  # entries with a verdict; of more the best is mostly the luckiest


@dataclass(frozen=True)
class Row:
    """One configuration on one game."""

    entry: Entry
    runs: int
    score: Estimate | None  # over seeds, of the mean scores of their evaluations
    human: float | None  # the same, human-normalized
    final: Estimate | None  # over seeds, of the final returns of training


@dataclass(frozen=True)
class GameTable:
    """The configurations on one game, the best first."""

    game: str
    rows: list[Row]
    played: str  # protocol and conditions of the evaluations; empty without any


@dataclass
class Study:
    """The comparison of a report's configurations: tables, verdicts and notes."""

    tables: list[GameTable]
    reports: list[ComparisonReport] = field(default_factory=list)  # best against each other one
    notes: list[str] = field(default_factory=list)


def study_of(entries: list[Entry]) -> Study | None:
    """Returns the comparison of the entries; None where there is one entry with one run a game."""
    games = dict.fromkeys(run.game for entry in entries for run in entry.runs)
    several = any(_runs_of(entry, game)[1:] for entry in entries for game in games)
    if len(entries) < 2 and not several:
        return None
    study = Study([_table(entries, game) for game in games])
    if len(entries) > 1:
        for group in _comparable(entries):
            _judge(study, group)
    return study


def _runs_of(entry: Entry, game: str) -> list[ReportedRun]:
    return [run for run in entry.runs if run.game == game]


def _table(entries: list[Entry], game: str) -> GameTable:
    """Returns the entries that have runs of a game; without scores if their protocols differ."""
    evaluations = [
        run.evaluation for entry in entries for run in _runs_of(entry, game) if run.evaluation
    ]
    protocols = {e.protocol for e in evaluations}
    ways = sorted({e.conditions.describe() for e in evaluations if e.conditions})
    played = ""
    if len(protocols) == 1:
        played = ": ".join([f"protocol {protocols.pop()}", *filter(None, ["; or ".join(ways)])])
    parts = [(entry, _runs_of(entry, game)) for entry in entries]
    rows = [_row(entry, runs, scored=bool(played)) for entry, runs in parts if runs]
    rows.sort(key=lambda row: (_value(row.score), _value(row.final)), reverse=True)
    return GameTable(game, rows, played)


def _value(estimate: Estimate | None) -> float:
    return estimate.value if estimate else float("-inf")


def _row(entry: Entry, runs: list[ReportedRun], scored: bool) -> Row:
    evaluations = [run.evaluation for run in runs if run.evaluation and scored]
    human = [e.human_normalized_mean for e in evaluations if e.human_normalized_mean is not None]
    return Row(
        entry,
        len(runs),
        _estimate([e.mean for e in evaluations]),
        float(np.mean(human)) if human else None,
        _estimate([final for run in runs if (final := run.final("return_mean")) is not None]),
    )


def _estimate(values: list[float]) -> Estimate | None:
    return mean_over_seeds(np.asarray(values)) if values else None


def _comparable(entries: list[Entry]) -> list[list[Entry]]:
    """Returns the entries in groups that can be compared: all, or those of the same games each."""
    played = [frozenset(run.game for run in entry.runs) for entry in entries]
    groups: dict[frozenset[str], list[Entry]] = {}
    for games, entry in zip(played, entries, strict=True):
        groups.setdefault(games, []).append(entry)
    several = [group for group in groups.values() if len(group) > 1]
    return several if several and not frozenset.intersection(*played) else [entries]


def _judge(study: Study, entries: list[Entry]) -> None:
    """Adds the verdict of `jaxrl compare` on the best entry and each other one."""
    runs = [run for entry in entries for run in entry.runs]
    if missing := [run.name for run in runs if not run.evaluation]:
        names = "of any run" if len(missing) == len(runs) else f"of {', '.join(missing)}"
        study.notes.append(f"no verdict: there is no evaluation {names}")
        return
    if len(entries) > MOST_COMPARED:
        study.notes.append(f"no verdict on more than {MOST_COMPARED}: of so many the best is "
                           "mostly the luckiest; train it again with new seeds")  # fmt: skip
        return
    best, *others = _best_first(entries)
    try:
        reports = [_compare(best, other) for other in others]
    except UserError as error:
        study.notes.append(f"no verdict: {_hide_paths(error, runs)}")
        return
    study.reports += reports
    study.notes += dict.fromkeys(note for report in reports for note in report.notes)
    if len(others) > 1:
        study.notes.append("each interval is of one pair: with many pairs one excludes 0 by chance")


def _best_first(entries: list[Entry]) -> list[Entry]:
    """Returns the entries by their mean scores over the games that all have played.

    As for `compare`, the scores of several games are human-normalized.
    """
    played = [{run.game for run in entry.runs} for entry in entries]
    games = set.intersection(*played) or set.union(*played)
    evaluations = [run.evaluation for entry in entries for run in entry.runs if run.game in games]
    known = any(e and e.human_normalized_mean is not None for e in evaluations)
    normalized = len(games) > 1 and known
    return sorted(entries, key=lambda entry: _mean_score(entry, games, normalized), reverse=True)


def _mean_score(entry: Entry, games: set[str], normalized: bool) -> float:
    """Returns the mean over the games of the means over the seeds."""
    by_game: dict[str, list[float]] = {}
    for run in entry.runs:
        if run.evaluation is None or run.game not in games:
            continue
        result = run.evaluation
        score = result.human_normalized_mean if normalized else result.mean
        if score is not None:
            by_game.setdefault(run.game, []).append(score)
    means = [float(np.mean(scores)) for scores in by_game.values()]
    return float(np.mean(means)) if means else -np.inf


def _compare(best: Entry, other: Entry) -> ComparisonReport:
    report = comparison.compare([run.path for run in (*best.runs, *other.runs)])
    return report._replace(names=(best.name, other.name))


def _hide_paths(error: UserError, runs: list[ReportedRun]) -> str:
    """Returns the message with the runs' names in place of their whole paths."""
    names = {str(run.path): run.name for run in runs}
    paths = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    whole = rf"(?<![^\s'`(])({paths})(?=[\s'`),;:/]|$)"
    return re.sub(whole, lambda match: names[match[1]], str(error))
