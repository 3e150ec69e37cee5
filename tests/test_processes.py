"""Two processes train as one: the same result, checkpoints, and an end when one is lost."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl import distribute, metrics, processes
from jaxrl.checks import check_launch
from jaxrl.cli import main
from jaxrl.config import Launch, UserError
from tests.conftest import CACHE, CONFIGS
from tests.test_runs import state_of

ROOT = Path(__file__).parents[1]
TIMING = {"seconds", "steps_per_second", "compile_seconds"}
C51 = [
    "train", "--config", str(CONFIGS / "c51_fast.toml"), "--game", "catch", "--num-envs", "4",
    "--agent.rollout-length", "2", "--agent.batch-size", "32", "--agent.learning-starts", "200",
    "--agent.replay-capacity", "640", "--agent.target-update-interval", "160",
    "--log-interval", "200", "--checkpoint-interval", "400", "--total-steps", "800",
    "--evaluation-episodes", "0",
    # Adam's first steps have the size of the learning rate whatever the gradient: rounding grows.
    "--optimizer.name", "rmsprop", "--optimizer.initial-scale", "1",
]  # fmt: skip
PONG = [
    "train", "--config", str(CONFIGS / "vtrace_cpu.toml"), "--game", "pong", "--num-envs", "8",
    "--agent.num-minibatches", "2", "--agent.window", "4", "--random-start-steps", "5",
    "--log-interval", "80", "--total-steps", "400", "--evaluation-episodes", "0",
    "--optimizer.initial-scale", "1",
]  # fmt: skip


def start(arguments, count=2, **options):
    """As many processes of the command as one program, found by --coordinator."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    launch = ["--coordinator", f"localhost:{port}", "--num-processes", str(count)]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "jaxrl", *arguments, *launch, "--process-id", str(process)],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
            **options,
        )
        for process in range(count)
    ]  # fmt: skip


def finish(members, timeout=300):
    """(exit status, standard error) of each."""
    try:
        errors = [member.communicate(timeout=timeout)[1] for member in members]
    finally:
        for member in members:
            member.kill()
    return [(member.returncode, text) for member, text in zip(members, errors, strict=True)]


def run(arguments):
    results = finish(start(arguments))
    assert [status for status, _ in results] == [0, 0], results
    return [errors for _, errors in results]


def lines(path):
    rows = metrics.read(path)
    return [{k: v for k, v in row.items() if k not in TIMING} for row in rows]


def compare(a, b):
    """Metrics of two runs, but for their timing: float32 sums in another order at most."""
    assert len(a) == len(b) > 0
    for one, two in zip(a, b, strict=True):
        assert one.keys() == two.keys()
        for name, value in one.items():
            if two[name] is None:
                assert value is None, name
            else:
                assert value == pytest.approx(two[name], rel=1e-3, abs=1e-5), name


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """C51 on Catch by two processes, each with its half of the replay."""
    path = tmp_path_factory.mktemp("two") / "x"
    first, second = run([*C51, "--run-dir", str(path)])
    assert "4 environments, 2 cpu devices of 2 processes" in first
    assert "environments" not in second  # process 0 alone speaks
    return path


