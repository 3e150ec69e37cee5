"""Evaluations of several runs as one table: aggregates of each configuration."""

import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxrl.analysis import statistics
from jaxrl.analysis.groups import runs_by_configuration
from jaxrl.analysis.statistics import AGGREGATES, Estimate, GameScores
from jaxrl.atari.games import atari_games
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record
from jaxrl.runs.evaluation_record import Conditions, Evaluation
from jaxrl.runs.paths import name_policies

FEW_SEEDS = 5  # with fewer, a bootstrap's intervals are too narrow to trust


class ScoreSummary(NamedTuple):
    """Evaluations by one protocol, and their normalized scores by configuration."""

    protocol: str
    evaluations: dict[Path, Evaluation]
    scores: dict[str, GameScores]  # configuration -> human-normalized scores
    warnings: list[str]

    @property
    def played(self) -> str:
        """Words for how the games were played."""
        return evaluation_record.played(self.evaluations.values())


def summarize(evaluations: dict[Path, Evaluation]) -> ScoreSummary:
    """Sorts evaluations by configuration. Raises `UserError` if their protocols differ."""
    protocol = common_protocol(evaluations)
    scores, warnings = {}, []
    for label, members in runs_by_configuration(list(evaluations)).items():
        results = [evaluations[run_dir] for run_dir in members]
        without = sorted({r.game for r in results if r.human_normalized_mean is None})
        if without:
            warnings.append(f"{label}: no human score is published of {', '.join(without)}: "
                            "left out of the aggregates")  # fmt: skip
        by_game = scores_by_game([(r, r.human_normalized_mean) for r in results])
        if by_game:
            scores[label] = by_game
    steps = sorted({result.step or 0 for result in evaluations.values()})
    if len(steps) > 1:
        warnings.append(f"trained for different numbers of agent steps, {steps[0]:,} to "
                        f"{steps[-1]:,}")  # fmt: skip
    warnings += epsilon_notes(evaluations.values()) + condition_notes(evaluations.values())
    warnings += _warnings(scores) if scores else []
    return ScoreSummary(protocol, evaluations, scores, warnings)


def common_protocol(evaluations: dict[Path, Evaluation]) -> str:
    """Returns the protocol of all evaluations. Raises `UserError` if there are several."""
    by_protocol: dict[str, list[Path]] = {}
    for run_dir, result in evaluations.items():
        by_protocol.setdefault(result.protocol, []).append(run_dir)
    if len(by_protocol) > 1:
        each = "; ".join(f"{name}: {', '.join(map(str, d))}" for name, d in by_protocol.items())
        raise UserError(f"scores of different protocols cannot be compared ({each}): evaluate "
                        "all by the same one")  # fmt: skip
    return next(iter(by_protocol))


def scores_by_game(results: list[tuple[Evaluation, float | None]]) -> GameScores:
    """Returns the given scores of the evaluations by game; those that are None are left out."""
    by_game: dict[str, list[float]] = {}
    for result, score in results:
        if score is not None:
            by_game.setdefault(result.game, []).append(score)
    return {game: np.asarray(by_game[game]) for game in sorted(by_game)}


def _warnings(scores: dict[str, GameScores]) -> list[str]:
    """Returns reasons why the aggregates may mislead."""
    warnings = []
    games = [set(by_game) for by_game in scores.values()]
    if any(other != games[0] for other in games):
        warnings.append("the configurations were evaluated on different games: their aggregates "
                        "cannot be compared")  # fmt: skip
    for label, by_game in scores.items():
        numbers = {game: len(seeds) for game, seeds in by_game.items()}
        if len(set(numbers.values())) > 1:
            each = ", ".join(f"{game} {number}" for game, number in numbers.items())
            warnings.append(f"{label}: games with more seeds weigh more in the IQM and the "
                            f"optimality gap ({each})")  # fmt: skip
        if max(numbers.values()) > 1 and min(numbers.values()) < FEW_SEEDS:
            warnings.append(f"{label}: intervals of fewer than {FEW_SEEDS} seeds are too narrow")
    return warnings


def epsilon_notes(results: Iterable[Evaluation]) -> list[str]:
    """Returns a note if value-based agents were evaluated with different epsilons."""
    epsilons = sorted({result.epsilon for result in results if result.epsilon is not None})
    if len(epsilons) < 2:
        return []
    return [f"evaluated with different epsilons, {epsilons[0]:g} to {epsilons[-1]:g}"]


def condition_notes(results: Iterable[Evaluation]) -> list[str]:
    """Returns a note for each game that the evaluations played under different conditions."""
    by_game: dict[str, set[Conditions | None]] = {}
    for result in results:
        if result.game in atari_games():
            by_game.setdefault(result.game, set()).add(result.conditions)
    notes = []
    for game, conditions in by_game.items():
        known = sorted(way.describe() for way in conditions if way)
        if len(known) > 1:
            notes.append(f"{game} was played in different ways: {'; '.join(known)}")
        if known and None in conditions:
            notes.append(f"{game}: some evaluations are of an older jaxrl, which pressed no FIRE "
                         "after a lost life: evaluate those again")  # fmt: skip
    return notes


# --- output ---------------------------------------------------------------------------------------


def to_json(summary: ScoreSummary) -> dict[str, Any]:
    """Returns the object that --json prints."""
    return {
        "protocol": summary.protocol,
        "evaluations": [
            {"run": name_policies(run_dir)} | dataclasses.asdict(result)
            for run_dir, result in summary.evaluations.items()
        ],
        "aggregates": {
            label: {
                "games": list(by_game),
                "seeds": {game: len(seeds) for game, seeds in by_game.items()},
                **{
                    name.lower().replace(" ", "_"): estimate._asdict()
                    for name, estimate in statistics.aggregate(by_game).items()
                },
            }
            for label, by_game in summary.scores.items()
        },
        "warnings": summary.warnings,
    }


def describe(summary: ScoreSummary) -> str:
    """Returns a table with a row for each configuration, and the warnings below it."""
    lines = [f"warning: {warning}" for warning in summary.warnings]
    if not summary.scores:
        return "\n".join([*lines, "no game has a published human score: nothing to aggregate"])
    protocol = f"{summary.protocol} ({summary.played})"
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
    for label, by_game in summary.scores.items():
        runs = sum(map(len, by_game.values()))
        estimates = statistics.aggregate(by_game).values()
        grid.add_row(label, str(len(by_game)), str(runs), *map(format_estimate, estimates))
    out = io.StringIO()
    terminal = Console()
    width = terminal.width if terminal.is_terminal else 120
    Console(file=out, width=width, color_system=None, markup=False).print(grid)
    return "\n".join([out.getvalue().rstrip(), *lines])


def format_estimate(estimate: Estimate, form: str = ".2f") -> str:
    """Returns the value as text, with its interval in brackets if there is one."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{form}}"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
