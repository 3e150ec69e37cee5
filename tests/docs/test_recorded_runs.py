"""The tables of docs/results are those of the runs in docs/results/runs, and of the trials."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
RUNS = RESULTS / "runs"
TRIALS = {x["name"]: x for x in json.loads((RESULTS / "trials.json").read_text(encoding="utf-8"))}


def row_of(page, start):
    """Returns the cells of the row that begins so in the table of a page."""
    lines = (RESULTS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    [row] = [line for line in lines if line.startswith(f"| {start}")]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def numbers(cell):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", cell.replace(",", ""))]


def recorded(run_dir):
    """Returns the lines of `metrics.jsonl`, and the evaluation where it was kept."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluation = run_dir / "evaluation.json"
    return lines, json.loads(evaluation.read_text()) if evaluation.exists() else None


SEEDS = {700_000: (*range(4, 10), 21, 22, 23), 900_000: (31, 32, 33, 41, 42, 43)}  # on Pong


@pytest.mark.parametrize("seed", [seed for seeds in SEEDS.values() for seed in seeds])
def test_a_row_of_pong_is_what_was_measured(seed):
    lines, evaluation = recorded(RUNS / f"pong/pong-vtrace_cpu-seed{seed}")
    *thresholds, end, noop, minutes = row_of("pong", f"seed {seed}, ")
    for cell, mean in zip(thresholds, (-15, 0, 10, 15, 17, 18), strict=True):
        returns = [(line["step"], line["return_mean"]) for line in lines]
        steps = [step for step, value in returns if value is not None and value >= mean]
        assert numbers(cell)[:1] == steps[:1], mean
    assert numbers(end) == [round(lines[-1]["return_mean"], 1)]
    assert numbers(minutes)[0] == round(lines[-1]["seconds"] / 60, 1)
    assert lines[-1]["step"] == next(steps for steps, seeds in SEEDS.items() if seed in seeds)
    if evaluation is None:
        assert seed == 7  # whose evaluation was not kept
    else:
        assert numbers(noop) == [round(evaluation["mean"], 1)]
        assert (evaluation["protocol"], evaluation["episodes"]) == ("noop", 30)


STEPS = (250_000, 500_000, 1_000_000, 1_500_000, 2_000_000, 10_000_000)  # of Breakout's columns


@pytest.mark.parametrize(
    ("start", "run", "total_steps"),
    [
        ("seed 1 |", "breakout/breakout-vtrace_cpu-seed1", 2_000_000),
        ("seed 2 |", "breakout/breakout-vtrace_cpu-seed2", 2_000_000),
        ("seed 3 |", "breakout/breakout-vtrace_cpu-seed3", 2_000_000),
        (
            "seed 1, 10,000,000 steps, 2026-11-26 |",
            "breakout_10m/breakout-vtrace_cpu-seed1",
            10_000_000,
        ),
    ],
)
def test_a_row_of_breakout_is_what_was_measured(start, run, total_steps):
    lines, evaluation = recorded(RUNS / run)
    *returns, noop, minutes = row_of("breakout", start)
    by_step = {line["step"]: line["return_mean"] for line in lines}
    shown = {step: numbers(cell) for step, cell in zip(STEPS, returns, strict=True) if cell}
    assert total_steps in shown
    assert len(shown) == (5 if total_steps == 2_000_000 else 4)
    assert shown == {step: [round(by_step[step], 1)] for step in shown}
    assert numbers(minutes) == [round(lines[-1]["seconds"] / 60, 1 if "." in minutes else None)]
    assert numbers(noop) == [round(evaluation[key], 1) for key in ("mean", "std", "median")]
    assert (evaluation["protocol"], evaluation["episodes"]) == ("noop", 30)
    assert evaluation["step"] == lines[-1]["step"] == total_steps


@pytest.mark.parametrize("name", TRIALS)
def test_trials_are_whole_tables(name):
    trial = TRIALS[name]
    assert set(trial) == {
        *("name", "content", "command", "date", "commits", "machine", "notes"),
        *("columns", "rows"),
    }
    assert all(trial[key] for key in trial if key != "notes")
    assert {len(row) for row in trial["rows"]} == {len(trial["columns"])}
    assert re.match(r"2026-\d\d-\d\d", trial["date"])


def test_pages_name_trials_that_are_there():
    pages = [path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md")]
    named = set(re.findall(r"`((?:vtrace|ppo|pqn|c51|a2c|emulator)-[\w-]+)`", "".join(pages)))
    assert named
    assert named - set(TRIALS) == set()


def test_scores_are_those_of_the_trials_and_of_the_pages_of_seeds():
    """The overview's ranges, from the tables that have each seed."""
    steps, minutes, _, noop, *_ = row_of("results", "`ppo_pong`, Pong |")
    rows = {row[0]: row for row in TRIALS["ppo-pong"]["rows"]}
    to_18 = [rows[f"seed {seed}, agent steps"][-1] for seed in (1, 2, 3)]
    assert numbers(steps) == [min(to_18), max(to_18)]
    taken = [row[-1] for row in TRIALS["ppo-pong"]["rows"] if row[0] == "minutes of training"]
    assert numbers(minutes) == [min(taken), max(taken)]
    scores = [numbers(cell)[0] for cell in TRIALS["ppo-pong-evaluations"]["rows"][0][1:]]
    assert numbers(noop) == [min(scores), max(scores)]
    for steps, of_steps in SEEDS.items():
        start = f"`vtrace_cpu`, [Pong](pong.md) | {steps:,} |"
        _, minutes, end, noop, *_ = row_of("results", start)
        seeds = [row_of("pong", f"seed {seed}, ")[-3:] for seed in of_steps]
        for shown, cells in zip((end, noop, minutes), zip(*seeds, strict=True), strict=True):
            values = [numbers(cell)[0] for cell in cells]
            assert numbers(shown) == [min(values), max(values)]
    start = "`vtrace_cpu`, [Breakout](breakout.md) | 2,000,000"
    _, minutes, end, noop, *_ = row_of("results", start)
    seeds = [row_of("breakout", f"seed {seed} |") for seed in (1, 2, 3)]
    for shown, column in ((minutes, -1), (end, 4), (noop, -2)):
        values = [numbers(row[column])[0] for row in seeds]
        assert numbers(shown) == [min(values), max(values)]
