"""Two processes train as one: the same result, checkpoints, and an end when one is lost."""

import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.runs import metrics
from jaxrl.runtime import launch, processes, rendezvous
from jaxrl.runtime.launch import Launch, check_launch
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import CACHE, recipe_file
from tests.runs.test_directory import state_of
from tests.survival import TIMING

ROOT = Path(__file__).parents[2]
INTERVAL = 300  # agent steps between two checkpoints of a run that is killed
C51 = [
    "train", "--config", str(recipe_file("c51_fast")), "--game", "catch", "--num-envs", "4",
    "--agent.rollout-length", "2", "--agent.batch-size", "32", "--agent.learning-starts", "200",
    "--agent.replay-capacity", "640", "--agent.target-update-interval", "160",
    "--log.interval", "200", "--checkpoint.interval", "400", "--total-steps", "800",
    "--evaluation.episodes", "0",
    # Adam's first steps have the size of the learning rate whatever the gradient: rounding grows.
    "--optimizer.name", "rmsprop", "--optimizer.initial-scale", "1",
]  # fmt: skip
PONG = [
    "train", "--config", str(recipe_file("a2c_fast")), "--game", "pong", "--num-envs", "4",
    "--env.random-start-steps", "5", "--log.interval", "80", "--total-steps", "400",
    "--evaluation.episodes", "0", "--optimizer.initial-scale", "1",
]  # fmt: skip


