"""Emulators that stop answering: training ends with a message, and what was saved goes on."""

import ctypes
import os
import re
import subprocess
import sys
import time

import pytest

from jaxrl.errors import EngineError
from jaxrl.runs import checkpoint_files, metrics
from tests.conftest import recipe_file
from tests.survival import ROOT, begin, check_metrics, environment, finish

RUN = [
    "--config", str(recipe_file("a2c_fast")), "--game", "pong", "--num-envs", "2",
    "--parallel.num-devices", "1", "--env.random-start-steps", "0", "--log.interval", "100",
    "--checkpoint.interval", "100", "--evaluation.episodes", "0", "--env.stuck-after", "3",
    "--env.engine", "envpool",
]  # fmt: skip

# Tells which threads the emulators run on.
TELLING = """
import os, sys
from jaxrl.cli import main
from jaxrl.envs.envpool import engine

make_pool = engine.make_pool

def telling(*arguments, **options):
    before = set(os.listdir("/proc/self/task"))
    pool = make_pool(*arguments, **options)
    with open(sys.argv[1], "w") as file:
        file.write(" ".join(set(os.listdir("/proc/self/task")) - before))
    return pool

engine.make_pool = telling
sys.exit(main.main(sys.argv[2:]))
"""
PTRACE_ATTACH, WALL = 16, 0x40000000


def stop_threads(threads):
    """Stops single threads of a child, as a hang would; all others go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    for thread in threads:
        if libc.ptrace(PTRACE_ATTACH, thread, None, None):
            pytest.skip(f"cannot stop a thread: {os.strerror(ctypes.get_errno())}")
        os.waitpid(thread, WALL)


@pytest.mark.slow
@pytest.mark.rotating(4)
@pytest.mark.parametrize("engine", ["xla", "callback"])
def test_emulators_that_stop_answering_are_noticed(tmp_path, engine):
    run_dir, threads_file, log = tmp_path / "x", tmp_path / "threads", tmp_path / "log"
    arguments = ["train", *RUN, "--env.interface", engine, "--run-dir", str(run_dir)]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, threads_file, *arguments], stderr=log.open("w"), cwd=ROOT,
        env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not checkpoint_files.steps(run_dir):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    threads = list(map(int, threads_file.read_text().split()))
    assert threads
    stop_threads(threads)
    while "did not answer" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for thread in threads:
        os.waitpid(thread, WALL)
    status, _ = finish(process)
    assert status == EngineError.status, log.read_text()
    last = log.read_text().strip().splitlines()[-1]
    # A call takes a second, and 20 times as much are allowed.
    match = re.match(r"jaxrl: the emulators did not answer for (\d+) seconds \(stuck_after\)", last)
    assert match, last
    assert 3 <= int(match[1]) <= 60
    assert last.endswith(f"go on with: jaxrl resume {run_dir}")
    good = checkpoint_files.survey(run_dir).good
    assert len(good) == len(checkpoint_files.steps(run_dir))
    goal = f"total_steps={metrics.read(run_dir)[-1]['step'] + 200}"
    status, errors = finish(begin("resume", run_dir, "--override", goal))
    assert status == 0, errors
    check_metrics(run_dir)
