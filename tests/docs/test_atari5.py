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
RUNS = sorted((ROOT / "docs/results/runs").glob("atari5/*")) + sorted(
    (ROOT / "docs/results/runs").glob("breakout_10m/*")
)
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
    last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["step"] == last["step"] == config.total_steps == 10_000_000
    assert (found["protocol"], found["episodes"]) == ("noop", 30)
    published = {
        (score.algorithm, score.source[:8]): score.score
        for score in published_scores(game, "noop")
        if score.frames == 40_000_000
    }
    sources = [(name, "Schulman") for name in ("A2C", "PPO", "ACER")] + [("PPO", "CleanRL,")]
    reference = reference_scores()[game]
    assert row == [
        [reference.random],
        [reference.human],
        [round(found[key], 1) for key in ("mean", "std", "median")],
        [round(human_normalized(game, found["mean"]), 2)],
        [round(last["return_mean"], 1)],
        *([published[source]] if source in published else [] for source in sources),
    ]


def test_every_run_trained_with_the_settings_of_the_file():
    recipe = load(ROOT / "configs/vtrace/vtrace_cpu.toml")
    for run_dir in RUNS:
        found = load(run_dir / "config.toml")
        own = {"game": found.game, "total_steps": found.total_steps, "run_dir": found.run_dir}
        filled_in = {"recipe_envs": recipe.num_envs}
        assert found == recipe.replaced(**own, optimizer=filled_in).with_time_limit()


def test_the_last_row_has_the_medians_of_the_games_above():
    rows = {game: cells(TITLES[game]) for game in ATARI_5}
    shared = [game for game in ATARI_5 if rows[game][5]]  # those of Schulman's table

    def median(place, games):
        scores = [human_normalized(game, rows[game][place][0]) for game in games]
        return round(statistics.median(scores), 2)

    evaluated, trained, *published = cells("Median")[3:]
    four = len(shared)
    assert evaluated == [median(2, ATARI_5), median(2, shared), four]
    assert trained == [median(4, ATARI_5), median(4, shared), four]
    assert published == [
        *([median(place, shared), four] for place in (5, 6, 7)),
        [median(8, ATARI_5)],
    ]
