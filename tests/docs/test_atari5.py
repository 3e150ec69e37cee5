"""The tables of docs/results/atari5.md are those of the recorded runs, which had its settings."""

import json
import statistics
from pathlib import Path

import pytest

from jaxrl.atari.scores import human_normalized, published_scores
from jaxrl.cli.parsing import parse
from jaxrl.cli.train import Train
from jaxrl.config.toml import load
from jaxrl.runs import metrics
from tools import atari5_tables, recorded_scores
from tools.atari5_tables import table
from tools.pages import title
from tools.recorded_scores import Run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/results/runs/atari5"
RUNS = sorted(FOLDER.iterdir())
PAGE = (ROOT / atari5_tables.PAGE).read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
EVALUATIONS = sorted(
    path for name in ("evaluation.json", "evaluations/*.json") for path in FOLDER.parent.rglob(name)
)
# The highest score of a cartridge whose games end with it.
CEILINGS = {"boxing": 100, "breakout": 864, "double_dunk": 24, "pong": 21}


def test_the_page_shows_the_recorded_runs():
    assert atari5_tables.written(PAGE, FOLDER) == PAGE


@pytest.mark.parametrize("run_dir", RUNS, ids=lambda path: path.name)
def test_a_run_had_the_settings_that_the_page_names(run_dir):
    config = load(run_dir / "config.toml")
    recipe = recorded_scores.read(run_dir).recipe
    assert run_dir.name == f"{recipe}-{config.game}-seed{config.seed}"
    last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    for path in [run_dir / "evaluation.json", *run_dir.glob("evaluations/*.json")]:
        found = json.loads(path.read_text())
        assert found["step"] == last["step"] >= config.total_steps
        assert (found["game"], found["episodes"]) == (config.game, 30)
    [command] = {
        line.strip()
        for line in PAGE.splitlines()
        if line.startswith(f"    jaxrl train --config {recipe} --game GAME ")
    }
    shown = command.replace("GAME", config.game).replace("SEED", str(config.seed)).split()
    own = {"run_dir": config.run_dir}  # that of a sweep
    assert parse(Train, "train", shown[2:]).settings.with_time_limit().replaced(**own) == config


def means(recipe, measure="training"):
    """Returns a recipe's normalized scores on the games, means over its seeds."""
    runs = [recorded_scores.read(x) for x in RUNS if x.name.startswith(f"{recipe}-")]
    return {
        game: statistics.mean(run.normalized(measure) for run in runs if run.game == game)
        for game in atari5_tables.GAMES
    }


def medians(scores):
    """Returns the medians over the five games, and over the four without Phoenix."""
    four = [score for game, score in scores.items() if game != "phoenix"]
    return statistics.median(scores.values()), statistics.median(four)


def test_the_medians_that_the_page_names_are_those_of_the_runs():
    rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]]
        for line in PAGE.split("<!-- training: begin -->\n")[1].split("<!--")[0].splitlines()
    ]
    cells = {name: row for name, *row in rows}
    (fast, fast_four), (cpu, cpu_four) = (medians(means(f"vtrace_{x}")) for x in ("fast", "cpu"))
    assert cells["`vtrace_fast`"][-3].startswith(f"{fast:.2f} [")
    four = [cells[f"{name}, Schulman"][-2] for name in ("A2C", "PPO", "ACER")]
    for said in (
        f"returns is {cells['`vtrace_fast`'][-3]}, that of `vtrace_cpu` {cpu:.2f}.",
        f"table they are {fast_four:.2f} and {cpu_four:.2f}, where A2C has {four[0]}, PPO "
        f"{four[1]} and ACER {four[2]}. CleanRL's PPO has {cells['PPO, CleanRL'][-3]} over five.**",
    ):
        assert said in TEXT, said


