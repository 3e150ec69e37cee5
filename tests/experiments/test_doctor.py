"""`jaxrl doctor`: right on this machine, and right about machines that are broken, simulated."""

import dataclasses
import errno
import importlib
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from jaxrl.cli import doctor as doctor_command
from jaxrl.cli.main import main
from jaxrl.experiments.doctor import (
    doctor,
    emulators,
    gradients,
    host_checks,
    machine,
    probes,
    protocol,
)
from jaxrl.experiments.doctor.host_checks import Check
from jaxrl.networks import layers
from jaxrl.networks.convolution import layer
from jaxrl.program import rollout
from jaxrl.runtime import cpus
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import TimeStep
from tests.survival import ROOT

GOOD = machine.Machine(
    date="2026-01-01T00:00:00+00:00",
    platform="gpu",
    device_kind="NVIDIA H100",
    num_devices=2,
    device_memory_gb=60.0,
    device_error=None,
    driver="570.1",
    system="Linux",
    cpu="a CPU",
    cores=8,
    host_memory_gb=64.0,
    host_memory_free_gb=60.0,
    disk_free_gb=100.0,
    python="3.12.1",
    versions={"jax": "0.11.0", "jaxlib": "0.11.0", "numpy": "2.4.0", "envpool": "1.2.7"},
    compilers={"g++": "g++ (Debian 12.2.0-14) 12.2.0", "nvcc": "release 13.0, V13.0.88"},
    commit=None,
)


def changed(**changes):
    return dataclasses.replace(GOOD, **changes)


# --- the host ------------------------------------------------------------------------------------


def test_a_good_machine_is_good(tmp_path, monkeypatch):
    monkeypatch.setattr(cpus, "time_limit", lambda: None)
    checks = [
        host_checks.check_devices(GOOD),
        host_checks.check_versions(GOOD),
        host_checks.check_cores(GOOD),
        host_checks.check_compilers(GOOD),
        host_checks.check_memory(GOOD),
        host_checks.check_disk(GOOD, tmp_path),
    ]
    assert [check.mark for check in checks] == ["ok"] * 6
    assert not any(check.remedy for check in checks)
    assert checks[0].text == "gpu: 2 x NVIDIA H100, 60 GB each for JAX, driver 570.1"
    assert checks[3].text == "g++ 12.2.0, nvcc 13.0"


def test_no_device_is_a_cross_that_training_needs(monkeypatch):
    none = changed(platform=None, device_error="RuntimeError: no backend")
    check = host_checks.check_devices(none)
    assert check.mark == "cross"
    assert "RuntimeError: no backend" in check.text
    assert doctor.failures([check]) == [check]
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert "JAX_PLATFORMS=cuda names" in host_checks.check_devices(none).remedy


