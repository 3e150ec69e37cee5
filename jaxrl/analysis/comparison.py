"""Evaluations of several runs as tables and sentences: aggregates, and which is better."""

import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxrl.analysis import statistics
from jaxrl.analysis.groups import by_configuration
from jaxrl.analysis.statistics import AGGREGATES, Cells, Comparison, Estimate
from jaxrl.atari.games import CATCH
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record
from jaxrl.runs.evaluation_record import Conditions, Evaluation

FEW_SEEDS = 5  # below it a bootstrap's intervals are too narrow to trust


class ScoreSummary(NamedTuple):
    """Evaluations by one protocol, by configuration."""

    protocol: str
    evaluations: dict[Path, Evaluation]
    cells: dict[str, Cells]  # configuration -> game -> human-normalized scores of its seeds
    warnings: list[str]


def _protocol(found: dict[Path, Evaluation]) -> str:
    """The one that all were evaluated by. Raises `UserError`."""
    by: dict[str, list[Path]] = {}
    for run_dir, result in found.items():
        by.setdefault(result.protocol, []).append(run_dir)
    if len(by) > 1:
        told = "; ".join(f"{name}: {', '.join(map(str, dirs))}" for name, dirs in by.items())
        raise UserError(f"scores of different protocols cannot be compared ({told}): evaluate "
                        "all by the same one")  # fmt: skip
    return next(iter(by))


def _cells(members: list[tuple[Evaluation, float | None]]) -> Cells:
    """Figures by game; those that are None are left out."""
    by: dict[str, list[float]] = {}
    for result, figure in members:
        if figure is not None:
            by.setdefault(result.game, []).append(figure)
    return {game: np.asarray(by[game]) for game in sorted(by)}


def _warnings(cells: dict[str, Cells]) -> list[str]:
    found = []
    games = [set(of_one) for of_one in cells.values()]
    if any(other != games[0] for other in games):
        found.append("the configurations were evaluated on different games: their aggregates "
                     "cannot be compared")  # fmt: skip
    for label, of_one in cells.items():
        numbers = {game: len(seeds) for game, seeds in of_one.items()}
        if len(set(numbers.values())) > 1:
            told = ", ".join(f"{game} {number}" for game, number in numbers.items())
            found.append(f"{label}: games with more seeds count for more in the IQM and the "
                         f"optimality gap ({told})")  # fmt: skip
        if max(numbers.values()) > 1 and min(numbers.values()) < FEW_SEEDS:
            found.append(f"{label}: intervals of fewer than {FEW_SEEDS} seeds are too narrow")
    return found


def summarize(found: dict[Path, Evaluation]) -> ScoreSummary:
    """Sorts evaluations by configuration. Raises `UserError` where protocols differ."""
    protocol = _protocol(found)
    groups = by_configuration(list(found))
    cells, warnings = {}, []
    for label, members in groups.items():
        results = [found[run_dir] for run_dir in members]
        without = sorted({r.game for r in results if r.human_normalized_mean is None})
        if without:
            warnings.append(f"{label}: no human score is published of {', '.join(without)}: "
                            "left out of the aggregates")  # fmt: skip
        of_one = _cells([(r, r.human_normalized_mean) for r in results])
        if of_one:
            cells[label] = of_one
    steps = sorted({result.step or 0 for result in found.values()})
    if len(steps) > 1:
        warnings.append(f"trained for different numbers of agent steps, {steps[0]:,} to "
                        f"{steps[-1]:,}")  # fmt: skip
    warnings += _epsilons(found.values()) + _conditions(found.values())
    return ScoreSummary(protocol, found, cells, warnings + (_warnings(cells) if cells else []))


def _epsilons(results: Iterable[Evaluation]) -> list[str]:
    """A note where value-based agents were evaluated with more and with less chance."""
    found = sorted({result.epsilon for result in results if result.epsilon is not None})
    if len(found) < 2:
        return []
    return [f"evaluated with different epsilons, {found[0]:g} to {found[-1]:g}"]