def test_what_the_medians_owe_to_waits_is_what_the_page_says():
    def normalized(score):
        return human_normalized("double_dunk", score)

    for measure in ("training", "noop", "sticky"):
        scores = means("vtrace_fast", measure)
        five, _ = medians(scores)
        assert medians(scores | {"double_dunk": normalized(-16.3)})[0] == five
    scores = means("vtrace_fast")
    assert medians(scores | {"double_dunk": normalized(-16.1)})[1] == medians(scores)[1]
    assert medians(scores | {"double_dunk": normalized(-16.2)})[1] < medians(scores)[1]
    five, four = medians(scores | {"double_dunk": normalized(-18.6)})
    for said in (
        "with any score above -16.3, that over four in training with any above -16.1;",
        f"with random play's -18.6 they would be {five:.2f} and {four:.2f} in training.",
        f"The latter's {means('vtrace_fast', 'noop')['double_dunk']:.2f} says nothing of",
    ):
        assert said in TEXT, said


SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def lines():
    """The lines of `vtrace_fast`'s runs, by game and seed."""
    return {
        (game, seed): metrics.read(FOLDER / f"vtrace_fast-{game}-seed{seed}")
        for game in atari5_tables.GAMES
        for seed in SEEDS
    }


@pytest.fixture(scope="module")
def end(lines):
    """The returns at the end of those runs."""
    return {key: of[-1]["return_mean"] for key, of in lines.items()}


def test_what_the_page_says_of_v_trace_is_recorded(lines, end):
    assert {path.name for path in RUNS if path.name.startswith("vtrace_fast")} == {
        f"vtrace_fast-{game}-seed{seed}" for game, seed in lines
    }
    minutes = [of[-1]["wall_seconds"] / 60 for of in lines.values()]
    entropies = [lines["name_this_game", seed][-1]["policy/entropy"] for seed in SEEDS]
    noop = {
        game: [length for seed in SEEDS for length in json.loads(
            (FOLDER / f"vtrace_fast-{game}-seed{seed}/evaluations/noop.json").read_text()
        )["lengths"]]
        for game in ("phoenix", "double_dunk")
    }  # fmt: skip
    alone = json.loads((FOLDER / "vtrace_cpu-double_dunk-seed1/evaluation.json").read_text())
    assert {*noop["double_dunk"], *alone["lengths"]} == {27_000}
    phoenix = [f"{end['phoenix', seed]:,.0f}" for seed in SEEDS]
    longer = {
        game: recorded_scores.read(FOLDER.parent / f"half_hour/vtrace_fast-{game}-seed1")
        for game in ("name_this_game", "phoenix", "qbert")
    }
    longer_at = [
        f"{line['return_mean']:,.0f}"
        for game in ("phoenix", "qbert")
        for line in metrics.read(FOLDER.parent / f"half_hour/vtrace_fast-{game}-seed1")
        if line["step"] == 9_990_000
    ]
    later = [f"{run.scores['training']:,.0f} on {title(game)}" for game, run in longer.items()]
    for said in (
        f"took {min(minutes):.0f} to {max(minutes):.0f} minutes of one core",
        f"the longest of its {len(noop['phoenix'])} games has {max(noop['phoenix']):,} steps.",
        "`vtrace_fast` has three seeds, `vtrace_cpu` one.",
        f"Phoenix differs by seed: {phoenix[0]}, {phoenix[1]} and {phoenix[2]} at the end.",
        f"After all 27,000,000 it has {', '.join(later[:2])} and {later[2]}.",
        f"at step 9,990,000 of [27,000,000](half_hour.md), with seed 1, Phoenix has {longer_at[0]} "
        f"where it ends here with {phoenix[0]}, and Q*bert {longer_at[1]} where it ends with "
        f"{end['qbert', 1]:,.0f}.",
        f"its entropy is {min(entropies):.2f} to {max(entropies):.2f} at the end.",
    ):
        assert said in TEXT, said


