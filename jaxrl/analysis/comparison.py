"""The better of two runs, or of two configurations: `jaxrl compare`."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.analysis import statistics
from jaxrl.analysis.aggregates import (
    FEW_SEEDS,
    common_protocol,
    condition_notes,
    epsilon_notes,
    format_estimate,
    scores_by_game,
)
from jaxrl.analysis.groups import runs_by_configuration
from jaxrl.analysis.statistics import Comparison
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record
from jaxrl.runs.evaluation_record import Evaluation
from jaxrl.runs.paths import name_policies


class ComparisonReport(NamedTuple):
    """The comparison of two runs, or of two configurations."""

    protocol: str
    played: str  # the conditions of the games, as text
    names: tuple[str, str]
    games: list[str]
    resampled: str  # by the bootstrap: the games played by two policies, or seeds
    unit: str  # "points" or "human-normalized", as the means and their difference are
    means: tuple[float, float]
    comparison: Comparison
    notes: list[str]

    @property
    def better(self) -> str | None:
        """The name of the better one; None if the interval includes zero."""
        difference = self.comparison.difference
        return self.names[difference.value < 0] if statistics.excludes_zero(difference) else None

    def to_json(self) -> dict[str, Any]:
        """Returns the object that --json prints."""
        return {
            "protocol": self.protocol,
            "names": self.names,
            "games": self.games,
            "resampled": self.resampled,
            "unit": self.unit,
            "means": self.means,
            "difference": self.comparison.difference._asdict(),
            "probability_of_improvement": self.comparison.improvement._asdict(),
            "better": self.better,
            "notes": self.notes,
        }

    @property
    def verdict(self) -> str:
        """The sentence that says which is better."""
        if self.better is not None:
            return f"{self.better} is better: the 95 % interval of the difference excludes 0"
        if self.comparison.difference.low is None:
            return "which is better is unknown: the scores are too few for an interval"
        return "which is better is unknown: the 95 % interval of the difference includes 0"

    @property
    def figures(self) -> list[str]:
        """The means with their difference, and the probability of improvement, as text."""
        difference, improvement = self.comparison
        return [
            f"mean {self.means[0]:.2f} against {self.means[1]:.2f} {self.unit}: difference "
            f"{format_estimate(difference, '+.2f')}",
            f"the first scores higher with probability {format_estimate(improvement)}",
        ]

    def describe(self) -> str:
        """Returns a few lines of text with the verdict last."""
        first, second = self.names
        return "\n".join(
            [
                f"{first} against {second}",
                f"{', '.join(self.games)}; protocol {self.protocol} ({self.played}); "
                f"intervals over {self.resampled}",
                *self.figures,
                *(f"note: {note}" for note in self.notes),
                self.verdict,
            ]
        )


def compare(run_dirs: list[Path], protocol: str | None = None) -> ComparisonReport:
    """Compares two runs by the games they played, or two configurations by their seeds.

    Raises `UserError` if they have no game in common, or are not of two configurations.
    """
    evaluations = {run_dir: evaluation_record.read(run_dir, protocol) for run_dir in run_dirs}
    protocol = common_protocol(evaluations)
    if len(run_dirs) == 2:
        return _compare_runs(evaluations, protocol)
    groups = runs_by_configuration(run_dirs)
    if len(groups) != 2:
        raise UserError(
            f"{len(run_dirs)} runs of {len(groups)} configurations ({'; '.join(groups)}): give "
            "two runs, or runs of two configurations"
        )
    by_label = {label: [evaluations[r] for r in group] for label, group in groups.items()}
    return _compare_configurations(by_label, protocol)


def _compare_runs(evaluations: dict[Path, Evaluation], protocol: str) -> ComparisonReport:
    """Compares two policies by the scores of their games."""
    (first, x), (second, y) = evaluations.items()
    if x.game != y.game:
        raise UserError(f"'{first}' plays {x.game}, '{second}' {y.game}: give runs of one game, or "
                        "of two configurations on several games")  # fmt: skip
    first_scores, second_scores = ({r.game: np.asarray(r.scores)} for r in (x, y))
    notes = ["this is about these two policies; other seeds may turn out otherwise"]
    if x.step != y.step:
        steps = [f"{r.step:,}" if r.step is not None else "?" for r in (x, y)]
        notes.insert(0, f"trained for {steps[0]} and {steps[1]} agent steps")
    notes += epsilon_notes((x, y)) + condition_notes((x, y))
    if min(x.episodes, y.episodes) < statistics.FEW_GAMES:
        notes.append(f"fewer than {statistics.FEW_GAMES} games prove little: evaluate with more "
                     "--episodes")  # fmt: skip
    return ComparisonReport(
        protocol=protocol,
        played=evaluation_record.played((x, y)),
        names=(name_policies(first), name_policies(second)),
        games=[x.game],
        resampled=f"the {x.episodes} and {y.episodes} games played",
        unit="points",
        means=(x.mean, y.mean),
        comparison=statistics.compare(first_scores, second_scores),
        notes=notes,
    )


def _compare_configurations(groups: dict[str, list[Evaluation]], protocol: str) -> ComparisonReport:
    """Compares two configurations by the mean scores of their seeds, over their common games."""
    (first, xs), (second, ys) = groups.items()
    common, notes = _common_games(first, xs, second, ys)
    both = [r for r in [*xs, *ys] if r.game in common]
    # Points of one game are comparable; those of several games only when normalized.
    normalized = len(common) > 1
    without = {r.game for r in both if r.human_normalized_mean is None}
    if normalized and without:
        notes.append(f"left out, without a published human score: {', '.join(sorted(without))}")
        common = [game for game in common if game not in without]
        if not common:
            raise UserError("no game in common has a published human score: compare one game")
    scores = []
    for results in (xs, ys):
        shared = [r for r in results if r.game in common]
        figures = [r.human_normalized_mean if normalized else r.mean for r in shared]
        scores.append(scores_by_game(list(zip(shared, figures, strict=True))))
    numbers = [len(seeds) for by_game in scores for seeds in by_game.values()]
    if min(numbers) < FEW_SEEDS:
        notes.append(f"fewer than {FEW_SEEDS} seeds prove little: train more")
    if len({r.step for r in both}) > 1:
        notes.append("they were not trained for the same number of steps")
    notes += epsilon_notes(both) + condition_notes(both)
    x_mean, y_mean = (float(statistics.mean(list(by_game.values()))) for by_game in scores)
    return ComparisonReport(
        protocol=protocol,
        played=evaluation_record.played(both),
        names=(first, second),
        games=common,
        resampled="seeds",
        unit="human-normalized" if normalized else "points",
        means=(x_mean, y_mean),
        comparison=statistics.compare(scores[0], scores[1]),
        notes=notes,
    )


def _common_games(
    first: str, xs: list[Evaluation], second: str, ys: list[Evaluation]
) -> tuple[list[str], list[str]]:
    """Returns the games that both configurations played, and a note about the others."""
    common = sorted({r.game for r in xs} & {r.game for r in ys})
    if not common:
        raise UserError(f"{first} and {second} have no game in common")
    left_out = sorted({r.game for r in [*xs, *ys]} - set(common))
    if not left_out:
        return common, []
    return common, [f"left out, because only one has played them: {', '.join(left_out)}"]