def start(arguments, count=2, program=("-m", "jaxrl")):
    """As many processes of the command as one program, found by --coordinator."""
    port = free_port()
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    others = ["--coordinator", f"localhost:{port}", "--num-processes", str(count)]
    return [
        subprocess.Popen(
            [sys.executable, *program, *arguments, *others, "--process-id", str(process)],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
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
    path = tmp_path_factory.mktemp("two") / "x[1]"  # which the checkpoints of both must survive
    first, second = run([*C51, "--run-dir", str(path)])
    assert "4 environments, 2 cpu devices of 2 processes" in first
    assert "environments" not in second  # process 0 alone speaks
    return path


@pytest.mark.slow
def test_two_processes_train_what_two_devices_of_one_do(two, tmp_path):
    assert main([*C51, "--parallel.num-devices", "2", "--run-dir", str(tmp_path / "one")]) == 0
    compare(lines(two), lines(tmp_path / "one"))
    assert lines(two)[-1]["loss/cross_entropy"] > 0
    (a, progress), (b, same) = state_of(two, 2), state_of(tmp_path / "one", 2)
    assert progress.step == same.step == 800
    for x, y in zip(jax.tree.leaves(a.agent), jax.tree.leaves(b.agent), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
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


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
def test_two_processes_wait_for_evaluations_and_train_the_same(two, tmp_path):
    during = ["--evaluation.interval", "400", "--evaluation.episodes", "2"]
    first, second = run([*C51, *during, "--run-dir", str(tmp_path / "x")])
    assert "step 400: evaluated 2 games" in first
    assert "evaluated" not in second
    rows = lines(tmp_path / "x")
    assert [row["step"] for row in rows if "evaluation/mean" in row] == [400, 800]
    kept = [{k: v for k, v in row.items() if "evaluation/" not in k} for row in rows]
    assert kept == lines(two)


def check_goes_on(path, capsys, saved_on, num_devices, *more):
    """Resumes a run of `saved_on` devices on others: what was learned comes back exactly."""
    (a, progress), (b, same) = state_of(path, saved_on), state_of(path, num_devices)
    assert progress == same
    learned = [(s.agent.actor, s.agent.train_state, s.metrics) for s in (a, b)]
    for x, y in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(x, y)
    assert int(b.agent.memory.steps[0]) == 0
    before = lines(path)
    assert main(["resume", str(path), "--num-devices", str(num_devices), *more]) == 0
    said = capsys.readouterr().err
    of = f"{saved_on} device{'s' * (saved_on > 1)}"
    moved = f"saved on {of}, resumed on {num_devices}: parameters, optimizer and games continue"
    assert moved in said
    assert "the replay or windows start empty" in said
    assert f"{num_devices} cpu device{'s' * (num_devices > 1)}" in said
    after = lines(path)
    kept = [row for row in before if row["step"] <= progress.step]
    assert after[: len(kept)] == kept
    assert [row["step"] for row in after] == [200 * (i + 1) for i in range(len(after))]
    counts = [row["episodes"] for row in after]
    assert counts == sorted(counts)
    assert after[len(kept)]["replay/transitions"] < before[-1]["replay/transitions"]


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
@pytest.mark.parametrize("num_devices", [1, 4])
def test_a_run_of_two_devices_goes_on_on_one_and_on_four(two, tmp_path, capsys, num_devices):
    """And that of one on two again."""
    path = tmp_path / "x"
    shutil.copytree(two, path)
    shutil.rmtree(path / "checkpoints" / "800")
    check_goes_on(path, capsys, 2, num_devices)
    if num_devices == 1:
        shutil.rmtree(path / "checkpoints" / "400")
        check_goes_on(path, capsys, 1, 2, "--override", "total_steps=1200")
        assert lines(path)[-1]["step"] == 1200


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
def test_two_processes_train_pong_as_two_devices_of_one_do(tmp_path):
    run([*PONG, "--run-dir", str(tmp_path / "two")])
    assert main([*PONG, "--parallel.num-devices", "2", "--run-dir", str(tmp_path / "one")]) == 0
    compare(lines(tmp_path / "two"), lines(tmp_path / "one"))
    assert len(json.loads((tmp_path / "two/provenance.json").read_text())["devices"]) == 2


def endless(path, count):
    """Processes in the middle of a training that they would never end."""
    arguments = [
        "train", "--config", str(recipe_file("a2c_fast")), "--game", "catch",
        "--num-envs", "6", "--total-steps", "1e9", "--log.interval", "300",
        "--checkpoint.interval", str(INTERVAL), "--run-dir", str(path), "--lost-after", "5",
    ]  # fmt: skip
    members = start(arguments, count)
    deadline = time.monotonic() + 200
    while not (path / "metrics.jsonl").exists() or len(metrics.read(path)) < 3:
        assert all(member.poll() is None for member in members), finish(members)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return members


def saved(path):
    return max(int(p.name) for p in (path / "checkpoints").iterdir() if p.name.isdecimal())


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize(("victim", "count"), [(1, 3), (0, 2)])
def test_when_a_process_is_lost_the_others_end_and_say_which(tmp_path, victim, count):
    members = endless(tmp_path / "x", count)
    members[victim].kill()
    # Long before JAX would notice by itself, and with a status that is not JAX's.
    results = finish(members, timeout=180)
    for process, (status, errors) in enumerate(results):
        if process == victim:
            assert status == -signal.SIGKILL
        elif victim:
            assert status == processes.LOST, errors
            assert f"process {victim} was lost" in errors
            assert "Traceback" not in errors
        else:  # with process 0 goes what holds all together: JAX aborts, and says so
            assert status in (processes.LOST, -signal.SIGABRT), errors
            assert "coordination service" in errors or "process 0" in errors
    # At most one interval is lost, and one that was being written.
    assert lines(tmp_path / "x")[-1]["step"] - saved(tmp_path / "x") <= 2 * INTERVAL


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_signal_to_one_process_stops_all_at_the_same_step(tmp_path):
    path = tmp_path / "x"
    members = endless(path, 2)
    members[1].send_signal(signal.SIGTERM)
    results = finish(members, timeout=180)
    assert [status for status, _ in results] == [143, 143], results
    assert f"jaxrl resume {path}" in results[0][1]
    assert saved(path) >= lines(path)[-1]["step"]


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
def test_an_error_of_one_process_ends_the_other_at_once(tmp_path):
    """Which waits in a collective of the host for one that never comes."""
    breaks = """
import sys
from jaxrl.cli import main
from jaxrl.training import loop
calls = 0
def broken(*arguments, **options):
    global calls
    calls += 1
    if calls > 3:
        raise MemoryError("no room in process 1")
    return original(*arguments, **options)
if sys.argv[-1] == "1":
    original, loop._games = loop._games, broken
sys.exit(main.main(sys.argv[1:]))
"""
    members = start([*C51, "--run-dir", str(tmp_path / "x")], program=["-c", breaks])
    (first, told), (second, own) = finish(members, timeout=300)
    assert second == 1
    assert "MemoryError: no room in process 1" in own
    assert first == processes.LOST, told
    assert "process 1 left: no room in process 1" in told
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
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
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_NTASKS": ""}, False),
        ({"SLURM_STEP_NODELIST": "", "SLURM_NTASKS": "2"}, False),
        ({"OMPI_COMM_WORLD_SIZE": " "}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        # Without the package that asks the cluster: a member of a sweep, say.
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, False),
    ],
)
def test_launchers_are_recognized(environment, together):
    assert launch.launched_together(environment) == together


def slurm(tasks, local, visible="", **more):
    environment = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_LOCALID": str(local)}
    return environment | {"CUDA_VISIBLE_DEVICES": visible} | more


EIGHT = "0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({}, None),
        (slurm("8(x2)", 5, "5"), [0]),  # --gpus-per-task 1: each sees its own only
        (slurm("8(x2)", 5, EIGHT), [5]),
        (slurm("1(x2)", 0, EIGHT), [0, 1, 2, 3, 4, 5, 6, 7]),
        (slurm("1(x2)", 0), [0, 1, 2, 3]),  # shown none: those that are present
        (slurm("2(x3)", 1, EIGHT), [4, 5, 6, 7]),
        (slurm("2(x3)", 1, "4,5,6,7", SLURM_GPUS_PER_TASK="4"), [0, 1, 2, 3]),
        (slurm("2,1", 0, EIGHT, SLURM_NODEID="1"), [0, 1, 2, 3, 4, 5, 6, 7]),
        (slurm("2,1", 1, EIGHT, SLURM_NODEID="0"), [4, 5, 6, 7]),
        ({"CUDA_VISIBLE_DEVICES": EIGHT, "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
          "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, [0, 1, 2, 3]),
        (slurm("", 0, EIGHT), None),
        ({"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_LOCALID": ""}, None),
        (slurm("2", 1, EIGHT, SLURM_NODEID=""), [4, 5, 6, 7]),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": ""}, None),
    ],
)  # fmt: skip
def test_each_process_takes_the_gpus_that_are_its_own(environment, gpus):
    assert launch.local_gpus(environment, present=4) == gpus


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_NTASKS": "two"}, "SLURM_NTASKS = 'two'"),
        ({"OMPI_COMM_WORLD_SIZE": "-1"}, "OMPI_COMM_WORLD_SIZE = '-1'"),
        (slurm("two", 0), "SLURM_STEP_TASKS_PER_NODE = 'two'"),
        (slurm("2(x", 0), "SLURM_STEP_TASKS_PER_NODE"),
        (slurm("2", 0, SLURM_NODEID="1"), "SLURM_NODEID = '1'"),
        (slurm("2", "x"), "SLURM_LOCALID = 'x'"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1.5"}, "OMPI_COMM_WORLD_LOCAL_SIZE = '1.5'"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "OMPI_COMM_WORLD_LOCAL_RANK = ''"),
    ],
)
def test_a_launchers_variable_that_makes_no_sense_is_named(environment, named, monkeypatch):
    with pytest.raises(UserError, match=f"the environment has {re.escape(named)}") as error:
        launch.launched_together(environment) or launch.local_gpus(environment, present=4)
    assert "--num-processes 1" in str(error.value)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    processes.join(Launch(num_processes=1))  # alone: nothing of them is read