def test_v_trace_learns_on_at_the_end_where_the_page_says_so(lines, end):
    early = {
        key: next(line["return_mean"] for line in of if line["step"] >= 8_000_000)
        for key, of in lines.items()
    }
    for game in atari5_tables.GAMES:
        rising = sum(early[game, seed] < end[game, seed] for seed in SEEDS)
        assert rising == (2 if game == "name_this_game" else 3), game
        averages = [statistics.mean(of[game, seed] for seed in SEEDS) for of in (early, end)]
        on = "" if game == "name_this_game" else f" on {title(game)}"
        assert f"from {averages[0]:,.1f} to {averages[1]:,.1f}{on}" in TEXT

    def beaten(reached):
        return {
            (score.algorithm, score.source.split()[0])
            for score in published_scores("name_this_game", "noop")
            if score.frames == 40_000_000 and score.score < reached
        }

    assert beaten(end["name_this_game", 1]) == {("A2C", "Schulman"), ("PPO", "CleanRL,")}
    assert beaten(end["name_this_game", 2]) == {("PPO", "CleanRL,")}
    assert beaten(end["name_this_game", 3]) == set()
    assert "All three seeds of the other four games have a higher one" in TEXT
    assert "two seeds of three rise" in TEXT
    assert "CleanRL's PPO, with seed 2 the latter alone, with seed 3 none." in TEXT


@pytest.mark.parametrize("path", EVALUATIONS, ids=lambda path: path.parts[-2])
def test_no_score_is_above_the_cartridges_ceiling(path):
    found = json.loads(path.read_text())
    assert max(found["scores"]) <= CEILINGS.get(found["game"], 999_999)  # six digits


def test_no_published_score_is_above_the_ceiling():
    for game, ceiling in CEILINGS.items():
        for protocol in ("noop", "sticky"):
            assert all(score.score <= ceiling for score in published_scores(game, protocol))


def run(game, normalized, steps=1000, **scores):
    """Returns a run whose score is that of a human where normalized is 1."""
    low, high = {
        "battle_zone": (2360, 37187.5), "double_dunk": (-18.6, -16.4), "phoenix": (761.4, 7242.6),
        "name_this_game": (2292.3, 8049), "qbert": (163.9, 13455),
    }[game]  # fmt: skip
    return Run("dqn", steps, game, {"noop": low + normalized * (high - low), **scores})


def test_a_cell_has_the_mean_over_the_seeds_and_the_aggregates_are_of_normalized_scores():
    runs = [run("qbert", 0), run("qbert", 1), run("battle_zone", 3), run("double_dunk", -1)]
    runs += [run("name_this_game", 2), run("phoenix", 5, steps=2000)]
    header, _, row, other, dqn, *_, human = table(runs, "noop").splitlines()
    assert header.startswith("|  | agent steps | Battle Zone | Double Dunk | Name This Game | Ph")
    # Two seeds: their means are 0, 0.5 or 1 of a human's score.
    four = "**1.25 [1.00, 1.50]**"  # of 3, -1, 2 and 0.5
    assert row == (
        "| `dqn` | 1,000 | **106,842.5** (3.00) | **-20.8** (-1.00) | **13,805.7** (2.00) |  | "
        f"**6,809.4 [163.9, 13,455.0]** of 2 (0.50) |  | {four} |  |"
    )
    assert other == "| `dqn` | 2,000 |  |  |  | **33,167.4** (5.00) |  |  |  |  |"
    assert dqn.startswith("| DQN, Hessel | 50,000,000 | **29,900.0** (0.79) | **-6.6** (5.45) |")
    assert human == "| human |  | 37,187.5 | -16.4 | 8,049.0 | 7,242.6 | 13,455.0 |  |  |  |"
    _, _, row, *_ = table([*runs[1:], run("phoenix", 4)], "noop").splitlines()
    assert row.endswith("| **13,455.0** (1.00) | **2.00** | **1.50** | **2.00** |")  # 1, 2, 3
    assert "`" not in table(runs, "sticky")  # nothing was measured


def test_recipes_are_compared_by_the_way_that_their_scores_were_measured():
    runs = [run("qbert", 1, training=7.0, sticky=163.9)]
    assert "| **7.0** (-0.01) |" in table(runs, "training")
    assert "| **163.9** (0.00) |" in table(runs, "sticky")
    assert "PPO, CleanRL" in table(runs, "training")
    assert "PPO, Huang" in table(runs, "sticky")