def test_a_gpu_that_jax_does_not_use_is_a_warning(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    unused = changed(platform="cpu", device_memory_gb=None)
    check = host_checks.check_devices(unused)
    assert check.mark == "warning"
    assert "pip install -e '.[cuda]'" in check.remedy
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert host_checks.check_devices(unused).mark == "ok"


@pytest.mark.parametrize(
    ("versions", "mark", "remedy"),
    [
        ({"jax": "0.9.2"}, "warning", "tested with jax 0.10 to 0.12"),
        ({"jax": "0.13.0"}, "warning", "tested with jax 0.10 to 0.12"),
        ({"jax": "0.12.9.dev3"}, "ok", ""),
        ({"envpool": "1.2.4"}, "warning", "envpool 1.2.5 to 1.2.7"),
        ({"envpool": "1.2.7"}, "ok", ""),
        ({"numpy": "3.0.0"}, "warning", "numpy 2:"),
        ({"jaxlib": "0.11.0", "jax-cuda12-plugin": "0.11.0"}, "ok", ""),
        (
            {"jaxlib": "0.11.0", "jax-cuda12-plugin": "0.10.2"},
            "warning",
            "give jax-cuda12-plugin the version of jaxlib, 0.11.0",
        ),
    ],
)
def test_versions_out_of_range_are_warnings(versions, mark, remedy):
    check = host_checks.check_versions(changed(versions=versions))
    assert check.mark == mark
    assert remedy in check.remedy
    for folder in re.findall(r"(\S*constraints\S*) has", check.remedy):
        assert list((ROOT / folder).glob("3.*.txt"))


def test_an_untested_python_is_a_warning():
    assert host_checks.check_versions(changed(python="3.14.0")).mark == "warning"
    assert host_checks.check_versions(changed(python="3.11.7")).mark == "ok"


def test_one_core_is_a_warning():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        one = changed(cores=machine.describe_apart().cores)
    finally:
        os.sched_setaffinity(0, before)
    assert one.cores == 1
    check = host_checks.check_cores(one)
    assert check.mark == "warning"
    assert "taskset" in check.remedy


def test_less_cpu_time_than_cores_is_a_warning(monkeypatch):
    monkeypatch.setattr(cpus, "time_limit", lambda: 2.5)
    monkeypatch.setattr(cpus, "cores", lambda: list(range(8)))
    check = host_checks.check_cores(GOOD)
    assert check.mark == "warning"
    assert check.text == "8 for this process, a CPU; CPU time for 2.5, so 3 emulator threads"
    assert "--cpuset-cpus" in check.remedy


def test_little_memory_is_a_warning():
    assert host_checks.check_memory(changed(host_memory_free_gb=1.0)).mark == "warning"
    assert host_checks.check_memory(changed(host_memory_free_gb=None)).mark == "warning"


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_a_cross_that_training_needs(call, number, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    check = host_checks.check_disk(GOOD, tmp_path)
    assert check.mark == "cross"
    assert os.strerror(number) in check.text
    assert "--run-dir" in check.remedy
    assert doctor.failures([check]) == [check]
    assert list(tmp_path.iterdir()) == []


def test_the_disk_takes_a_whole_file_and_keeps_nothing(tmp_path, monkeypatch):
    sizes = []
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: sizes.append(whole(file, data[:999_999])) or sizes[-1])  # fmt: skip  # noqa: E501
    check = host_checks.check_disk(GOOD, tmp_path / "not" / "yet")
    assert check.mark == "ok"
    assert sum(sizes) == host_checks.WRITTEN
    assert len(sizes) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_a_cross(monkeypatch, tmp_path):
    def refuse(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(host_checks.tempfile, "mkstemp", refuse)
    check = host_checks.check_disk(GOOD, tmp_path)
    assert check.mark == "cross"
    assert "Permission denied" in check.text


def test_a_disk_that_does_not_answer_is_a_cross(monkeypatch, tmp_path):
    monkeypatch.setattr(host_checks, "SECONDS_TO_WRITE", 0.1)
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(1))
    check = host_checks.check_disk(GOOD, tmp_path)
    assert (check.mark, "takes no file within 0.1 s" in check.text) == ("cross", True)


def test_a_file_in_place_of_the_directory_is_a_cross(tmp_path):
    (tmp_path / "x").touch()
    check = host_checks.check_disk(GOOD, tmp_path / "x")
    assert (check.mark, "Not a directory" in check.text) == ("cross", True)


def test_probes_answer_where_no_file_can_be_written():
    """As on a full disk: no file of this process may grow."""
    answer = "import json; print(json.dumps({'mark': 'ok', 'text': 'x'}))"
    code = textwrap.dedent(
        f"""
        import resource, sys
        from jaxrl.experiments.doctor import protocol
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        protocol.COMMAND = (sys.executable, "-c", {answer!r})
        print([found["text"] for _, found in protocol.ask(("EnvPool",), lambda _: None)])
        """
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "['x']\n", found.stderr


def test_without_devices_nothing_waits_for_them(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(doctor, "ask", lambda names, _: (x for x in asked.append(names) or ()))
    none = changed(platform=None, device_error="no driver")
    checks = list(doctor.diagnose(none, tmp_path, lambda _: None))
    assert asked == [("EnvPool",)]
    assert [c.name for c in checks if c.text == "cannot be checked without devices"] == [
        name for name in protocol.PROBES if name != "EnvPool"
    ]


def test_a_probe_ends_with_whoever_started_it():
    code = (
        "import time; from jaxrl.experiments.doctor import probes, protocol;"
        "probes.learning = lambda: time.sleep(60); protocol.main(['learning'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    process.stdin.close()
    assert process.wait(50) == 1


def test_little_disk_is_a_warning(monkeypatch, tmp_path):
    usage = host_checks.shutil.disk_usage(tmp_path)._replace(free=1e9)
    monkeypatch.setattr(host_checks.shutil, "disk_usage", lambda _: usage)
    assert host_checks.check_disk(GOOD, tmp_path).mark == "warning"


# --- the machine ---------------------------------------------------------------------------------


def test_the_machine_is_plain_json():
    here = machine.describe()
    assert json.loads(json.dumps(dataclasses.asdict(here))) == dataclasses.asdict(here)
    assert here.platform == "cpu"
    assert here.device_memory_gb is None
    assert here.cores == len(os.sched_getaffinity(0))
    assert 0 < here.host_memory_free_gb <= here.host_memory_gb
    assert here.versions["jax"] == sys.modules["jax"].__version__
    assert here.python == sys.version.split()[0]


def test_another_process_describes_the_devices(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    broken = machine.describe_apart()
    assert broken.platform is None
    assert "nonsense" in broken.device_error
    assert broken.cores >= 1
    monkeypatch.setattr(machine.sys, "executable", "/bin/false")
    assert machine.describe_apart().device_error == "JAX ended with status 1:"
    monkeypatch.setattr(machine.sys, "executable", "/absent")
    assert "/absent" in machine.describe_apart().device_error


def test_jax_that_hangs_is_no_device(monkeypatch, tmp_path):
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(machine.sys, "executable", str(hanging))
    found = machine.describe_apart(0.5)
    assert found.device_error == "JAX did not start its devices within 0.5 s"


def test_missing_programs_are_left_out(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "'unfinished")
    here = machine.describe()
    assert here.driver is None
    assert here.compilers == {}


def test_a_compiler_with_options_says_its_version(monkeypatch, tmp_path):
    compiler = tmp_path / "nvcc"
    compiler.write_text(
        "#!/bin/sh\necho a name\necho Copyright 2005\necho release 13.0, V13.0.88\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("CXX", f"{compiler} -O3")
    found = machine.describe().compilers
    assert found["$CXX"] == found["nvcc"] == "release 13.0, V13.0.88"


# --- other processes -----------------------------------------------------------------------------

# Answers as the probes do, or does what its name says.
FAKE = textwrap.dedent(
    """
    import json, os, signal, sys, time
    for name in sys.argv[1:]:
        if name == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "abort":
            os.abort()
        if name == "hang":
            time.sleep(60)
        if name == "exit":
            print("no such driver\\n\\n", file=sys.stderr)
            sys.exit(3)
        print(json.dumps({"mark": "ok", "text": f"{name} by {os.getpid()}"}), flush=True)
    """
)


def asked(monkeypatch, names, seconds=10.0):
    monkeypatch.setattr(protocol, "COMMAND", (sys.executable, "-c", FAKE))
    for name in {*names, "hang"}:
        probe = protocol.Probe("", 0.5 if name == "hang" else seconds, "")
        monkeypatch.setitem(protocol.PROBES, name, probe)
    shown = []
    found = dict(protocol.ask(names, shown.append))
    assert shown == names == list(found)
    return found


def test_probes_share_a_process_until_one_ends_it(monkeypatch):
    found = asked(monkeypatch, ["a", "b", "crash", "c", "hang", "d", "abort", "exit", "e"])
    process = {name: found[name]["text"].split()[-1] for name in "abcde"}
    assert process["a"] == process["b"]
    assert len(set(process.values())) == 4
    assert found["crash"]["text"] == "ended by SIGSEGV: about to crash"
    assert found["hang"]["text"] == "no answer within 0.5 s"
    assert found["abort"]["text"] == "ended by SIGABRT"
    assert found["exit"]["text"] == "ended with status 3: no such driver"
    assert {name for name in found if found[name]["mark"] == "cross"} == {
        "crash", "hang", "abort", "exit"
    }  # fmt: skip


def test_a_process_that_hangs_is_ended(monkeypatch):
    processes = []
    start = protocol.subprocess.Popen
    monkeypatch.setattr(
        protocol.subprocess,
        "Popen",
        lambda *a, **k: processes.append(start(*a, **k)) or processes[-1],
    )
    asked(monkeypatch, ["hang"])
    patient = protocol.PROBES["hang"]._replace(seconds=10.0)
    monkeypatch.setitem(protocol.PROBES, "a", patient)
    stopped = protocol.ask(["a", "hang"], lambda _: None)
    next(stopped)
    stopped.close()  # as by Ctrl-C
    assert [process.poll() for process in processes] == [-9, -9]


@pytest.mark.parametrize("name", protocol.PROBES)
def test_every_probe_is_a_function_with_a_limit_and_a_remedy(name):
    probe = protocol.PROBES[name]
    module, _, function = probe.run.partition(":")
    module = importlib.import_module(f"jaxrl.experiments.doctor.{module}")
    assert getattr(module, function).__annotations__["return"] is protocol.Answer
    assert 60 <= probe.seconds <= 600
    assert len(probe.remedy) > 20


def test_what_training_needs_follows_the_platform(monkeypatch):
    tpu = changed(platform="tpu")
    assert protocol.PROBES["custom call"].needed(GOOD)
    assert not protocol.PROBES["host callbacks"].needed(GOOD)
    assert protocol.PROBES["host callbacks"].needed(tpu)
    assert not protocol.PROBES["custom call"].needed(tpu)
    assert not protocol.PROBES["overlapped order"].needed(GOOD)
    missing = {"mark": "cross", "text": "cannot be imported", "seconds": 1.0}
    assert doctor.make_check("EnvPool", missing, GOOD).mark == "cross"
    monkeypatch.setattr(sys, "platform", "darwin")  # where Catch is the only game
    elsewhere = doctor.make_check("EnvPool", missing, GOOD)
    assert elsewhere.mark == "warning"
    assert elsewhere.remedy


def test_other_frames_are_a_cross():
    same = {"played": [1, 2, 3]}
    other = {"played": [1, 2, 4]}
    ways = ("EnvPool", "custom call", "host callbacks")

    def check(*answers, on=GOOD):
        return doctor.compare_frames(dict(zip(ways, answers, strict=False)), on)

    assert check(same, same, same).mark == "ok"
    wrong = check(same, other, same)
    assert wrong.text == "custom call and EnvPool differ from step 2 on"
    assert wrong.mark == "cross"
    assert wrong.needed
    assert "--env.interface callback" in wrong.remedy
    assert not check(same, same, other).needed  # which nothing uses here
    assert check(same, {}, other, on=changed(platform="tpu")).needed
    assert check(same, {}, {}).mark == "warning"
    assert check({}, {}, {}).remedy


# --- EnvPool, broken -----------------------------------------------------------------------------

MISSING = "raise ModuleNotFoundError(\"No module named 'envpool'\", name='envpool')\n"
# Imports the real one, and changes what its pools give to compiled programs.
BROKEN = """
import os, signal, sys, time
here = os.path.dirname(__file__)
sys.path.remove(here)
del sys.modules["envpool"]
import envpool
import jax, jax.numpy as jnp
make = envpool.make

def xla(pool, real):
    handle, recv, send, *rest = real()

    def worse(token):
        token, (observation, *others) = recv(token)
        {change}
        return token, (observation, *others)

    return handle, worse, send, *rest

def broken(*arguments, **options):
    pool = make(*arguments, **options)
    real = pool.xla
    pool.xla = lambda: xla(pool, real)
    return pool

envpool.make = broken
"""
CRASH = "jax.debug.callback(lambda _: os.kill(os.getpid(), signal.SIGSEGV), observation)"
HANG = "jax.debug.callback(lambda _: time.sleep(300), observation)"
OTHER = "observation = observation + jnp.uint8(1)"


def ask_with(monkeypatch, tmp_path, envpool):
    """The answers of probes that import another EnvPool."""
    names = ("EnvPool", "custom call", "host callbacks")
    (tmp_path / "envpool.py").write_text(envpool, encoding="utf-8")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    here = changed(platform="cpu")
    answers = dict(protocol.ask(names, lambda _: None))
    checks = {name: doctor.make_check(name, answer, here) for name, answer in answers.items()}
    frames = doctor.compare_frames(answers, here)
    assert all(c.remedy for c in (*checks.values(), frames) if c.mark != "ok")
    return checks, frames


def test_envpool_missing(monkeypatch, tmp_path):
    checks, frames = ask_with(monkeypatch, tmp_path, MISSING)
    assert checks["EnvPool"].mark == "cross"
    assert checks["EnvPool"].needed
    assert "No module named 'envpool'" in checks["EnvPool"].text
    assert "pip install envpool" in checks["EnvPool"].remedy
    assert checks["custom call"].mark == checks["host callbacks"].mark == "warning"
    assert frames.mark == "warning"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(CRASH, "ended by SIGSEGV", id="crashes"),
        pytest.param(HANG, "no answer within 8 s", id="hangs"),
    ],
)
@pytest.mark.slow
def test_a_custom_call_that_does_not_return(change, text, monkeypatch, tmp_path):
    if change == HANG:
        probe = protocol.PROBES["custom call"]._replace(seconds=8.0)
        monkeypatch.setitem(protocol.PROBES, "custom call", probe)
    checks, frames = ask_with(monkeypatch, tmp_path, BROKEN.replace("{change}", change))
    assert checks["EnvPool"].mark == "ok"
    assert checks["custom call"].mark == "cross"
    assert checks["custom call"].needed
    assert text in checks["custom call"].text
    assert "--env.interface callback" in checks["custom call"].remedy
    assert checks["host callbacks"].mark == "ok"
    assert frames.text == "40 steps of 2 ways: EnvPool, host callbacks"


@pytest.mark.slow
def test_a_custom_call_with_other_frames(monkeypatch, tmp_path):
    checks, frames = ask_with(monkeypatch, tmp_path, BROKEN.replace("{change}", OTHER))
    assert {check.mark for check in checks.values()} == {"ok"}
    assert frames.mark == "cross"
    assert frames.needed
    assert frames.text == "custom call and EnvPool differ from step 0 on"


def test_frames_that_stand_still_are_a_cross():
    assert emulators.played([7] * emulators.NUM_STEPS, "x")["mark"] == "cross"
    assert emulators.played([*range(emulators.NUM_STEPS)], "x")["mark"] == "ok"


# --- gradients, order, learning ------------------------------------------------------------------


def test_without_a_gpu_threads_play():
    found = protocol.run("Atari 2600 on GPU")
    assert found == {"mark": "ok", "text": "no NVIDIA GPU (cpu): threads play"}
    found = protocol.run("Atari 2600 stream")
    assert found == {"mark": "ok", "text": "no NVIDIA GPU (cpu): none is needed"}


ANY_GAME = np.arange(2 * 1500, dtype=np.uint8).reshape(2, 1500)  # bytes of two snapshots


@pytest.mark.parametrize("spoiled", ["", *TimeStep._fields, "game", "bus"])
def test_a_gpu_is_compared_with_threads_step_by_step(monkeypatch, spoiled):
    """`emulators` plays three times; here only the 32 games of a warp are not the same."""
    number, frames = np.zeros((40, 2), np.float32), np.zeros((40, 2, 3, 3), np.uint8)
    rows, games = TimeStep(frames, *[number] * 2, *[number > 0] * 4), ANY_GAME
    other, other_games = {name: row.copy() for name, row in rows._asdict().items()}, games.copy()
    if spoiled in other:
        other[spoiled][30, 1] = 1
    other_games[1, 460 if spoiled == "bus" else 462] += spoiled in ("bus", "game")

    def play(config, games_per_warp=0):
        assert (games_per_warp > 0) == (config.env.interface == "xla")
        return (TimeStep(**other), other_games) if games_per_warp == 32 else (rows, games)

    monkeypatch.setattr(emulators, "plays_on_gpu", lambda env: True)
    monkeypatch.setattr(emulators, "_play", play)
    found = protocol.run("Atari 2600 on GPU")
    assert found["mark"] == ("ok" if spoiled in ("", "bus") else "cross")
    said = {"": "equal the threads'", "bus": "equal", "game": "after the last step differ"}
    assert (
        said.get(spoiled, f"{spoiled} differs from the threads' games from step 30")
        in found["text"]
    )
    assert found["mark"] == "ok" or "pong, 32 in a warp" in found["text"]


def test_the_games_that_are_compared_end_and_are_reset():
    config = emulators._pong("callback", "atari2600").replaced(env=emulators.GPU_RULES)
    assert config.env.noop_max == 4  # by default a reset plays up to 30 frames, at 7 ms on a card
    rows, _ = emulators._play(config)
    for name in ("truncated", "game_over", "reset"):
        assert getattr(rows, name).any(axis=0).all()


@pytest.mark.parametrize(
    ("factor", "mark"),
    [(1.0, "ok"), (1.0003, "warning"), (1.1, "cross"), (float("nan"), "cross")],
)
def test_wrong_gradients_are_a_cross(factor, mark, monkeypatch):
    right = layer
    monkeypatch.setattr(gradients, "TORSOS", ("nips",))
    monkeypatch.setattr(layers, "layer", lambda *a: right(*a) * factor)
    found = protocol.run("gradients")
    assert found["mark"] == mark
    assert "nips" in found["text"]


SCHEDULE = """HloModule jit_run, is_scheduled=true

%fused (x: f32[]) -> f32[] {
  ROOT %dot.1 = f32[] dot(%x), metadata={op_name="jit(run)/jaxrl_update/transpose(jvp(N))/dot_general"}
}

%body (x: f32[]) -> f32[] {
  %zeros = f32[] fusion(), metadata={op_name="jit(run)/jaxrl_update/transpose(jvp())/broadcast"}
  %a = f32[] custom-call(), custom_call_target="pool_1_recv"
  %b = f32[] custom-call(), custom_call_target="pool_1_send"
  %c = f32[] fusion(), metadata={op_name="jit(run)/jaxrl_update/transpose(jvp(N))/dot_general"}
}
"""  # noqa: E501


def test_the_schedule_is_read():
    assert probes.read_schedule(SCHEDULE) is True
    lines = SCHEDULE.splitlines()
    lines[-3], lines[-2] = lines[-2], lines[-3]  # the gradient before the send
    assert probes.read_schedule("\n".join(lines)) is False
    assert probes.read_schedule(SCHEDULE.replace("is_scheduled=true", "")) is None
    assert probes.read_schedule(SCHEDULE.replace("pool_1_send", "other")) is None
    assert probes.read_schedule("") is None


@pytest.mark.slow
def test_an_order_that_xla_does_not_keep_is_a_cross(monkeypatch):
    monkeypatch.setattr(rollout, "_after", lambda value, _: value)
    found = protocol.run("overlapped order")
    assert found["mark"] == "cross"
    assert found["text"] == "the emulators wait for the update: read in XLA's schedule"


@pytest.mark.slow
def test_the_order_is_observed_where_the_schedule_cannot_be_read(monkeypatch):
    monkeypatch.setattr(probes, "has_custom_call", lambda: False)
    found = protocol.run("overlapped order")
    assert found["mark"] == "ok"
    assert "observed" in found["text"]


def test_a_seed_is_named_with_those_that_failed_before_it():
    assert probes._tried(1) == "seed 1"
    assert probes._tried(3) == "seed 3 (not solved with 1 and 2)"


@pytest.mark.slow
def test_an_agent_that_does_not_learn_is_a_cross(monkeypatch):
    monkeypatch.setattr(probes, "ATTEMPT_STEPS", 800)
    found = protocol.run("learning")
    assert found["mark"] == "cross"
    assert "not solved" in found["text"]
    assert "seed 3" in found["text"]  # none was left
    monkeypatch.setattr(probes, "LEARNING_SECONDS", 0.0)
    slow = protocol.run("learning")
    assert slow["mark"] == "warning"
    assert slow["remedy"]


def test_learning_is_planned_for_every_device(monkeypatch):
    """16 environments, four on each of four."""
    planned = []

    def make_program(plan, _agent, _engines, mesh):
        planned.append((plan.num_devices, plan.envs_per_device, mesh.size))
        raise RuntimeError("that will do")

    monkeypatch.setattr(probes, "make_mesh", lambda _: make_mesh(4))
    monkeypatch.setattr(probes, "make_program", make_program)
    assert protocol.run("learning")["text"] == "RuntimeError: that will do"
    assert planned == [(4, 4, 4)]


def test_an_error_is_an_answer(monkeypatch):
    def fail():
        raise RuntimeError("no\nsuch driver")

    monkeypatch.setattr(probes, "learning", fail)
    found = protocol.run("learning")
    assert found == {"mark": "cross", "text": "RuntimeError: no such driver"}


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def page(monkeypatch, capsys):
    """Runs the command with these checks; its status and what it printed."""

    def run(checks, *options):
        monkeypatch.setattr(doctor_command, "describe_apart", lambda: GOOD)
        monkeypatch.setattr(doctor_command, "diagnose", lambda *_: (check for check in checks))
        status = main(["doctor", *options])
        return status, capsys.readouterr().out

    return run


WELL = Check("devices", "ok", "cpu: 1 x cpu", needed=True)
SLOW = Check("cores", "warning", "1 core", "give it more")
LATE = Check("overlapped order", "cross", "the emulators wait", "train strictly", seconds=3.2)
FULL = Check("disk", "cross", "[bold]no space", "make room", needed=True)


def test_the_page_and_its_status(page):
    status, said = page([WELL, SLOW, LATE])
    assert status == 0
    assert said.splitlines()[:-1] == [
        "✓ devices           cpu: 1 x cpu",
        "! cores             1 core",
        "                    -> give it more",
        "✗ overlapped order  the emulators wait (3 s)",
        "                    -> train strictly",
    ]
    assert said.splitlines()[-1].startswith("training works here (")
    status, said = page([WELL, FULL, SLOW])
    assert status == 1
    assert "✗ disk              [bold]no space" in said
    assert said.splitlines()[-1].startswith("training does not work here: disk (")


def test_the_page_in_colors_and_in_ascii(page, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = page([FULL])[1]
    assert "\x1b[1;31m" in said
    assert "[bold]no space" in said
    monkeypatch.delenv("FORCE_COLOR")
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    page([WELL, FULL])
    assert output.buffer.getvalue().startswith(b"+ devices")


def test_json_is_one_object(page):
    status, said = page([WELL, SLOW, FULL], "--json")
    assert status == 1
    found = json.loads(said)
    assert found["machine"] == dataclasses.asdict(GOOD)
    assert found["trains"] is False
    assert [check["mark"] for check in found["checks"]] == ["ok", "warning", "cross"]
    assert set(found["checks"][0]) == {"name", "mark", "text", "remedy", "needed", "seconds"}
    assert json.loads(page([WELL], "--json")[1])["trains"] is True


@pytest.mark.slow
@pytest.mark.optimized  # learning is given two minutes
def test_all_of_it_here(tmp_path, capsys):
    assert main(["doctor", "--json", "--root", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in found["checks"]}
    assert len(checks) == 17
    assert checks["replays"]["mark"] in ("ok", "warning")
    for check in checks.values():
        assert check["mark"] == "ok" or check["remedy"]
    probed = [*protocol.PROBES, "equal frames", "disk", "devices"]
    assert {name: checks[name]["mark"] for name in probed} == dict.fromkeys(probed, "ok")
    assert checks["learning"]["text"].endswith("solved")
    assert found["trains"]
    assert list(tmp_path.iterdir()) == []
