"""The tables of docs/results/atari5.md, from the runs in docs/results/runs/atari5.

A table has the scores of one way to measure them, recipes first, then published agents that were
measured in the same way. A cell is the mean over the seeds, its 95 % bootstrap interval, and the
human-normalized mean; the aggregates are those of `jaxrl evaluate` (Agarwal 2021).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxrl.analysis import statistics
from jaxrl.analysis.aggregates import format_estimate
from jaxrl.analysis.statistics import Estimate, GameScores
from jaxrl.atari.scores import human_normalized, published_scores, reference_scores
from jaxrl.experiments.sweep_plan import ATARI_5
from tools.pages import marked_section, title
from tools.recorded_scores import Run, read

PAGE = Path("docs/results/atari5.md")
GAMES = sorted(ATARI_5)
# Of each table: protocol, millions of frames and the first word of the source of published scores.
PUBLISHED = {
    "training": [
        ("A2C", "noop", 40, "Schulman"),
        ("PPO", "noop", 40, "Schulman"),
        ("ACER", "noop", 40, "Schulman"),
        ("PPO", "noop", 40, "CleanRL"),
    ],
    "noop": [("DQN", "noop", 200, "Hessel"), ("Rainbow", "noop", 200, "Hessel")],
    "sticky": [
        ("DQN", "sticky", 200, "Dopamine"),
        ("Rainbow", "sticky", 200, "Dopamine"),
        ("PPO", "sticky", 200, "Huang"),
    ],
}


def table(runs: Sequence[Run], measure: str) -> str:
    """Returns the table of a way to measure scores: training, noop or sticky."""
    titles = ["", "agent steps", *map(title, GAMES), "median", "median of four", "IQM"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    measured = [run for run in runs if measure in run.scores]
    for recipe, steps in sorted({(run.recipe, run.steps) for run in measured}):
        scores: GameScores = {
            game: np.array([run.scores[measure] for run in measured
                            if (run.recipe, run.steps, run.game) == (recipe, steps, game)])
            for game in GAMES
        }  # fmt: skip
        lines.append(_row([f"`{recipe}`", f"{steps:,}"], scores))
    for published in PUBLISHED[measure]:
        lines.append(_published_row(*published))
    reference = reference_scores()
    for name in ("random", "human"):
        cells = [f"{getattr(reference[game], name):,}" for game in GAMES]
        lines.append(f"| {' | '.join([name, '', *cells, '', '', ''])} |")
    return "\n".join(lines) + "\n"


def _published_row(algorithm: str, protocol: str, millions: int, source: str) -> str:
    """Returns the row of a published agent."""
    found = {
        game: np.array([
            score.score for score in published_scores(game, protocol)
            if (score.algorithm, score.frames) == (algorithm, millions * 10**6)
            and score.source.startswith(source)
        ])
        for game in GAMES
    }  # fmt: skip
    return _row([f"{algorithm}, {source}", f"{millions * 10**6 // 4:,}"], found)


def _row(first: list[str], scores: GameScores) -> str:
    """Returns a row; its aggregates are of all games, or of the four of Schulman's table."""
    normalized = {
        game: np.array([human_normalized(game, score) for score in of])
        for game, of in scores.items() if len(of)
    }  # fmt: skip
    cells = [_cell(game, of) for game, of in scores.items()]
    four = {game: of for game, of in normalized.items() if game != "phoenix"}
    whole = [len(normalized) == len(GAMES), len(four) == len(GAMES) - 1]
    every, some = (statistics.aggregate(of) if of else {} for of in (normalized, four))
    medians = [of["median"] if all_there else None
               for of, all_there in zip((every, some), whole, strict=True)]  # fmt: skip
    # Otherwise games with more seeds would weigh more.
    even = len({len(of) for of in normalized.values()}) == 1
    aggregates = [*medians, every["IQM"] if whole[0] and even else None]
    cells += [f"**{format_estimate(of)}**" if of else "" for of in aggregates]
    return f"| {' | '.join([*first, *cells])} |"


def _cell(game: str, scores: np.ndarray) -> str:
    """Returns a game's cell, "**30,290.0 [28,100.0, 32,000.0]** of 3 (0.81)", or none."""
    if not len(scores):
        return ""
    estimate: Estimate = statistics.aggregate({game: scores})["mean"]
    normalized = human_normalized(game, estimate.value)
    number = f" of {len(scores)}" if len(scores) > 1 else ""
    return f"**{format_estimate(estimate, ',.1f')}**{number} ({normalized:.2f})"


def written(page: str, runs: Path) -> str:
    """Returns the page with its tables from the runs."""
    found = [read(run_dir) for run_dir in sorted(runs.iterdir())]
    for measure in PUBLISHED:
        page = marked_section(page, measure, table(found, measure))
    return page