def test_a_variable_that_a_launcher_has_not_set_is_named(monkeypatch):
    def initialize(**_):
        raise KeyError("SLURM_JOB_ID")

    monkeypatch.setattr("jax.distributed.initialize", initialize)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(UserError, match="processes: the environment lacks SLURM_JOB_ID \\(give"):
        processes.join(Launch())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"coordinator": "host"}, "HOST:PORT"),
        ({"coordinator": "host:99999"}, "HOST:PORT"),
        ({"coordinator": "host:1", "num_processes": 2}, "--process-id is missing"),
        ({"num_processes": 2, "process_id": 0}, "needs --coordinator"),
        ({"coordinator": "host:1", "num_processes": 2, "process_id": 2}, "from 0 to 1"),
        ({"lost_after": 0.0}, "between 5 and"),
    ],
)
def test_incomplete_launches_are_mistakes(changes, told):
    with pytest.raises(UserError, match=told):
        check_launch(dataclasses.replace(Launch(), **changes))


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def meeting(*members):
    """What each of the launches ends in: None, or its mistake."""

    def one(member):
        try:
            return rendezvous.meet(member)
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(one, members))


@pytest.mark.slow
@pytest.mark.rotating(5, group="processes")
def test_processes_meet_and_say_who_is_missing_or_wrong():
    def launches(*who, within=20.0):
        address = f"localhost:{free_port()}"
        return [Launch(address, number, process, within) for process, number in who]

    assert meeting(*launches((2, 3), (0, 3), (1, 3))) == [None, None, None]
    told = meeting(*launches((0, 3), (1, 3), within=2.0))
    assert "no sign of process 2 within 2 s" in told[0]
    assert "cannot join" in told[1]
    (alone,) = meeting(*launches((1, 2), within=1.0))
    assert "cannot join the other processes" in alone
    wrong = "process 1 has --num-processes 3, process 0 has 2"
    assert meeting(*launches((0, 2), (1, 3))) == [wrong, wrong]
    with socket.create_server(("", 0)) as stranger:
        address = f"localhost:{stranger.getsockname()[1]}"
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(meeting, Launch(address, 2, 1, 2.0))
            stranger.accept()[0].sendall(b"HTTP/1.1 400 Bad Request")
            assert "cannot join" in joining.result()[0]  # not what the stranger said
    first, *same = meeting(*launches((0, 3), (1, 3), (1, 3)))
    assert first == "two processes have --process-id 1"
    assert set(same) == {first}


