"""The tables of docs/results/results.md are those of the runs in docs/results/runs."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "docs/results/runs"
PAGE = (ROOT / "docs/results/results.md").read_text(encoding="utf-8")


def section(title):
    """Returns what stands below a heading of the second order."""
    return PAGE.split(f"\n## {title}")[1].split("\n## ")[0]


def numbers(cell):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", cell.replace(",", ""))]


def recorded(run_dir):
    """Returns the lines of `metrics.jsonl`, and the evaluation where it was kept."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluation = run_dir / "evaluation.json"
    return lines, json.loads(evaluation.read_text()) if evaluation.exists() else None


@pytest.mark.parametrize("seed", range(4, 10))
def test_a_row_of_pong_is_what_was_measured(seed):
    lines, evaluation = recorded(RUNS / f"pong/pong-vtrace_cpu-seed{seed}")
    text = section("V-trace on Pong, two CPU cores")
    row = next(line for line in text.splitlines() if line.startswith(f"| seed {seed}, "))
    *thresholds, end, noop, minutes = row.split("|")[2:-1]
    for cell, mean in zip(thresholds, (-15, 0, 10, 15, 17, 18), strict=True):
        returns = [(line["step"], line["return_mean"]) for line in lines]
        steps = [step for step, value in returns if value is not None and value >= mean]
        assert numbers(cell)[:1] == steps[:1], mean
    assert numbers(end) == [round(lines[-1]["return_mean"], 1)]
    assert numbers(minutes)[0] == round(lines[-1]["seconds"] / 60, 1)
    if evaluation is None:
        assert seed == 7  # whose evaluation was not kept
    else:
        assert numbers(noop) == [round(evaluation["mean"], 1)]
        assert (evaluation["protocol"], evaluation["episodes"]) == ("noop", 30)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_row_of_breakout_is_what_was_measured(seed):
    lines, evaluation = recorded(RUNS / f"breakout/breakout-vtrace_cpu-seed{seed}")
    text = section("V-trace on Breakout\n")
    row = next(line for line in text.splitlines() if line.startswith(f"| seed {seed} | "))
    *returns, noop, minutes = row.split("|")[2:-1]
    by_step = {line["step"]: line["return_mean"] for line in lines}
    steps = (250_000, 500_000, 1_000_000, 1_500_000, 2_000_000)
    assert [numbers(cell) for cell in returns] == [[round(by_step[step], 1)] for step in steps]
    assert numbers(minutes) == [round(lines[-1]["seconds"] / 60, 1)]
    assert numbers(noop) == [round(evaluation[key], 1) for key in ("mean", "std", "median")]
    assert (evaluation["protocol"], evaluation["episodes"]) == ("noop", 30)
    assert evaluation["step"] == lines[-1]["step"] == 2_000_000