def _conditions(results: Iterable[Evaluation]) -> list[str]:
    """Returns a note for each game that was not played in the same way in all evaluations."""
    by: dict[str, set[Conditions | None]] = {}
    for result in results:
        if result.game != CATCH:
            by.setdefault(result.game, set()).add(result.conditions)
    notes = []
    for game, ways in by.items():
        known = sorted(way.describe() for way in ways if way)
        if len(known) > 1:
            notes.append(f"{game} was played in different ways: {'; '.join(known)}")
        if known and None in ways:
            notes.append(f"{game}: some evaluations are of an older jaxrl, which pressed no FIRE "
                         "after a lost life: evaluate those again")  # fmt: skip
    return notes


def table(summary: ScoreSummary) -> dict[str, Any]:
    """What --json prints."""
    return {
        "protocol": summary.protocol,
        "evaluations": [
            {"run": str(run_dir)} | dataclasses.asdict(result)
            for run_dir, result in summary.evaluations.items()
        ],
        "aggregates": {
            label: {
                "games": list(cells),
                "seeds": {game: len(seeds) for game, seeds in cells.items()},
                **{
                    name.lower().replace(" ", "_"): estimate._asdict()
                    for name, estimate in statistics.aggregate(cells).items()
                },
            }
            for label, cells in summary.cells.items()
        },
        "warnings": summary.warnings,
    }


def _told(estimate: Estimate, form: str = ".2f") -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{form}}"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def describe(summary: ScoreSummary) -> str:
    """A table for a person: a row for each configuration."""
    lines = [f"warning: {warning}" for warning in summary.warnings]
    if not summary.cells:
        return "\n".join([*lines, "no game has a published human score: nothing to aggregate"])
    protocol = f"{summary.protocol} ({evaluation_record.PROTOCOLS[summary.protocol]})"
    grid = Table(
        title=f"human-normalized scores, protocol {protocol}",
        caption="0 is random play, 1 a human; IQM: interquartile mean; in brackets 95 % stratified "
        "bootstrap intervals",
        title_justify="left",
        caption_justify="left",
    )
    grid.add_column("configuration")
    grid.add_column("games", justify="right")
    grid.add_column("runs", justify="right")
    for name in AGGREGATES:
        grid.add_column(name, no_wrap=True)
    for label, cells in summary.cells.items():
        runs = sum(map(len, cells.values()))
        estimates = statistics.aggregate(cells).values()
        grid.add_row(label, str(len(cells)), str(runs), *map(_told, estimates))
    out = io.StringIO()
    terminal = Console()
    width = terminal.width if terminal.is_terminal else 120
    Console(file=out, width=width, color_system=None, markup=False).print(grid)
    return "\n".join([out.getvalue().rstrip(), *lines])


# --- which is better -----------------------------------------------------------------------------


class Result(NamedTuple):
    """How two runs, or two configurations, compare."""

    protocol: str
    names: tuple[str, str]
    games: list[str]
    of_what: str  # that is resampled: games of two policies, or seeds
    unit: str  # of the difference
    means: tuple[float, float]
    comparison: Comparison
    notes: list[str]

    @property
    def better(self) -> str | None:
        """The name of the better one; None where the interval leaves it open."""
        difference = self.comparison.difference
        return self.names[difference.value < 0] if statistics.is_sure(difference) else None

    def table(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "protocol": self.protocol,
            "names": self.names,
            "games": self.games,
            "resampled": self.of_what,
            "unit": self.unit,
            "means": self.means,
            "difference": self.comparison.difference._asdict(),
            "probability_of_improvement": self.comparison.improvement._asdict(),
            "better": self.better,
            "notes": self.notes,
        }

    def describe(self) -> str:
        """A few lines for a person, the verdict last."""
        first, second = self.names
        difference, improvement = self.comparison
        if self.better is not None:
            verdict = f"{self.better} is better: the 95 % interval of the difference leaves out 0"
        elif difference.low is None:
            verdict = "so few scores tell nothing of chance: how sure that is cannot be said"
        else:
            verdict = "which is better cannot be told: the 95 % interval of the difference holds 0"
        protocol = f"{self.protocol} ({evaluation_record.PROTOCOLS[self.protocol]})"
        return "\n".join(
            [
                f"{first} against {second}",
                f"{', '.join(self.games)}; protocol {protocol}; intervals over {self.of_what}",
                f"mean {self.means[0]:.2f} against {self.means[1]:.2f} {self.unit}: difference "
                f"{_told(difference, '+.2f')}",
                f"the first scores higher with probability {_told(improvement)}",
                *(f"note: {note}" for note in self.notes),
                verdict,
            ]
        )