def test_a_port_that_is_taken_is_a_mistake():
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        (told,) = meeting(Launch(address, 2, 0, 5.0))
    assert "choose another port" in told


def test_devices_that_do_not_divide_among_processes_are_a_mistake(monkeypatch):
    class Device:
        platform = "gpu"

        def __init__(self, process_index):
            self.process_index = process_index

    monkeypatch.setattr(jax, "devices", lambda: [Device(i // 4) for i in range(8)])
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UserError, match="take 2 or 4"):
        make_mesh(3)


@pytest.mark.parametrize(
    ("places", "taken"),
    [
        (["a [0, 1, 2, 3]"] * 2, [2, 3]),  # two on one machine, unbound: the second half
        (["a [0, 1]", "a [0, 1, 2, 3]"], [0, 1, 2, 3]),  # bound to other cores by a launcher
        (["b [0, 1, 2, 3]", "a [0, 1, 2, 3]"], [0, 1, 2, 3]),  # on another machine
    ],
)
def test_processes_of_one_machine_divide_its_cores(monkeypatch, places, taken):
    class Store:
        def key_value_set(self, name, place):
            assert (name, place) == ("jaxrl/place/000001", places[1])

        def wait_at_barrier(self, name, milliseconds):
            pass

        def key_value_dir_get(self, name):
            return [(f"{name}/{i:06}", place) for i, place in enumerate(places)]

    chosen = []
    monkeypatch.setattr(processes, "_store", Store)
    monkeypatch.setattr(processes, "index", lambda: 1)
    monkeypatch.setattr(processes, "_host", lambda: "a")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: chosen.append(cores))
    processes._share_cores()
    assert chosen == [taken]


def test_a_process_that_is_told_so_trains_alone_in_any_cluster(monkeypatch):
    alone = Launch(num_processes=1)
    check_launch(alone)
    monkeypatch.setattr(os, "environ", {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2"})
    processes.join(alone)
    assert processes.count() == 1
