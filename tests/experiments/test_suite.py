"""`jaxrl bench --suite`: its members as data, and a runner that survives whatever they do.

The members that run here are small programs of Python, not measurements.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from jaxrl.cli.bench import Bench
from jaxrl.cli.main import main
from jaxrl.cli.parsing import parse
from jaxrl.cli.suite import _only_left
from jaxrl.cli.train import Train
from jaxrl.config import toml
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml
from jaxrl.errors import RunError, UserError
from jaxrl.experiments.runner import SignalRelay
from jaxrl.experiments.suite import plan
from jaxrl.experiments.suite import run as suite_run
from jaxrl.experiments.suite.plan import FULL, SMALL, SuiteMember
from jaxrl.experiments.suite.records import (
    PARTS,
    Record,
    check_output,
    counted,
    expected,
    queue,
    read,
    write,
)
from jaxrl.experiments.suite.result import score_of
from jaxrl.experiments.suite.run import SuiteCall, _identity, _unseen, probe, settle
from jaxrl.experiments.suite.table import LONGEST, _cells, _score_cells, markdown
from jaxrl.runs.lock import hold_directory
from jaxrl.training.display import Display
from tests.survival import ROOT
from tools import suite_page
from tools.pages import marked_section
from tools.suite_page import section, take_in

MACHINE = {
    "date": "2026-11-22T10:00:00+00:00", "platform": "cpu", "device_kind": "cpu", "num_devices": 1,
    "device_memory_gb": None, "driver": None, "cpu": "Some CPU", "cores": 2, "python": "3.11.7",
    "versions": {"jax": "0.10.2"}, "commit": "a" * 40,
}  # fmt: skip
GPU = MACHINE | {"platform": "gpu", "device_kind": "Some GPU", "device_memory_gb": 60.0}
# A stand-in for `jaxrl`: what it does is its first argument; it notes that it was started.
FAKE = textwrap.dedent("""
    import json, os, pathlib, signal, subprocess, sys, time
    what, *options = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with open("started", "a") as file:
        file.write(what + "\\n")
    if what == "rate" or what == "sleep" and os.path.exists("awake"):
        rate = {"steps_per_second": 1200.0, "lowest": 1100.0, "highest": 1300.0, "share": 1.0}
        train = {"steps_per_second": 900.0, "lowest": 850.0, "highest": 950.0, "share": 0.75}
        print(json.dumps({"num_envs": 4, "loop": rate, "training": train, "time_shares": {}}))
    elif what == "die":
        sys.exit("Traceback\\nboom: no memory | at all")
    elif what == "exhaust":  # as JAX does, which leaves its note out where it is asked to
        print("jaxlib.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory", file=sys.stderr)
        print("  buffer 1: 60 GB\\n" * 2000, file=sys.stderr)
        sys.exit("filtering " + os.environ["JAX_TRACEBACK_FILTERING"])
    elif what == "raise":
        print("jaxrl: warning: slow", file=sys.stderr)
        sys.exit("ValueError: wrong shape\\nFor simplicity, JAX has removed its frames")
    elif what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "mute":
        pass
    elif what == "sleep":
        print("waiting for a device", file=sys.stderr, flush=True)
        time.sleep(600)
    elif what == "hang":  # with a child, and deaf to SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(
            [sys.executable, "-c", "import signal, time;"
             "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
        with open("child", "w") as file:
            file.write(str(child.pid))
        print("stuck in a driver", file=sys.stderr, flush=True)
        time.sleep(600)
    elif what == "learn":
        run_dir = pathlib.Path(options[options.index("--run-dir") + 1])
        run_dir.mkdir()
        (run_dir / "config.toml").write_text("num_envs = 16")
        with open(run_dir / "metrics.jsonl", "w") as file:
            for step, games, mean in ((1000, 40, 19.0), (2000, 120, -3.5), (3000, 130, 18.5)):
                first = {"compile_seconds": 2.5} if step == 1000 else {}
                file.write(json.dumps({"step": step, "frames": 4 * step, "seconds": step / 100,
                    "return_mean": mean, "episodes": games, **first}) + "\\n")
                if "slowly" in options and games == 120:
                    break
        time.sleep(600)
""")


def member(name, what="rate", seconds=0.1, limit=20.0, kind="rates", options=()):
    return SuiteMember(name, (what, *options), seconds, limit, kind)


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    """Members are the stand-in, and everything lies in a new directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite_run, "PROGRAM", (sys.executable, "-c", FAKE))
    return tmp_path