def test_two_processes_train_what_two_devices_of_one_do(two, tmp_path):
    assert main([*C51, "--num-devices", "2", "--run-dir", str(tmp_path / "one")]) == 0
    compare(lines(two), lines(tmp_path / "one"))
    assert lines(two)[-1]["loss/cross_entropy"] > 0
    (a, progress), (b, same) = state_of(two, 2), state_of(tmp_path / "one", 2)
    assert progress.step == same.step == 800
    for x, y in zip(jax.tree.leaves(a.agent), jax.tree.leaves(b.agent), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


def test_two_processes_resume_where_they_stood(two, tmp_path):
    """Replay, games and keys of both come back: the end is the same, bit for bit."""
    shutil.copytree(two, tmp_path / "x")
    shutil.rmtree(tmp_path / "x" / "checkpoints" / "800")
    first, _ = run(["resume", str(tmp_path / "x")])
    assert "resumed at step 400" in first
    assert "new games" not in first
    assert lines(tmp_path / "x") == lines(two)
    (a, _), (b, _) = state_of(two, 2), state_of(tmp_path / "x", 2)
    for x, y in zip(jax.tree.leaves(a.agent), jax.tree.leaves(b.agent), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("num_devices", [1, 4])
def test_a_run_of_two_devices_goes_on_on_one_and_on_four(two, tmp_path, capsys, num_devices):
    path = tmp_path / "x"
    shutil.copytree(two, path)
    shutil.rmtree(path / "checkpoints" / "800")
    (a, progress), (b, _) = state_of(path, 2), state_of(path, num_devices)
    assert progress.step == 400
    learned = [(s.agent.actor, s.agent.optimizer, s.metrics) for s in (a, b)]
    for x, y in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(x, y)
    assert int(b.agent.memory.steps[0]) == 0
    assert main(["resume", str(path), "--num-devices", str(num_devices)]) == 0
    said = capsys.readouterr().err
    plural = "s" * (num_devices > 1)
    assert f"saved on 2 devices, resumed on {num_devices}: parameters and optimizer" in said
    assert "the replay or windows fill anew" in said
    assert f"{num_devices} cpu device{plural}" in said
    before, after = lines(two), lines(path)
    assert [row["step"] for row in after] == [row["step"] for row in before]
    assert after[:2] == before[:2]
    counts = [row["episodes"] for row in after]
    assert counts == sorted(counts)
    assert after[2]["replay/transitions"] < before[2]["replay/transitions"]


def test_two_processes_train_pong_as_two_devices_of_one_do(tmp_path):
    run([*PONG, "--run-dir", str(tmp_path / "two")])
    assert main([*PONG, "--num-devices", "2", "--run-dir", str(tmp_path / "one")]) == 0
    compare(lines(tmp_path / "two"), lines(tmp_path / "one"))
    assert len(json.loads((tmp_path / "two/provenance.json").read_text())["devices"]) == 2


def wait_for_line(path, members, count):
    deadline = time.monotonic() + 200
    while not (path / "metrics.jsonl").exists() or len(metrics.read(path)) < count:
        assert all(member.poll() is None for member in members), finish(members)
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("victim", "number", "statuses", "told"),
    [
        (1, signal.SIGKILL, {75}, "process 1 was lost"),
        (0, signal.SIGKILL, {75, -signal.SIGABRT}, "coordination service|process 0"),
        (1, signal.SIGTERM, {143}, ""),
    ],
)
def test_when_one_process_ends_the_other_does(tmp_path, victim, number, statuses, told):
    path = tmp_path / "x"
    endless = [*C51, "--total-steps", "1e9", "--checkpoint-interval", "200"]
    members = start([*endless, "--run-dir", str(path), "--lost-after", "5"])
    wait_for_line(path, members, 3)
    members[victim].send_signal(number)
    results = finish(members, timeout=60)
    status, errors = results[1 - victim]
    assert status in statuses, errors
    saved = sorted(int(p.name) for p in (path / "checkpoints").iterdir() if p.name.isdecimal())
    if number == signal.SIGTERM:
        assert results[victim][0] == 143
        assert saved[-1] >= lines(path)[-1]["step"]  # both have stopped at one step, and saved it
        assert f"jaxrl resume {path}" in results[0][1]
    else:
        assert any(part in errors for part in told.split("|")), errors
        newest = lines(path)[-1]["step"]
        assert newest - saved[-1] <= 2 * 200  # one interval, and one that was being written


def test_a_mistake_of_one_process_ends_both(tmp_path):
    """Also one that only process 0 can see."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "file").touch()
    results = finish(start([*C51, "--run-dir", str(tmp_path / "x")]))
    assert [status for status, _ in results] == [2, 2]
    for _, errors in results:
        assert "exists: choose another --run-dir" in errors
        assert "Traceback" not in errors


# --- who the others are --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "together"),
    [
        ({}, False),
        ({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2"}, True),
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_NTASKS": "1"}, False),
        ({"SLURM_NTASKS": "2"}, False),  # sbatch's own script, outside srun
        ({"OMPI_COMM_WORLD_SIZE": "4"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, True),
    ],
)
def test_launchers_are_recognised(environment, together):
    assert processes.launched_together(environment) == together


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "3", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_STEP_TASKS_PER_NODE": "4"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_TASKS_PER_NODE": "2,1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, None),
    ],
)
def test_each_process_takes_the_gpus_that_are_its_own(environment, gpus):
    assert processes.local_gpus(environment) == gpus


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"coordinator": "host"}, "HOST:PORT"),
        ({"coordinator": "host:99999"}, "HOST:PORT"),
        ({"coordinator": "host:1", "num_processes": 2}, "belong together"),
        ({"num_processes": 2, "process_id": 0}, "needs --coordinator"),
        ({"coordinator": "host:1", "num_processes": 2, "process_id": 2}, "from 0 to 1"),
        ({"lost_after": 0.0}, "between 5 and"),
    ],
)
def test_incomplete_launches_are_mistakes(changes, told):
    with pytest.raises(UserError, match=told):
        check_launch(dataclasses.replace(Launch(), **changes))


def test_a_process_that_finds_no_others_says_so():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    arguments = [*C51, "--coordinator", f"localhost:{port}", "--num-processes", "2",
                 "--process-id", "1", "--join-within", "5"]  # fmt: skip
    command = [sys.executable, "-m", "jaxrl", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert ended.returncode == 2, ended.stderr
    assert "cannot join the other processes" in ended.stderr


def test_devices_that_do_not_divide_among_processes_are_a_mistake(monkeypatch):
    class Device:
        platform = "gpu"

        def __init__(self, process_index):
            self.process_index = process_index

    monkeypatch.setattr(distribute.jax, "devices", lambda: [Device(i // 4) for i in range(8)])
    monkeypatch.setattr(distribute.jax, "process_count", lambda: 2)
    with pytest.raises(UserError, match="take 2 or 4"):
        distribute.make_mesh(3)
