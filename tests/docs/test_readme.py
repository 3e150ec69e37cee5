"""What README shows exists: commands with their options, make's targets and variables."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from jaxrl import errors
from jaxrl.atari.games import known_games
from jaxrl.cli import doctor, policies
from jaxrl.cli import search as cli_search
from jaxrl.cli.evaluate import Evaluate
from jaxrl.cli.main import COMMANDS, main
from jaxrl.cli.parsing import parse
from jaxrl.cli.sweep import Sweep
from jaxrl.cli.train import Train
from jaxrl.experiments import bench, sweep, tune
from jaxrl.experiments.doctor import machine
from jaxrl.experiments.suite import run
from jaxrl.runs import hints
from jaxrl.runtime import processes
from jaxrl.training import train
from tests.docs.test_docs import anchors

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
COMMANDS_PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text()
LINES = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT + COMMANDS_PAGE, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]
SCALING = (ROOT / "docs" / "guides" / "scaling.md").read_text()
# Those within other commands (srun, ssh), with values for the variables of their scripts.
LAUNCHED = [
    re.sub(r"\$\w+", lambda name: "runs/x" if name[0] == "$run" else "1", command).strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT + SCALING, re.DOTALL)
    for command in re.findall(r"bin/(jaxrl [^\"&;#\n]*)", block.replace("\\\n", " "))
]


def test_launches_are_shown():
    assert len(LAUNCHED) >= 5


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.startswith("jaxrl")] + sorted(set(LAUNCHED))
)
def test_commands_and_their_options_exist(line, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    seen = []
    outcome = train.Outcome(Path("x"), 0, None)
    for place in (hints, policies):
        monkeypatch.setattr(place, "policies", dict)  # none is there to play
    monkeypatch.setattr(processes, "join", seen.append)
    monkeypatch.setattr(train, "start", lambda config: seen.append(config) or outcome)
    monkeypatch.setattr(train, "start_population", lambda *asked: seen.append(asked) or outcome)
    rate = bench.Rate(1.0, 1.0, 1.0, 1.0, 1.0)
    rates = dict.fromkeys(bench.LOADS, rate)
    monkeypatch.setattr(bench, "measure", lambda config, *_: seen.append(config) or rates)
    monkeypatch.setattr(tune, "search", lambda config, *_: seen.append(config) or config)
    monkeypatch.setattr(sweep, "run", lambda members, *_: seen.extend(members) or [])
    monkeypatch.setattr(sweep, "report", lambda *_: None)
    monkeypatch.setattr(cli_search, "_train", lambda plan, *_: seen.append(plan) or 0)
    monkeypatch.setattr(doctor, "describe_apart", machine.describe)
    monkeypatch.setattr(
        doctor, "diagnose", lambda *_: (check for check in seen.append("doctor") or ())
    )
    monkeypatch.setattr(run, "probe", lambda: {"platform": "gpu", "num_devices": 1})
    monkeypatch.setattr(run, "run", lambda members, *_: seen.extend(members) or {})
    command, *arguments = shlex.split(line)[1:]
    assert command in COMMANDS
    written = {"tuned.toml", "throughput.png", "report.html", "scores.png", "comparison.png"}
    arguments = [
        str(tmp_path / a) if a in written or a.startswith("runs/") else a for a in arguments
    ]
    if "--suite" in arguments:
        arguments += ["--output", str(tmp_path / "suite")]
    status = main([command, *arguments])
    others = ("configs", "games", "policies", "sweep", "search", "doctor")
    if command in ("train", "bench", "tune", *others):
        assert status == 0
        assert seen or command in ("configs", "games", "policies")
    else:
        # The options are understood; only the run is missing here.
        assert status == 2
        told = capsys.readouterr().err
        assert "is no run directory" in told or "cannot read the policy" in told


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make")])
def test_make_targets_and_variables_exist(line):
    told = subprocess.run(
        ["make", "--dry-run", *shlex.split(line)[1:]],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    target, *variables = shlex.split(line)[1:]
    for variable in variables:
        assert variable.split("=")[1] in told.stdout
    if target in ("pong", "breakout", "catch"):
        assert f"--game {target}" in told.stdout


def test_every_game_has_a_target_that_help_lists():
    told = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = told.stdout.split("games: ")[1].split()
    assert listed == list(known_games())
    command = ["make", "--dry-run", *listed]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"--game (\w+)", made.stdout) == listed


@pytest.mark.parametrize(
    ("target", "usual"),
    [("pong", "vtrace_cpu"), ("breakout", "vtrace_fast"), ("atari5", "vtrace_fast"),
     ("catch", "vtrace_cpu"), ("catch_memory", "vtrace_lstm_cpu")],
)  # fmt: skip
def test_a_target_without_algo_trains_with_its_usual_configuration(target, usual):
    def trained(*given, **environment):
        others = {name: value for name, value in os.environ.items() if name != "ALGO"}
        made = subprocess.run(
            ["make", "--no-print-directory", "--dry-run", target, *given],
            cwd=ROOT, capture_output=True, text=True, check=True, env=others | environment,
        )  # fmt: skip
        [name] = re.findall(r"--configs? (\S+)", made.stdout)
        return name

    assert trained() == trained("ALGO=") == trained(USUAL="dqn") == usual
    assert trained("ALGO=ppo") == trained(ALGO="ppo") == "ppo"
    if target in hints.SMALL:
        assert hints.SMALL[target] == f"--config {usual} --total-steps 1e5"


@pytest.mark.parametrize("target", ["pong", "atari5", "atari57"])
def test_every_variable_of_a_target_becomes_an_option_that_its_command_reads(target):
    """`make --dry-run` shows the command; its own parser must accept it."""
    sweeps = target.startswith("atari")
    words = [target, "STEPS=1e6", "DEVICES=2", "RUN=runs/s"]
    words += ["ALGO=ppo c51", "SEEDS=1 2"] if sweeps else ["ALGO=ppo", "SEED=2"]
    command = ["make", "--no-print-directory", "--dry-run", *words]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shown = made.stdout.replace("\\\n", " ")
    if sweeps:
        training, playing = re.findall(r"jaxrl (?:sweep|evaluate) (.*?)(?:;| \|\|)", shown)
        sticky = parse(Evaluate, "evaluate", shlex.split(playing))
        output = Path("runs/s/sticky.json")
        assert sticky == Evaluate(runs=(Path("runs/s"),), protocol="sticky", output=output)
        arguments = shlex.split(training)
        assert parse(Sweep, "sweep", arguments) == Sweep(
            games=(target,),
            seeds=(1, 2),
            configs=(Path("ppo"), Path("c51")),
            total_steps=10**6,
            num_devices=2,
            root=Path("runs/s"),
            words=tuple(arguments),
        )
        return
    config = parse(Train, "train", shlex.split(shown.partition("jaxrl train ")[2])).settings
    assert (config.algorithm, config.game, config.seed) == ("ppo", "pong", 2)
    assert (config.total_steps, config.run_dir) == (10**6, "runs/s")
    assert config.parallel.num_devices == 2


def test_it_is_one_screen_and_a_half():
    assert len(TEXT.split()) < 1000


def test_links_and_files_that_are_named_exist():
    for name, anchor in re.findall(r"\]\(([^)#]+)(?:#([\w-]+))?\)", TEXT):
        assert name.startswith("http") or (ROOT / name).exists(), name
        assert not anchor or anchor in anchors(ROOT / name), anchor
    for name in re.findall(r"`(configs/[a-z0-9_/]+\.toml)`", TEXT):
        assert (ROOT / name).exists(), name
    assert shutil.which("make")


def test_the_table_of_algorithms_names_every_configuration_and_paper_of_an_agent():
    table = TEXT.split("## Algorithms")[1].split("## ")[0]
    shown = re.findall(r"`(\w+)`", table.split("|---|---|---|")[1])
    assert sorted(shown) == sorted(path.stem for path in (ROOT / "configs").glob("*/*.toml"))
    reference = (ROOT / "docs" / "reference" / "algorithms.md").read_text()
    described = re.findall(r"`(\w+)\.toml`", reference)
    assert set(described) >= set(shown)


def test_the_tree_names_every_room():
    tree = TEXT.split("```text")[1].split("```")[0]
    shown = re.findall(r"^jaxrl/(\w+)/", tree, re.MULTILINE)
    rooms = [path.parent.name for path in (ROOT / "jaxrl").glob("*/__init__.py")]
    assert sorted(shown) == sorted(rooms)
    layers = (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    order = [name for line in re.findall(r'"([^"]+)"', layers) for name in line.split(" | ")]
    assert shown == [name for name in order if name in rooms]


def test_every_exit_status_is_in_the_page_of_commands():
    table = COMMANDS_PAGE.split("| exit status |")[1].split("\n\n")[0]
    shown = {int(n) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
             for n in row.split(", ")}  # fmt: skip
    classes = [kind for kind in vars(errors).values() if hasattr(kind, "status")]
    assert shown >= {0} | {kind.status for kind in classes}
    assert shown == {0, 1, 2, 3, 65, 74, 75, 129, 130, 134, 138, 143}
    for name in COMMANDS:
        assert f"| `{name}` |" in COMMANDS_PAGE


def left_in_the_clone(line):
    """The names that a command shown here leaves in the folder where it runs."""
    words = shlex.split(line)
    flags = ("-o", "--output", "--root", "--run-dir", "--profile")
    left = [after for word, after in itertools.pairwise(words) if word in flags]
    match words:
        case [_, "play", policy, *_] if not left and "/" not in policy:
            left.append(f"{policy}.mp4")
        case [_, "export", _, policy, *_]:
            left += [policy, str(Path(policy).with_suffix(".md"))]
        case [_, "report" | "bench" | "tune", *_] if not left:
            left += ["report.html", "throughput.png", "tuned.toml", "suite/results.json"]
    return left


def test_what_shown_commands_leave_in_the_clone_is_ignored_by_git():
    shown = [line for line in LINES if "jaxrl " in line]
    names = {name for line in shown for name in left_in_the_clone(line)}
    # And of make, whose sweeps and runs have names of their own.
    names |= {"runs/atari5/sweep.json", "runs/pong-vtrace-seed1/config.toml", "suite/results.json"}
    names |= {".0123456789abcdef.tmp"}  # of `play` after `kill -9`
    names = {name for name in names if not name.startswith("/")}
    assert {"pong.mp4", "report.html", "policy.safetensors", "policy.md", "runs/x"} <= names
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *sorted(names)]
    ignored = subprocess.run(command, capture_output=True, text=True, check=False)
    if ignored.returncode > 1:
        pytest.skip("this is no clone")
    assert sorted(names - set(ignored.stdout.splitlines())) == []
