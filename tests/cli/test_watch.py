"""`jaxrl watch`: of a run that trains, has stopped, has ended, or has nothing to show yet."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from jaxrl.cli import watch
from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.runs import layout, metrics
from jaxrl.runs.layout import LOCK
from jaxrl.runs.lock import hold_lock, is_locked
from tests.survival import ROOT

DEMO = ROOT / "notebooks" / "demo" / "pong-vtrace_cpu-seed1"


@pytest.fixture
def run_dir(tmp_path):
    return Path(shutil.copytree(DEMO, tmp_path / "run"))


def shown(run_dir: Path, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    watch.follow(run_dir, once=True, console=console)
    return console.export_text()


def test_a_run_that_has_ended(run_dir):
    output = shown(run_dir)
    last = metrics.read(run_dir)[-1]
    assert "vtrace on pong" in output
    assert "100% of 1.00M steps" in output
    assert "4.00M frames" in output
    assert "ended" in output
    assert f"{last['steps_per_second']:,.0f} steps/s" in output
    assert "loss/value" in output
    assert f"{last['loss/value']:.4g}" in output
    assert "return, mean of the last 100 games" in output
    assert max(map(len, output.splitlines())) <= 80


def test_a_run_that_was_stopped_and_one_that_trains(run_dir):
    lines = (run_dir / layout.METRICS).read_text().splitlines(keepends=True)
    (run_dir / layout.METRICS).write_text("".join(lines[: len(lines) // 2]))
    assert "stopped before its end" in shown(run_dir)
    with hold_lock(run_dir):
        assert is_locked(run_dir)
        output = shown(run_dir)
    assert "training" in output
    assert " left" in output
    assert not is_locked(run_dir)


def test_a_run_that_starts_and_one_that_is_evaluated(run_dir):
    with hold_lock(run_dir):
        assert "saving and evaluating" in shown(run_dir)
        (run_dir / layout.METRICS).unlink()
        assert "starting, or in its first interval" in shown(run_dir)


def test_a_run_without_lines_or_games(run_dir):
    rows = metrics.read(run_dir)[:1]
    (run_dir / layout.METRICS).write_text(json.dumps(rows[0] | {"return_mean": None}) + "\n")
    assert "no game over yet" in shown(run_dir)
    (run_dir / layout.METRICS).unlink()
    assert "no line of metrics yet" in shown(run_dir)


def test_a_constant_curve_and_a_narrow_terminal(run_dir):
    rows = metrics.read(run_dir)[:3]
    text = "".join(json.dumps(row | {"return_mean": -21.0}) + "\n" for row in rows)
    (run_dir / layout.METRICS).write_text(text)
    lines = [line for line in shown(run_dir, width=40).splitlines() if "┤" in line]
    ticks = [float(line.partition("┤")[0]) for line in lines]
    assert ticks == sorted(ticks, reverse=True)
    assert (ticks[0], ticks[-1]) == (-20, -22)


def test_ticks_are_round_and_of_a_unit_that_fits(run_dir):
    """From -19.7 to 19.6 by tens, and the 4 million frames of the run by millions from 0."""

    def ticks() -> tuple[list[str], list[str], str]:
        lines = shown(run_dir).splitlines()
        bottom = next(n for n, line in enumerate(lines) if "└" in line)
        left = [line.partition("┤")[0].strip() for line in lines if "┤" in line]
        return left, lines[bottom + 1].split(), lines[bottom + 2].strip()

    millions = "emulator frames (millions)"
    assert ticks() == (["20", "10", "0", "-10", "-20"], ["0", "1", "2", "3", "4"], millions)
    row = metrics.read(run_dir)[0] | {"frames": 32_000, "return_mean": 0.25}
    (run_dir / layout.METRICS).write_text(json.dumps(row) + "\n")
    _, below, label = ticks()
    assert (below, label) == (["0", "10", "20", "30", "40"], "emulator frames (thousands)")


def test_strange_values_are_shown_or_left_out(run_dir):
    row = metrics.read(run_dir)[-1]
    del row["return_mean"]
    strange = {"steps_per_second": "x", "loss/[/x]": 1.0, "loss/\x1b[2J": 10**400, "goodput": None}
    text = json.dumps(row | strange) + "\n"
    (run_dir / layout.METRICS).write_text(text.replace("null", "NaN"))
    output = shown(run_dir)
    assert "loss/[/x]" in output
    assert "\x1b" not in output
    assert "0 steps/s" in output
    for name in ("step", "frames"):
        (run_dir / layout.METRICS).write_text(json.dumps(row | {name: 10**400}) + "\n")
        with pytest.raises(UserError, match=f"has no number '{name}'"):
            shown(run_dir)


def test_pipes_keep_nobody_waiting(run_dir):
    os.mkfifo(run_dir / LOCK)
    assert "ended" in shown(run_dir)
    (run_dir / layout.METRICS).unlink()
    os.mkfifo(run_dir / layout.METRICS)
    with pytest.raises(UserError, match="it is not a file"):
        shown(run_dir)


def test_it_follows_until_the_run_lets_go(run_dir, monkeypatch):
    monkeypatch.setattr(watch, "SECONDS", 0.01)
    views = []
    original = watch.view
    monkeypatch.setattr(watch, "view", lambda *a: views.append(a) or original(*a))
    console = Console(width=80, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    with hold_lock(run_dir):
        follower = threading.Thread(target=watch.follow, args=(run_dir, False, console))
        follower.start()
        while len(views) < 3:
            time.sleep(0.01)
        assert follower.is_alive()
    follower.join(timeout=30)
    assert not follower.is_alive()


LOOKS = """
import sys, time
from pathlib import Path
from jaxrl.runs.lock import is_locked
print(1, flush=True)
while True:
    is_locked(Path(sys.argv[1]))
    time.sleep(0.005)
"""


def test_looking_does_not_keep_a_run_from_starting(run_dir):
    """A look holds the lock for a moment."""
    process = subprocess.Popen([sys.executable, "-c", LOOKS, str(run_dir)], stdout=subprocess.PIPE)
    try:
        (run_dir / LOCK).touch()
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(20):
            with hold_lock(run_dir):
                pass
        assert process.poll() is None  # it still looks
    finally:
        process.kill()
        process.communicate()


def test_off_a_terminal_it_is_shown_once(run_dir, capsys):
    assert main(["watch", str(run_dir)]) == 0
    assert "100% of 1.00M steps" in capsys.readouterr().out
    assert main(["watch", str(run_dir / "none")]) == 2