def compare(run_dirs: list[Path]) -> Result:
    """Two runs, game by game played; or two configurations, seed by seed.

    Raises `UserError` where they have nothing in common, or are not of two kinds.
    """
    found = {run_dir: evaluation_record.read(run_dir) for run_dir in run_dirs}
    protocol = _protocol(found)
    if len(run_dirs) == 2:
        return _two_runs(found, protocol)
    groups = by_configuration(run_dirs)
    if len(groups) != 2:
        raise UserError(
            f"{len(run_dirs)} runs of {len(groups)} configurations ({'; '.join(groups)}): give "
            "two runs, or runs of two configurations"
        )
    return _two_groups({n: [found[run_dir] for run_dir in g] for n, g in groups.items()}, protocol)


def _two_runs(found: dict[Path, Evaluation], protocol: str) -> Result:
    (first, x), (second, y) = found.items()
    if x.game != y.game:
        raise UserError(f"'{first}' plays {x.game}, '{second}' {y.game}: give runs of one game, or "
                        "of two configurations on several games")  # fmt: skip
    of_first, of_second = ({r.game: np.asarray(r.scores)} for r in (x, y))
    notes = ["this is about these two policies; other seeds may turn out otherwise"]
    if x.step != y.step:
        steps = [f"{r.step:,}" if r.step is not None else "?" for r in (x, y)]
        notes.insert(0, f"trained for {steps[0]} and {steps[1]} agent steps")
    notes += _epsilons((x, y)) + _conditions((x, y))
    if min(x.episodes, y.episodes) < statistics.FEW_GAMES:
        notes.append(f"fewer than {statistics.FEW_GAMES} games tell little: evaluate with more "
                     "--episodes")  # fmt: skip
    names = (str(first), str(second))
    over = f"the {x.episodes} and {y.episodes} games played"
    comparison = statistics.compare(of_first, of_second)
    return Result(protocol, names, [x.game], over, "points", (x.mean, y.mean), comparison, notes)


def _two_groups(groups: dict[str, list[Evaluation]], protocol: str) -> Result:
    (first, xs), (second, ys) = groups.items()
    common = sorted({r.game for r in xs} & {r.game for r in ys})
    if not common:
        raise UserError(f"{first} and {second} have no game in common")
    both = [r for r in [*xs, *ys] if r.game in common]
    notes = []
    left_out = sorted({r.game for r in [*xs, *ys]} - set(common))
    if left_out:
        notes.append(f"left out, because only one has played them: {', '.join(left_out)}")
    # Points of one game can be compared as they are, those of several only when normalized.
    normalized = len(common) > 1
    without = {r.game for r in both if r.human_normalized_mean is None}
    if normalized and without:
        notes.append(f"left out, without a published human score: {', '.join(sorted(without))}")
        common = [game for game in common if game not in without]
        if not common:
            raise UserError("no game in common has a published human score: compare one game")
    cells = []
    for results in (xs, ys):
        of_these = [r for r in results if r.game in common]
        figures = [r.human_normalized_mean if normalized else r.mean for r in of_these]
        cells.append(_cells(list(zip(of_these, figures, strict=True))))
    numbers = [len(seeds) for of_one in cells for seeds in of_one.values()]
    if min(numbers) < FEW_SEEDS:
        notes.append(f"fewer than {FEW_SEEDS} seeds tell little: train more")
    steps = {r.step for r in both}
    if len(steps) > 1:
        notes.append("they were not trained for the same number of steps")
    notes += _epsilons(both) + _conditions(both)
    means = tuple(float(statistics.mean(list(of_one.values()))) for of_one in cells)
    unit = "human-normalized" if normalized else "points"
    comparison = statistics.compare(cells[0], cells[1])
    over = "seeds"
    return Result(
        protocol, (first, second), common, over, unit, (means[0], means[1]), comparison, notes
    )