def run(members, minutes=1.0, grace=0.2, stop=None, only=None, machine=MACHINE):
    output = Path("suite")
    deadline = time.monotonic() + 60 * minutes
    call = SuiteCall(output, "small", machine, deadline, stop or SignalRelay(), grace)
    with hold_directory(output, "--output", PARTS):
        return suite_run.run(members, call, Display(), only)


def started():
    return Path("started").read_text().split() if Path("started").exists() else []


def results():
    return json.loads(Path("suite/results.json").read_text())


def table():
    return Path("suite/results.md").read_text()


def gone(pid):
    """Whether a process has ended; init may not have reaped it yet."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


# --- the members ----------------------------------------------------------------------------------


def test_the_members_in_their_order():
    names = [one.name for one in plan.plan(FULL)]
    assert names == [
        "vtrace", "vtrace-strict", "vtrace-groups-2", "vtrace-bfloat16", "vtrace-120", "vtrace-240",
        "vtrace-480", "vtrace-2400", "a2c_fast", "ppo", "c51_large", "dqn_large", "rainbow", "btr",
        "pqn", "impala", "engine-xla", "engine-callback", "ga3c", "ga3c-stride-3", "ga3c-stride-2",
        "ga3c-stride-1", "pong-vtrace", "pong-ppo", "pong-pqn",
    ]  # fmt: skip
    small = [one.name for one in plan.plan(SMALL)]
    cut = {
        "vtrace-120",
        "vtrace-240",
        "vtrace-480",
        "vtrace-2400",
        "ga3c-stride-3",
        "ga3c-stride-1",
    }
    assert [name for name in small if name not in ("vtrace-40",)] == [
        name for name in names if name not in cut
    ]
    assert "vtrace-40" in small
    # In nine minutes, with some room, which the table and the end of each member take.
    assert sum(one.seconds for one in plan.plan(SMALL)) < 7.5 * 60


@pytest.mark.parametrize(
    ("present", "tried"), [(1, []), (2, [1, 2]), (6, [1, 2, 4]), (8, [1, 2, 4, 8])]
)
def test_several_devices_are_tried_where_they_are(present, tried):
    plans = {size.name: plan.plan(size, present) for size in (FULL, SMALL)}
    for members in plans.values():
        shown = [one for one in members if one.name.startswith("devices-")]
        assert [one.name for one in shown] == [f"devices-{number}" for number in tried]
        assert members[len(members) - len(shown) :] == shown
        # By itself `jaxrl` would take every device.
        assert all(("--parallel.num-devices" in one.arguments) == (present > 1) for one in members)


@pytest.mark.parametrize("size", [FULL, SMALL])
@pytest.mark.parametrize("place", range(36))
def test_every_member_is_a_command_that_would_run(size, place, monkeypatch):
    """No member is refused on the first GPU for a key that is misspelled or does not divide."""
    monkeypatch.chdir(ROOT)
    members = plan.plan(size, 8, gpu=True)
    if place >= len(members):
        pytest.skip("fewer members")
    one = members[place]
    command, *arguments = one.arguments
    kind = {"bench": Bench, "train": Train}[command]
    extra = _unseen(one, Path("runs/x"))
    parsed = parse(kind, command, [*arguments, *extra])
    number = parsed.settings.parallel.num_devices
    assert parsed.settings.game == "pong"
    resolve(parsed.settings, number)
    assert one.command.startswith(f"jaxrl {command} --config ")
    assert (command == "train") == (one.kind == "score")
    assert one.seconds < one.limit < 9 * 60
    if command == "bench":
        assert parsed.json
        assert "training" in parsed.loads or "emulation" in parsed.loads
    else:
        assert parsed.settings.evaluation.episodes == 0


def test_the_custom_call_is_measured_where_it_is():
    rocm = GPU | {"versions": {"jax": "0.10.2", "jax-rocm7-plugin": "0.10.2"}}
    for machine, present in ((MACHINE, True), (GPU, True), (rocm, False), (
        GPU | {"platform": "tpu"}, False)):  # fmt: skip
        assert plan.custom_call(machine) == present
        names = [one.name for one in plan.plan(FULL, 1, plan.custom_call(machine))]
        assert ("engine-xla" in names) == present
        assert "engine-callback" in names
    interfaces = [one for one in plan.plan(FULL) if one.name.startswith("engine-")]
    assert all("--env.engine envpool" in one.command for one in interfaces)


def test_every_place_was_parsed():
    assert max(len(plan.plan(size, 8, gpu=True)) for size in (FULL, SMALL)) == 36


def test_our_emulator_is_measured_on_a_gpu_where_there_is_one():
    """Its kernels with ever more games, and its threads by callbacks and on the stream."""
    everywhere = {one.name for one in plan.plan(FULL)}
    on_gpu = [one for one in plan.plan(FULL, gpu=True) if one.name not in everywhere]
    assert [one.name for one in on_gpu] == [
        "atari2600-threads", "atari2600-stream", "atari2600-gpu-1024", "atari2600-gpu-4096",
        "atari2600-gpu-16384", "atari2600-gpu-59136", "atari2600-gpu-65536",
    ]  # fmt: skip
    assert "--env.interface callback" in on_gpu[0].command
    assert "--env.interface stream" in on_gpu[1].command
    assert all("--loads loop emulation" in one.command for one in on_gpu[:2])
    assert all("--env.interface xla" in one.command for one in on_gpu[2:])
    assert all("--env.engine atari2600" in one.command for one in on_gpu)


def test_the_size_follows_the_platform(monkeypatch, capsys):
    assert plan.size_of("auto", "cpu") is SMALL
    for platform in ("gpu", "cuda", "rocm", "tpu", "METAL"):
        assert plan.size_of("auto", platform) is FULL
    assert plan.size_of("small", "gpu") is SMALL
    assert plan.size_of("full", "cpu") is FULL
    monkeypatch.chdir(ROOT)
    for machine, envs in ((MACHINE, 20), (GPU, 1200)):
        monkeypatch.setattr(suite_run, "probe", lambda machine=machine: machine)
        assert main(["bench", "--suite", "--list", "--only", "vtrace", "--output", "none"]) == 0
        shown = capsys.readouterr().out
        assert f"--num-envs {envs} " in shown
        assert "\nreplays: cannot be determined" in shown  # these machines have no memory
    roomy = MACHINE | {"host_memory_free_gb": 16.0}
    monkeypatch.setattr(suite_run, "probe", lambda: roomy)
    assert main(["bench", "--suite", "--list", "--only", "btr", "--output", "none"]) == 0
    shown = capsys.readouterr().out
    assert "\nreplays: btr needs 14.8 GB of host memory, half of it for checkpoints, and" in shown
    assert "-> --checkpoint.no-memory (7.4 GB)" in shown


def test_a_machine_without_devices_ends_in_one_line(monkeypatch, capsys):
    broken = dataclasses.make_dataclass("M", ["platform", "device_error"])(None, "no CUDA")
    monkeypatch.setattr(suite_run, "describe_apart", lambda: broken)
    with pytest.raises(RunError, match="no CUDA"):
        probe()
    assert main(["bench", "--suite"]) == 1
    assert capsys.readouterr().err == "jaxrl: JAX has no devices (no CUDA): see `jaxrl doctor`\n"


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_others_go_on_when_one_dies_or_hangs():
    members = [
        member("first"), member("dies", "die"), member("crashes", "crash"),
        member("hangs", "hang", limit=4.0), member("mute", "mute"), member("last"),
    ]  # fmt: skip
    began = time.monotonic()
    records = run(members)
    assert time.monotonic() - began < 60
    states = {name: record.state for name, record in records.items()}
    assert states == {
        "first": "done", "dies": "failed", "crashes": "failed", "hangs": "failed",
        "mute": "failed", "last": "done",
    }  # fmt: skip
    assert records["dies"].reason == "status 1: boom: no memory | at all"
    assert records["crashes"].reason == "SIGSEGV: no word"
    assert records["hangs"].reason == "no end within 4 s: stuck in a driver"
    assert records["mute"].reason == "printed no result"
    assert gone(int(Path("child").read_text()))
    assert "status 1: boom: no memory \\| at all" in table()
    # Once more in the next call, after what is new; then no more, but for those that are named.
    Path("started").unlink()
    run([*members, member("new")])
    assert started() == ["rate", "die", "crash", "hang", "mute"]
    Path("started").unlink()
    run(members)
    assert started() == []
    run(members, only=[members[1]])
    assert started() == ["die"]


def test_a_failure_is_named_with_its_error():
    records = run([member("gpu", "exhaust"), member("shape", "raise")])
    assert records["gpu"].reason == (
        "status 1: jaxlib.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory"
    )
    assert Path("suite/logs/gpu.log").read_text().endswith("filtering off\n")
    assert records["shape"].reason == "status 1: ValueError: wrong shape"


def test_named_members_are_repeated_and_keep_what_they_have():
    one = member("one")
    run([one])
    records = run([one], only=[one])
    assert started() == ["rate", "rate"]
    assert records["one"].attempts == 1
    # Stopped while it is repeated, it keeps its result.
    again = dataclasses.replace(records["one"], command="jaxrl sleep")
    write(Path("suite"), again)
    slow = member("one", "sleep")
    assert run([slow], only=[slow], minutes=3 / 60)["one"] == again
    assert started() == ["rate", "rate", "sleep"]
    # What is done is not named again by the line that says how to go on.
    words = ["--suite", "--only", "one", "two", "--minutes", "9"]
    assert _only_left(words, ["two"]) == ["--suite", "--minutes", "9", "--only", "two"]
    assert _only_left(["--suite"], ["two"]) == ["--suite"]
    # A record of an older command is none.
    assert counted(one, {"one": again}) is None


def test_the_deadline_is_kept():
    slow = member("slow", "sleep", seconds=0.5, limit=60)
    long = member("long", seconds=50.0)
    began = time.monotonic()
    records = run([slow, long, member("short")], minutes=5 / 60, grace=0.5)
    assert time.monotonic() - began < 30  # not its 50
    assert started() == ["sleep"]  # nothing fits beside it
    assert (records["slow"].state, records["slow"].attempts) == ("stopped", 0)
    assert records["slow"].reason == "the time was up"
    # What does not fit is passed over for what does.
    records = run([long, member("short")], minutes=10 / 60)
    assert started() == ["sleep", "rate"]
    assert "long" not in records
    assert "Not measured yet: long." in table()
    # What was stopped has not failed: it is as good as new.
    assert queue([long, slow], records) == [long, slow]


def test_the_pace_of_the_machine_counts():
    members = [member("a", seconds=10.0), member("b", seconds=20.0), member("c", kind="score")]
    record = Record("a", "rates", "small", "", "done", 1, "2026-11-22", None, {}, seconds=25.0)
    assert expected(members[1], members, {}) == 20.0
    assert expected(members[1], members, {"a": record}) == 50.0
    assert expected(members[2], members, {"a": record}) == members[2].seconds


def test_training_that_was_stopped_needs_more_than_it_had():
    """Else it would begin and be stopped at the end of every call."""
    one = member("c", "learn", seconds=10.0, limit=40.0, kind="score")
    record = Record("c", "score", "small", one.command, "stopped", 0, "2026-11-22", None, {})
    for ran, needed in ((4.0, 10.0), (20.0, 30.0), (35.0, 40.0)):
        stopped = {"c": dataclasses.replace(record, seconds=ran)}
        assert expected(one, [one], stopped) == needed
        done = {"c": dataclasses.replace(record, seconds=ran, state="done")}
        assert expected(one, [one], done) == 10.0


def script(tmp_path, body):
    """A suite in a process that can be signalled."""
    path = tmp_path / "call.py"
    path.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from jaxrl.experiments.suite import plan, records, run\n"
        "from jaxrl.cli.main import main\n"
        "from jaxrl.experiments.suite.plan import SuiteMember as Member\n"
        f"run.PROGRAM = (sys.executable, '-c', {FAKE!r})\n"
        "def probe():\n"
        "    states = [record.state for record in records.read(Path('suite')).values()]\n"
        "    assert 'begun' not in states, 'an orphan may hold the memory of the devices'\n"
        f"    return {MACHINE!r}\n"
        "run.probe = probe\n"
        "run.GRACE = 0.5\n"
        "def member(name, what, seconds=0.1):\n"
        f"    config = ('--config', {str(ROOT / 'configs/a2c/a2c_fast.toml')!r})\n"
        "    return Member(name, (what, *config), seconds, 60.0, 'rates')\n"
        f"plan.plan = lambda *_: {body}\n"
        "sys.exit(main(['bench', '--suite', *sys.argv[1:]]))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def running():
    """The record of the second member, if it is in progress."""
    record = read(Path("suite")).get("two")
    return record if record and record.state == "begun" and record.process else None


MEMBERS = "[member('one', 'rate'), member('two', 'sleep'), member('three', 'rate')]"


@pytest.mark.slow
def test_a_suite_that_is_killed_goes_on_without_repeating(tmp_path):
    process = script(tmp_path, MEMBERS)
    wait_for(lambda: running() and "sleep" in started())
    process.kill()
    process.communicate()
    orphan = int(running().process["pid"])
    assert psutil.pid_exists(orphan)
    assert started() == ["rate", "sleep"]
    assert read(Path("suite"))["one"].state == "done"
    # The same again, where the second ends well; it comes last.
    Path("awake").touch()
    process = script(tmp_path, MEMBERS)
    assert process.communicate()[1] is not None
    assert process.returncode == 0
    assert gone(orphan)
    assert started() == ["rate", "sleep", "rate", "sleep"]
    assert [row["state"] for row in results()["members"]] == ["done"] * 3


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_a_signal_ends_it_cleanly(tmp_path, number, status):
    process = script(tmp_path, MEMBERS)
    wait_for(running)
    pid = int(running().process["pid"])
    process.send_signal(number)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == status
    assert gone(pid)
    assert "Traceback" not in errors
    assert "training 900" in out
    assert "left: three, two; go on with: jaxrl bench --suite" in errors
    assert [row["state"] for row in results()["members"]] == ["done", "stopped", "new"]
    assert "Not measured yet: two, three." in table()


def test_a_killed_suite_counts_as_an_attempt():
    """What takes the suite down with it, as a machine that runs out of memory, comes last."""
    run([member("a")])
    record = dataclasses.replace(read(Path("suite"))["a"], state="begun", process={})
    write(Path("suite"), record)
    members = [member("a"), member("b")]
    records = read(Path("suite"))
    assert [one.name for one in queue(members, records)] == ["b", "a"]
    second = dataclasses.replace(record, attempts=2)
    assert [one.name for one in queue(members, {"a": second})] == ["b"]
    # Another process has the number of one that has ended.
    other = dataclasses.replace(second, process={"pid": os.getpid(), "created": 1.0})
    write(Path("suite"), other)
    settle(Path("suite"))
    settled = run(members)["a"]
    assert (settled.state, settled.reason) == ("failed", "its suite was killed while it ran")
    assert "| a | failed | its suite was killed while it ran |" in table()
    settle(Path("none"))
    assert not Path("none").exists()


def test_an_orphan_has_ended_when_the_next_begins():
    run([member("a")])
    orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
    record = read(Path("suite"))["a"]
    process = _identity(orphan.pid)
    write(Path("suite"), dataclasses.replace(record, state="begun", process=process))
    settle(Path("suite"))
    assert orphan.poll() == -signal.SIGKILL


# --- scores ---------------------------------------------------------------------------------------


def test_training_ends_where_it_reaches_the_score():
    records = run([member("pong", "learn", kind="score", limit=30)])
    found = records["pong"]
    assert found.state == "done"
    assert found.seconds < 20
    # 19.0 at step 1,000 was the mean of 40 games.
    assert (found.result["step"], found.result["seconds"]) == (3000, 30.0)
    assert found.result["compile_seconds"] == 2.5
    assert "after 3,000 steps, 30 s of training" in table()


@pytest.mark.slow
def test_a_score_that_is_not_reached_is_a_result():
    slowly = member("pong", "learn", kind="score", limit=4.0, options=("slowly",))
    found = run([slowly])["pong"]
    assert (found.state, found.result["step"], found.result["best"]) == ("done", None, -3.5)
    assert "not reached: -3.5 at best in 2,000 steps, 20 s of training" in table()
    run([member("none", "sleep", kind="score", limit=3.0)])
    reason = "no end within 3 s: waiting for a device"  # not its word at the end
    assert read(Path("suite"))["none"].reason == reason
    # Cut short by the end of the call, it trains from nothing; what it left is removed.
    again = dataclasses.replace(slowly, name="again", limit=60.0)
    assert run([again], minutes=5 / 60)["again"].state == "stopped"
    Path("suite/runs/again/checkpoint").touch()
    run([again], minutes=10 / 60)
    assert started().count("learn") == 3
    assert sorted(p.name for p in Path("suite/runs").iterdir()) == ["again", "pong"]
    assert not Path("suite/runs/again/checkpoint").exists()


def test_means_of_first_games_do_not_count(tmp_path):
    """As in every other figure: of 60 environments, the first 2 x 60 games favor short ones."""
    rows = [{"step": 1, "episodes": 110, "return_mean": 19.0, "compile_seconds": 1.0},
            {"step": 2, "episodes": 120, "return_mean": 18.5}]  # fmt: skip
    lines = [json.dumps({"frames": 4, "seconds": 1.0} | row) + "\n" for row in rows]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    found = score_of(tmp_path)
    assert (found["step"], found["unknown"]) == (None, "config.toml does not say num_envs")
    assert _score_cells(found)[1] == "unknown: config.toml does not say num_envs"
    # Also as another version of jaxrl has left it.
    for text in (to_toml(Config(num_envs=60)), "num_envs = 60\nlog_interval = 5\n"):
        (tmp_path / "config.toml").write_text(text)
        found = score_of(tmp_path)
        assert (found["step"], found["unknown"]) == (2, "")


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "vtrase"], "--only vtrase: no member of the suite; known are vtrace, "),
        (["--only", "atari2600-stream"], "no member of the suite on this machine (needs an NVIDIA"),
        (["--only"], "--only needs names"),
        (["--minutes", "0"], "minutes = 0.0: must be at least 0.01"),
        (["--minutes", "soon"], "--minutes"),
        (["--size", "huge"], "auto"),
        (["--config", "configs/a2c/a2c.toml"], "--config"),
        (["--output", "file"], "'file' is not a directory"),
        (["--output", "other"], "'other' holds no suite"),
    ],
)
def test_mistakes_end_in_one_line_and_status_two(options, message, monkeypatch, capsys, fake):
    monkeypatch.setattr(suite_run, "probe", lambda: MACHINE)
    (fake / "configs").symlink_to(ROOT / "configs")
    (fake / "file").write_text("")
    (fake / "other").mkdir()
    (fake / "other" / "thesis.tex").write_text("")
    assert main(["bench", "--suite", *options]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not Path("suite").exists()


def test_it_says_where_the_configurations_are_missing(monkeypatch, capsys):
    monkeypatch.setattr(suite_run, "probe", lambda: MACHINE)
    monkeypatch.setattr(toml, "FOLDERS", (Path("configs"),))
    assert main(["bench", "--suite"]) == 2
    assert "no configuration file 'vtrace'" in capsys.readouterr().err


def test_results_of_another_machine_or_size_are_not_mixed():
    run([member("a")])
    check_output(Path("suite"), "small", MACHINE)
    with pytest.raises(UserError, match="of another machine"):
        check_output(Path("suite"), "small", GPU)
    with pytest.raises(UserError, match="--size small"):
        check_output(Path("suite"), "full", MACHINE)
    Path("suite/members/a.json").write_text("{torn")
    assert read(Path("suite")) == {}
    with (
        hold_directory(Path("suite"), "--output", PARTS),
        pytest.raises(UserError, match="--output"),
        hold_directory(Path("suite"), "--output", PARTS),
    ):
        pass


def test_an_accelerator_that_jax_does_not_use_is_no_cpu(monkeypatch, capsys, fake):
    (fake / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setattr(suite_run, "probe", lambda: MACHINE | {"driver": "570.1"})
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    command = ["bench", "--suite", "--list"]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        "jaxrl: JAX does not use the accelerator: see `jaxrl doctor`, or add --size small\n"
    )
    assert main([*command, "--size", "small"]) == 0
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert main(command) == 0


def test_the_list_says_how_far_the_members_are(monkeypatch, capsys, fake):
    (fake / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setattr(suite_run, "probe", lambda: MACHINE)
    first, second = plan.plan(SMALL)[:2]
    run([member("vtrace"), member("vtrace-strict")])
    record = read(Path("suite"))["vtrace"]
    write(Path("suite"), dataclasses.replace(record, command=first.command))
    assert main(["bench", "--suite", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["1", "done"]
    assert second.name == "vtrace-strict"
    assert lines[1].split()[:2] == ["2", "new"]  # its record is of another command


def test_help_leads_to_the_suite(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--suite", "--help"])
    assert "--minutes" in capsys.readouterr().out


# --- the tables -----------------------------------------------------------------------------------


def test_the_table_says_what_was_measured_where():
    run([member("a"), member("b", "die"), member("c", "learn", kind="score")], machine=GPU)
    row = read(Path("suite"))["a"]
    write(Path("suite"), dataclasses.replace(row, commit="b" * 40))
    run([member("a"), member("b", "die"), member("c", "learn", kind="score")], machine=GPU)
    lines = table().splitlines()
    assert lines[2] == (
        "Machine: 1 x Some GPU, 60 GB each for JAX, 2 cores of Some CPU. Versions: Python 3.11.7, "
        f"jax 0.10.2. Commit aaaaaaa, {row.date}, size small. Members are measured one "
        "after another, minutes apart: only their shares compare."
    )
    assert (
        "| a (commit bbbbbbb) | training | 900 | 850 to 950 | 0.75 of 1,200 | `jaxrl rate` |"
        in lines
    )
    assert any(line.startswith("| b | failed | status 1: boom") for line in lines)
    assert any(line.startswith("| c | mean of 100 games 18 | after 3,000 steps") for line in lines)
    assert all(line.count(" | ") == 5 for line in lines if line.startswith("| a"))
    found = results()
    assert found["machine"]["device_kind"] == "Some GPU"
    assert [r["name"] for r in found["members"]] == ["a", "b", "c"]
    assert found["members"][0]["result"]["training"]["highest"] == 950


def test_rows_of_other_versions_are_marked():
    run([member("a"), member("b")])
    old = {"versions": {"jax": "0.9.0", "flax": "0.12.8"}, "driver": "570.1"}
    row = read(Path("suite"))["a"]
    write(Path("suite"), dataclasses.replace(row, machine=MACHINE | old))
    run([member("a"), member("b")])
    assert "\n| a (driver 570.1, jax 0.9.0, flax 0.12.8) | training |" in table()
    assert "\n| b | training |" in table()
    # The other way round: what the newer ones have and the older had not.
    write(Path("suite"), row)
    run([member("a")], machine=MACHINE | old)
    assert "\n| a (no driver, jax 0.10.2, no flax) | training |" in table()


def test_one_repeat_has_no_spread():
    rate = {"steps_per_second": 631.0, "lowest": 631.0, "highest": 631.0, "share": 0.5}
    loop = rate | {"steps_per_second": 1262.0}
    row = {"kind": "rates", "result": {"loop": loop, "training": rate}}
    assert list(_cells(row)) == [("training", "631", "-", "0.50 of 1,262")]


def test_a_part_of_a_suite_keeps_the_rows_of_before(fake):
    folder = fake / "measurements"
    whole = [member("a"), member("b"), member("c"), member("d", "die")]
    run(whole)
    path = take_in(Path("suite"), folder, "GPU")
    shutil.rmtree("suite")
    newer = MACHINE | {"commit": "b" * 40, "versions": {"jax": "0.11.0"}}
    run([member("a"), member("b", "die"), member("c", "die"), member("d")], machine=newer,
        only=[member("a")])  # fmt: skip
    take_in(Path("suite"), folder, "GPU")
    rows = json.loads(path.read_text())["members"]
    # b is another command now, as c is; d was none.
    assert [row["state"] for row in rows] == ["done", "new", "new", "new"]
    run(whole, machine=newer, only=[member("d", "die")])
    path.unlink()
    shutil.rmtree("suite")
    run(whole)
    take_in(Path("suite"), folder, "GPU")
    for name in "bcd":
        Path(f"suite/members/{name}.json").unlink()
    run(whole, machine=newer, only=[member("a")])
    take_in(Path("suite"), folder, "GPU")
    found = json.loads(path.read_text())
    assert [row["state"] for row in found["members"]] == ["done", "done", "done", "new"]
    shown = markdown(found)
    assert "\n| a | training |" in shown
    assert "\n| b (commit aaaaaaa, jax 0.10.2) | training |" in shown
    # Of another machine, or size.
    before = path.read_text()
    for other in ({"machine": GPU}, {"size": "full"}):
        text = json.loads(Path("suite/results.json").read_text())
        (fake / "other").mkdir(exist_ok=True)
        (fake / "other/results.json").write_text(json.dumps(text | other))
        with pytest.raises(UserError, match="choose another NAME"):
            take_in(fake / "other", folder, "GPU")
    assert path.read_text() == before


def test_reasons_hold_no_path_of_a_person(fake, monkeypatch):
    monkeypatch.setenv("HOME", "/data/ada")
    run([member("a")])
    record = read(Path("suite"))["a"]
    reason = f"'{fake}/x.py' /data/ada/y /home/bob/z /nfs/home/bob /mnt/data/ada /data/ada2 "
    reason += "long " * 100
    failed = dataclasses.replace(record, state="failed", attempts=2, reason=reason)
    write(Path("suite"), failed)
    run([member("a")])
    path = take_in(Path("suite"), fake / "measurements", "GPU")
    kept = json.loads(path.read_text())["members"][0]["reason"]
    assert kept.startswith("'./x.py' ~/y ~/z ~ /mnt/data/ada /data/ada2 long ")
    assert len(kept) == LONGEST


def test_results_are_taken_into_the_page(fake, monkeypatch, capsys):
    run([member("a")])
    folder = fake / "measurements"
    path = take_in(Path("suite"), folder, "2 Shared Cores")
    assert path.name == "2-shared-cores.json"
    assert "date" not in json.loads(path.read_text())["machine"]
    run([member("b")])
    take_in(Path("suite"), folder)
    text = section(folder)
    assert text.count("\n| a | training | 900 |") == 1
    assert "### 2 Shared Cores\n" in text
    assert "### 2 cores\n" in text
    page = "before\n<!-- suite: begin -->\nold\n<!-- suite: end -->\nafter\n"
    assert marked_section(page, "suite", "new\n") == page.replace("old", "new")
    with pytest.raises(UserError, match="no section"):
        marked_section("nothing", "suite", "new")
    monkeypatch.setattr(suite_page, "PAGE", fake / "page.md")
    monkeypatch.setattr(suite_page, "MEASUREMENTS", folder)
    (fake / "page.md").write_text(page)
    assert suite_page.main(["suite", "a", "GPU"]) == 0
    assert "### a GPU\n" in (fake / "page.md").read_text()
    assert suite_page.main(["none"]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_the_page_shows_the_measurements():
    page = (ROOT / "docs/results/by_machine.md").read_text(encoding="utf-8")
    assert marked_section(page, "suite", section(ROOT / "docs/results/measurements")) == page


def test_make_runs_the_suite_and_takes_its_results_in(monkeypatch):
    def made(*words):
        command = ["make", "--dry-run", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "jaxrl bench --suite --minutes 9 \n" in made("suite")
    assert "--suite --minutes 4 --output 'there'\n" in made("suite", "MINUTES=4", "RUN=there")
    taken = made("performance", "RUN=there", "NAME=H100 (80 GB)")
    assert "-m tools.suite_page 'there' 'H100 (80 GB)'\n" in taken
    with pytest.raises(subprocess.CalledProcessError) as error:
        made("performance", "NAME=H100")
    assert "NAME needs the results of a suite: add RUN=suite" in error.value.stderr
    monkeypatch.setenv("NAME", "laptop")  # as some systems have it
    assert "-m tools.suite_page \n" in made("performance")
    assert "-m tools.suite_page\n" in made("docs")
