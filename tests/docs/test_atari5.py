"""The table of docs/results/atari5.md is that of the recorded evaluations and published scores."""

import json
import re
import statistics
from pathlib import Path

import pytest

from jaxrl.atari.scores import human_normalized, published_scores, reference_scores
from jaxrl.config.toml import load
from jaxrl.experiments.sweep_plan import ATARI_5

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "docs/results/runs").iterdir())
PAGE = (ROOT / "docs/results/atari5.md").read_text(encoding="utf-8")
TITLES = {
    "battle_zone": "Battle Zone",
    "double_dunk": "Double Dunk",
    "name_this_game": "Name This Game",
    "phoenix": "Phoenix",
    "qbert": "Q*bert",
    "breakout": "Breakout",
}


def cells(title):
    """Returns the numbers of every cell of a game's row; that of a missing score has none."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {title} | "))
    row = line.replace(",", "").split("|")[2:-1]
    return [[float(number) for number in re.findall(r"-?[\d.]+", cell)] for cell in row]


@pytest.mark.parametrize("run_dir", RUNS, ids=lambda path: path.name)
def test_a_row_is_what_was_measured_and_published(run_dir):
    config = load(run_dir / "config.toml")
    found = json.loads((run_dir / "evaluation.json").read_text())
    game = config.game
    row = cells(TITLES[game])
    assert found["step"] == config.total_steps == 10_000_000
    assert (found["protocol"], found["episodes"]) == ("noop", 30)
    published = {
        (score.algorithm, score.source[:8]): score.score
        for score in published_scores(game, "noop")
        if score.frames == 40_000_000
    }
    sources = ("A2C", "Schulman"), ("PPO", "Schulman"), ("PPO", "CleanRL,")
    reference = reference_scores()[game]
    assert row == [
        [reference.random],
        [reference.human],
        [round(found[key], 1) for key in ("mean", "std", "median")],
        [round(human_normalized(game, found["mean"]), 2)],
        *([published[source]] if source in published else [] for source in sources),
    ]


def test_every_run_trained_with_the_settings_of_the_file():
    recipe = load(ROOT / "configs/vtrace/vtrace_cpu.toml")
    for run_dir in RUNS:
        found = load(run_dir / "config.toml")
        own = {"game": found.game, "total_steps": found.total_steps, "run_dir": found.run_dir}
        filled_in = {"recipe_envs": recipe.num_envs}
        assert found == recipe.replaced(**own, optimizer=filled_in)


def test_the_last_row_has_the_medians_of_the_games_above():
    rows = {game: cells(TITLES[game]) for game in ATARI_5}
    columns = []
    for place in (2, 4, 5, 6):
        scores = [human_normalized(game, row[place][0]) for game, row in rows.items() if row[place]]
        columns.append((round(statistics.median(scores), 2), len(scores)))
    shared = [human_normalized(game, row[2][0]) for game, row in rows.items() if row[4]]
    ours, *published = cells("Median")[3:]
    assert ours == [columns[0][0], round(statistics.median(shared), 2), len(shared)]
    for (median, count), cell in zip(columns[1:], published, strict=True):
        assert cell == ([median] if count == len(ATARI_5) else [median, count])
