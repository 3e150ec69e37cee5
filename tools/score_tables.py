"""The tables of scores in docs/results, from the runs in docs/results/runs and from the trials."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.runs import metrics
from jaxrl.runs.files import replace_text
from tools import atari5_tables
from tools.pages import marked_section, title
from tools.recorded_scores import Run, read

GAMES = ("breakout", "name_this_game", "phoenix", "qbert")
HALF_HOUR = Path("docs/results/half_hour.md")
MILLIONS = (1, 2, 4, 6, 10, 15, 20, 27)  # agent steps
NORMS = {  # recorded runs
    "`vtrace_cpu`": "half_hour/vtrace_cpu-breakout-seed1",
    "`vtrace_fast`, with `network.hidden_norm`": "half_hour/vtrace_fast-breakout-seed1",
}
TRIALS = Path("docs/results/trials.json")
TRIED = "ppo-and-value-based-recipes"  # trial
RECIPES = ("vtrace_fast", "ppo_fast", "vtrace_cpu", "btr_fast", "pqn_gamma", "rainbow_fast")


def half_hour(runs: Sequence[Run]) -> str:
    """Returns the table of recipes and games, a line for each recipe."""
    lines = [
        f"| recipe | agent steps | {' | '.join(map(title, GAMES))} | median |",
        f"|---|---|{'---|' * len(GAMES)}---|",
    ]
    for recipe in RECIPES:
        found = [run for run in runs if run.recipe == recipe]
        if not found:
            continue
        [steps] = {run.steps for run in found}
        by_game = {game: [run for run in found if run.game == game] for game in GAMES}
        normalized = [
            statistics.fmean(x.normalized("training") for x in of) for of in by_game.values() if of
        ]
        whole = len(normalized) == len(GAMES)
        cells = [" / ".join(map(cell, of)) for of in by_game.values()]
        median = f"{statistics.median(normalized):.2f}" if whole else ""
        lines.append(f"| `{recipe}` | {steps:,} | {' | '.join(cells)} | {median} |")
    return "\n".join(lines) + "\n"


def cell(run: Run) -> str:
    """Returns the cell of a run: "**311.6** (303.4, 10.76)"."""
    trained, noop = run.scores["training"], run.scores["noop"]
    return f"**{trained:,.1f}** ({noop:,.1f}, {run.normalized('training'):.2f})"


def hidden_norm(runs: Path) -> str:
    """Returns the table of V-trace's returns on Breakout without and with `network.hidden_norm`."""
    steps = " | ".join(f"{million},000,000" for million in MILLIONS)
    lines = [
        f"| return on Breakout at step | {steps} | noop, 30 games |",
        f"|---|{'---|' * len(MILLIONS)}---|",
    ]
    for recipe, name in NORMS.items():
        rows, run = metrics.read(runs / name), read(runs / name)
        returns = [
            next(row["return_mean"] for row in rows if row["step"] >= min(x * 10**6, run.steps))
            for x in MILLIONS
        ]
        cells = " | ".join(f"{value:.1f}" for value in returns)
        lines.append(f"| {recipe} | {cells} | **{run.scores['noop']:.1f}** |")
    return "\n".join(lines) + "\n"


def trial_of(trials: Path, name: str) -> dict[str, Any]:
    """Returns the trial of a name, with its columns and rows."""
    found = {trial["name"]: trial for trial in json.loads(trials.read_text(encoding="utf-8"))}
    return found[name]


def tried(trials: Path) -> str:
    """Returns the table of the recipes that were tried on one seed, with the trial's cells."""
    trial = trial_of(trials, TRIED)
    lines = [trial["columns"], ["---"] * len(trial["columns"]), *trial["rows"]]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def write(runs: Path) -> list[Path]:
    """Writes every page's table anew; returns the pages."""
    found = [read(path) for path in sorted((runs / "half_hour").iterdir())]
    page = HALF_HOUR.read_text(encoding="utf-8")
    page = marked_section(page, "norm", hidden_norm(runs))
    page = marked_section(page, "tried", tried(TRIALS))
    replace_text(HALF_HOUR, marked_section(page, "scores", half_hour(found)))
    page = atari5_tables.PAGE.read_text(encoding="utf-8")
    replace_text(atari5_tables.PAGE, atari5_tables.written(page, runs / "atari5"))
    return [HALF_HOUR, atari5_tables.PAGE]
