"""A package of somebody else adds an algorithm, an engine, a torso and a sink; jaxrl stays."""

import json
import shutil
import subprocess
import sys

import pytest

from jaxrl.config.algorithms import SHIPPED
from jaxrl.config.network import TORSOS
from jaxrl.runs import metrics
from tests.survival import ROOT, environment

TOML = """
algorithm = "reinforce"
game = "lights"
num_envs = 8
total_steps = 4000
[parallel]
num_devices = 1
[network]
torso = "patches"
[optimizer]
name = "adam"
learning_rate = 1e-3
[log]
interval = 1000
sinks = "mlflow"
[evaluation]
episodes = 4
"""


@pytest.fixture
def package(tmp_path):
    """The package, with the files that docs/extending.md shows, as if it were installed."""
    home = tmp_path / "site"
    shutil.copytree(ROOT / "tests" / "extension", home)
    for name in ("reinforce.py", "patches.py", "mlflow_sink.py"):
        shutil.copy(ROOT / "docs" / "examples" / name, home / "jaxrl_example")
    (tmp_path / "mine.toml").write_text(TOML)
    return home


def run(package, *words, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl", *words], cwd=package.parent, check=False, text=True,
        capture_output=True, env=environment(PYTHONPATH=f"{package}:{ROOT}"),
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


# Commands of one process, which imports and compiles once.
SESSION = """
import contextlib, io, json, sys
from jaxrl.cli.main import main
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(words) == 0, words
    print(json.dumps(said.getvalue()))
"""


def run_in_turn(package, *commands):
    """What each of the commands says."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION, json.dumps([command.split() for command in commands])],
        cwd=package.parent, check=False, text=True, capture_output=True,
        env=environment(PYTHONPATH=f"{package}:{ROOT}"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.optimized
def test_its_algorithm_learns_its_game(package):
    run(package, "train", "--config", "mine.toml", "--run-dir", "x")
    rows = metrics.read(package.parent / "x")
    assert rows[-1]["step"] >= 4000
    assert rows[-1]["return_mean"] > rows[0]["return_mean"] + 1  # by chance 0, at most 10
    found = json.loads((package.parent / "x" / "evaluation.json").read_text())
    assert (found["game"], found["episodes"]) == ("lights", 4)
    assert all(length == 10 for length in found["lengths"])
    _, evaluated, played, *_ = run_in_turn(
        package,
        "resume x --override total_steps=4400",
        "evaluate x --episodes 2",
        "play x -o x.gif",
        "report x -o x.html",
        "export x mine.safetensors",
    )
    assert "lights after 4,4" in evaluated
    steps = [row["step"] for row in metrics.read(package.parent / "x")]
    sent = json.loads((package.parent / "mlflow.json").read_text())["x"]
    assert sent == {"steps": steps, "status": "FINISHED"}
    assert "x.gif: lights" in played
    assert "mine.gif: lights" in run(package, "play", "mine.safetensors", "-o", "mine.gif")
    assert "--env.engine" in run(package, "train", "--config", "mine.toml", "--help")
    assert "patches of jaxrl.torsos (jaxrl-example 0.1)" in (package.parent / "mine.md").read_text()
    # Without its torso, or without the package, its runs name what is missing.
    entries = package / "jaxrl_example-0.1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text().partition("[jaxrl.torsos]")[0])
    told = run(package, "play", "mine.safetensors", status=2)
    missing = (
        "'mine.safetensors/config.toml': network.torso = 'patches': must be one of "
        f"{', '.join(TORSOS.builtin)}; no installed package registers it in jaxrl.torsos\n"
    )
    assert missing in told
    assert told.count("\n") == 1
    load = [sys.executable, "-c", "import jaxrl; jaxrl.load_policy('mine.safetensors')"]
    place = {"cwd": package.parent, "env": environment(PYTHONPATH=f"{package}:{ROOT}")}
    done = subprocess.run(load, **place, check=False, text=True, capture_output=True)
    assert done.stderr.endswith(f"UserError: {missing}")
    shutil.rmtree(package)
    told = run(package, "play", "mine.safetensors", status=2)
    assert "'mine.safetensors/config.toml': algorithm = 'reinforce': jaxrl has none of" in told
    assert "install the package that has it" in told
    assert told.count("\n") == 1
    assert "reinforce" in run(package, "evaluate", "x", status=2)


@pytest.mark.slow
def test_a_population_trains_its_torso(package):
    words = "--config a2c_fast --game catch --network.torso patches --num-envs 4 --total-steps 80"
    words = [*words.split(), "--evaluation.episodes", "0", "--log.interval", "40"]
    run(package, "train", *words, "--seeds", "1", "2", "--run-dir", "x")
    last = [metrics.read(package.parent / "x" / seed)[-1] for seed in ("seed1", "seed2")]
    assert [row["step"] for row in last] == [80, 80]
    assert last[0]["loss/policy"] != last[1]["loss/policy"]
    assert "catch after 80" in run(package, "evaluate", "x/seed2", "--episodes", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--algorithm", "reinforce"],
         'write a TOML file with algorithm = "reinforce", and give it by --config'),
        (["train", "--game", "light"], "unknown game 'light': did you mean lights"),
        (["train", "--env.engine", "ligths"], "env.engine = ligths: did you mean lights?"),
        (["train", "--env.engine", "lights"], "env.engine = lights: does not play pong"),
        (["train", "--game", "lights", "--env.engine", "envpool"], "does not play lights"),
        (["train", "--config", "broken.toml"],
         "jaxrl.agents: 'broken' of the package jaxrl-example cannot be imported"),
        (["train", "--config", "empty.toml"],
         "jaxrl_example.py must define one subclass of AlgorithmConfig, and defines 0"),
        (["train", "--config", "no_module.toml"], "must name a module"),
        (["train", "--config", "absent.toml"],
         f"that has it, or take one of {', '.join(SHIPPED)}, broken"),
    ],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.rotating(3)
def test_mistakes_end_in_one_line(package, words, message):
    if words[-1].endswith(".toml"):
        name = words[-1].removesuffix(".toml")
        (package.parent / words[-1]).write_text(f'algorithm = "{name}"\n')
    told = run(package, *words, status=2)
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("group", "text", "words", "message"),
    [
        (
            "jaxrl.agents",
            "from jaxrl.config.algorithm_base import AlgorithmConfig\n"
            "class UnfinishedConfig(AlgorithmConfig): pass\n",
            ["--config", "unfinished.toml"],
            "algorithm = 'unfinished': jaxrl_example/unfinished.py must define make(plan, spec)",
        ),
        (
            "jaxrl.engines",
            "GAMES = ('levers',)\n",
            ["--game", "levers"],
            "jaxrl.engines: jaxrl_example.unfinished must define make",
        ),
        (
            "jaxrl.torsos",
            "import jax.numpy as jnp\nUNITS = int(jnp.ones(()))\ndef make(network): pass\n",
            ["--network.torso", "unfinished"],
            "jaxrl.torsos: 'unfinished' of the package jaxrl-example computes with JAX where it",
        ),
        (
            "jaxrl.torsos",
            "UNITS = 4\ndef make(network): return lambda x: x[0]\n",
            ["--network.torso", "unfinished", "--game", "catch"],
            "network.torso = 'unfinished': jaxrl_example.unfinished must map frames float32[2, 84,",
        ),
    ],
)
@pytest.mark.slow
def test_a_module_without_make_is_refused_in_one_line(package, group, text, words, message):
    (package / "jaxrl_example" / "unfinished.py").write_text(text)
    (package.parent / "unfinished.toml").write_text('algorithm = "unfinished"\n')
    entries = package / "jaxrl_example-0.1.dist-info" / "entry_points.txt"
    entries.write_text(f"[{group}]\nunfinished = jaxrl_example.unfinished\n")
    told = run(package, "train", *words, status=2)
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_an_engine_that_cannot_be_imported_stops_only_who_asks_for_it(package):
    entries = package / "jaxrl_example-0.1.dist-info" / "entry_points.txt"
    group = "[jaxrl.engines]\n"
    entries.write_text(entries.read_text().replace(group, f"{group}gone = jaxrl_example.absent\n"))
    wrong = "jaxrl.engines: 'gone' of the package jaxrl-example cannot be imported"
    assert run(package, "games", "--names").split()[-1] == "lights"
    warning, error = run(package, "train", "--game", "light", status=2).splitlines()
    assert warning.startswith(f"warning: {wrong}")
    assert "unknown game 'light': did you mean lights" in error
    told = run(package, "train", "--game", "light", "--env.engine", "gone", status=2)
    assert told.startswith(f"jaxrl: {wrong}")
    assert told.count("\n") == 1


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_its_games_are_listed(package):
    listed = run(package, "games")
    assert "(by the engine lights)" in listed
    assert run(package, "games", "--names").split()[-1] == "lights"
