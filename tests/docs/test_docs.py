"""What the pages of docs/ say is so: commands, keys, messages, links, and the example agent."""

import ast
import dataclasses
import functools
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.a2c import agent as a2c
from jaxrl.cli import doctor, policies
from jaxrl.cli.main import COMMANDS, main
from jaxrl.config.algorithms import shipped
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.config.validation import check
from jaxrl.envs import make_engine
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.experiments import bench, tune
from jaxrl.experiments.doctor import machine
from jaxrl.experiments.suite import run
from jaxrl.program import episode_statistics, nonfinite
from jaxrl.program.program import make_program
from jaxrl.runs import hints
from jaxrl.runtime import processes
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import train
from jaxrl.types import AXIS, Agent, EnvSpec, Trajectory
from tests.conftest import CONFIGS, catch_config
from tests.survival import SMALL, environment

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# By path within docs/ without its ending: "concepts", "guides/setup".
PAGES = {
    str(path.relative_to(DOCS).with_suffix("")): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
# Commands that end well without a run.
WELL = (
    *("train", "bench", "tune", "configs", "games", "policies", "sweep", "search", "doctor"),
    "completion",
)
EXAMPLE = DOCS / "examples" / "reinforce.py"


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a page, of `sh` those marked `sh run` too."""
    return re.findall(rf"^```{language}(?: run)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(name: str) -> list[str]:
    """Every command line of the shell blocks, without comments and without what is piped on.

    The page of papers has them within its tables.
    """
    papers = PAGES["reference/papers"].replace("\n", " ")
    lines = re.findall(r"`((?:jaxrl|make) [^`]+)`", papers)
    lines += [
        shlex.join(shlex.split(re.split(r" \| | > ", line)[0], comments=True))
        for page in PAGES.values()
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").replace(".venv/bin/", "").splitlines()
    ]
    return sorted({line for line in lines if line.startswith(f"{name} ")})


# --- commands -------------------------------------------------------------------------------------


def test_commands_are_shown():
    shown = {line.split()[1] for line in commands("jaxrl")}
    assert shown == set(COMMANDS)


@pytest.mark.parametrize("line", commands("jaxrl"))
def test_commands_and_their_options_exist(line, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    started = []
    for place in (hints, policies):
        monkeypatch.setattr(place, "policies", dict)  # none is there to play
    monkeypatch.setattr(processes, "join", started.append)
    outcome = train.Outcome(Path("x"), 0, None)
    monkeypatch.setattr(train, "start", lambda config: started.append(config) or outcome)
    monkeypatch.setattr(train, "start_population", lambda *asked: started.append(asked) or outcome)
    rates = dict.fromkeys(bench.LOADS, bench.Rate(1.0, 1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(bench, "measure", lambda config, *_: started.append(config) or rates)
    monkeypatch.setattr(tune, "search", lambda config, *_: started.append(config) or config)
    monkeypatch.setattr(doctor, "describe_apart", machine.describe)
    monkeypatch.setattr(doctor, "diagnose", lambda *_: (check for check in ()))
    monkeypatch.setattr(run, "probe", lambda: {"platform": "gpu", "num_devices": 1})
    monkeypatch.setattr(run, "run", lambda members, *_: started.extend(members) or {})
    command, *arguments = shlex.split(line)[1:]
    if command == "--help":
        assert main(["--help"]) == 0
        return
    assert command in COMMANDS
    written = ("runs/", "/shared/", "tuned.toml", "throughput.png", "report.html", "scores.png",
               "comparison.png")  # fmt: skip
    arguments = [str(tmp_path / a) if a.startswith(written) else a for a in arguments]
    if "reinforce" in arguments:  # which the page asks the reader to write
        arguments[arguments.index("reinforce")] = "a2c"
    if command == "sweep":
        root = [] if "--root" in arguments else ["--root", str(tmp_path)]
        arguments = [*arguments, "--dry-run", *root]
    if command == "search":
        arguments = [*arguments, "--dry-run"]
    if "--suite" in arguments:
        arguments += ["--output", str(tmp_path / "suite")]
    status = main([command, *arguments])
    told = capsys.readouterr().err
    if command in WELL or "notebooks/" in line:
        assert status == 0, told
    else:
        # The options are understood; only the run is missing here.
        assert status == 2
        assert "is no run directory" in told or "cannot read the policy" in told


@pytest.mark.parametrize("line", commands("make"))
def test_make_targets_exist(line):
    words = ["make", "--dry-run", *shlex.split(line)[1:]]
    subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)


def test_options_in_the_text_exist():
    """`--like-this`, a flag of some command, or of another program that the page names."""
    others = {"--gpus", "--time", "--cpus", "--cpuset-cpus", "--cpu-list", "--logdir"}
    others |= {"--constraint", "--help", "--xla_gpu_shard_autotuning", "--signal", "--output"}
    others |= {f"--{name}" for name in ("nodes", "ntasks-per-node", "gpus-per-node")}  # srun
    others |= {"--gpus-per-task", "--cpus-per-task", "--batch-sizes"}
    others |= {"--against", "--frames"}  # of tools/first_difference.py
    flags = {f"--{key.replace('_', '-')}" for key in keys_of_config()}
    flags |= {f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(processes.Launch)}
    source = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "jaxrl").rglob("*.py"))
    for name, page in PAGES.items():
        for flag in re.findall(r"`[^`\n]*?(--[a-z][\w.-]+)", page):
            word = flag.removeprefix("--").replace("-", "_")
            known = flag in flags | others or re.search(rf"\b{word}: ", source)
            known = known or flag.replace("--no-", "--").replace(".no-", ".") in flags
            assert known, f"{name}.md names {flag}"


def keys_of_config() -> set[str]:
    """Every key of any configuration, as a flag has it but with underscores."""
    found = set()
    for kind in shipped().values():
        for field in dataclasses.fields(Config(agent=kind())):
            value = getattr(Config(agent=kind()), field.name)
            inner = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
            found |= {f"{field.name}.{part.name}" for part in inner} or {field.name}
    return found


def test_keys_of_the_configuration_exist():
    """`agent.gamma`: what stands in backquotes with a section before it."""
    known = keys_of_config()
    for name, page in PAGES.items():
        sections = r"agent|optimizer|network|env|parallel|log|checkpoint|evaluation"
        for key in re.findall(rf"`((?:{sections})\.[a-z_]+)\b[^`]*`", page):
            assert key in known | {"evaluation.json"}, f"{name}.md names {key}"


# --- files, links and tests that are named --------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere():
    for name, page in PAGES.items():
        for link in re.findall(r"\]\(([^)]+)\)", page):
            target, _, anchor = link.partition("#")
            here = DOCS / f"{name}.md"
            path = here.parent / target if target else here
            assert path.exists(), f"{name}.md: {link}"
            assert not anchor or anchor in anchors(path), f"{name}.md: {link}"


def test_files_and_tests_that_are_named_exist():
    made = {
        "config.toml",
        "tuned.toml",
        "best.toml",
        "agents/reinforce.py",
        "reinforce.toml",
        "pyproject.toml",
    }
    for name, page in PAGES.items():
        for file in re.findall(r"`(?:jaxrl/)?([\w/]+\.py)\b", page):
            places = [ROOT / file, ROOT / "jaxrl" / file, *(ROOT / "jaxrl").glob(f"*/{file}")]
            assert file in made or any(p.exists() for p in places), f"{name}.md: {file}"
        for file in re.findall(r"(?<![=-])\b([\w*]+\.toml)\b", page):  # not of a trial or a member
            places = [DOCS / "examples" / file, *CONFIGS.glob(f"*/{file}")]
            assert file in made | {"FILE.toml"} or any(p.exists() for p in places), (
                f"{name}.md: {file}"
            )
    tests = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    for test in re.findall(r"\b(test_\w+)`", PAGES["extending"]):
        assert f"def {test}(" in tests, test


# --- metrics --------------------------------------------------------------------------------------


def logged(recipe: str) -> set[str]:
    """What an algorithm's updates say, beside the run's own keys; nothing is computed."""
    envs = 320  # minibatches and batches of every recipe divide them
    spec = EnvSpec(envs, 3, ("LEFT", "NOOP", "RIGHT"), "catch")
    agent = make_agent(resolve(catch_config(recipe, num_envs=envs), num_devices=1), spec)
    agent = nonfinite.guarded(agent, skip=False)

    def one_update(key):
        state, length = agent.init(key), agent.rollout_length
        stack = jnp.zeros((envs, 84, 84, 4), jnp.uint8)
        action, extras, _ = agent.act(state.actor, stack, jax.random.split(key, envs))
        zeros = jnp.zeros(envs)
        row = Trajectory(stack, action, zeros, zeros, zeros == 0, extras)
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (length, *x.shape)), row)
        observation = jnp.broadcast_to(stack, (length + 1, *stack.shape))
        return agent.update(state, rows._replace(observation=observation), key)[1]

    keys = jax.random.split(jax.random.key(0), 1)
    return set(jax.eval_shape(jax.vmap(one_update, axis_name=AXIS), keys))


@pytest.mark.slow
@pytest.mark.rotating(4, group="documents")
def test_every_key_of_metrics_stands_in_the_page_and_no_other(tmp_path):
    options = [*SMALL, "--log.interval", "200", "--total-steps", "400"]
    evaluated = ["--evaluation.interval", "200", "--evaluation.episodes", "2"]
    assert main(["train", *options, *evaluated, "--run-dir", str(tmp_path / "x")]) == 0
    lines = (tmp_path / "x" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    exist = set().union(*(json.loads(line) for line in lines))
    recipes = ("a2c_fast", "ppo_pong", "vtrace_cpu", "dqn", "c51_fast", "rainbow", "qr_dqn_fast",
               "nstep_q", "pqn")  # fmt: skip
    exist = exist.union(*map(logged, recipes))
    golden = list((ROOT / "tests" / "integration" / "golden").glob("*/metrics.jsonl"))
    assert golden
    for path in golden:
        exist |= set(json.loads(path.read_text(encoding="utf-8").splitlines()[-1]))
    page = PAGES["reference/metrics"]
    described = set(re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE))
    assert described == exist
    named = set(re.findall(r"`((?:loss|policy|value|replay)/\w+)`", "".join(PAGES.values())))
    assert named <= exist


# --- messages -------------------------------------------------------------------------------------


@functools.cache
def messages() -> set[str]:
    """Every string of the source, with … for each value in it."""
    found = set()
    for path in (ROOT / "jaxrl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "…" for p in node.values]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def quoted() -> list[str]:
    """The first column of the tables of messages."""
    found = []
    for table in re.findall(
        r"^\| message \|.*?(?=^$)", PAGES["guides/troubleshooting"], re.DOTALL | re.MULTILINE
    ):
        found += re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    return found


def test_the_table_of_agents_names_every_function():
    text = (ROOT / "docs/concepts.md").read_text().partition("## Agents")[2].partition("## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)", text, re.MULTILINE)) == sorted(Agent._fields)
    arguments = ", ".join(inspect.signature(a2c.make).parameters)
    assert f"built by `make({arguments})`" in text


def test_messages_are_quoted():
    assert len(quoted()) > 40


@pytest.mark.parametrize("fragment", quoted())
def test_quoted_messages_occur_in_the_source(fragment):
    assert any(fragment in message for message in messages()), fragment


# --- the example agent ----------------------------------------------------------------------------


def test_the_page_shows_the_examples_as_they_are():
    shown = blocks(PAGES["extending"], "python")
    for name in ("mlflow_sink.py", "patches.py"):
        assert shown.pop() == EXAMPLE.with_name(name).read_text(encoding="utf-8")
    assert shown.pop(0) == EXAMPLE.read_text(encoding="utf-8")
    iqn = ROOT / "jaxrl" / "agents" / "iqn" / "agent.py"
    assert shown.pop(0) == iqn.read_text(encoding="utf-8")
    # The other excerpts are the engine's.
    catch = (ROOT / "jaxrl" / "envs" / "catch.py").read_text(encoding="utf-8")
    assert shown
    assert all(block in catch for block in shown)


def as_agent(name, monkeypatch):
    """An example, as a module of `jaxrl.agents`."""
    path = EXAMPLE.with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"jaxrl.agents.{name}", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"jaxrl.agents.{name}", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reinforce(monkeypatch):
    return as_agent("reinforce", monkeypatch)


def test_finished_rows_worked_by_hand(reinforce):
    def column(*values):
        return jnp.array(values)[:, None]

    # One environment: a game ends in row 2, row 3 is its reset, a time limit ends the next in row 5
    # (row 6 is its reset), and the game that begins in row 7 goes on.
    discount = column(1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    valid = column(True, True, True, False, True, True, False, True)
    rollout = Trajectory(None, None, None, discount, valid, None)
    expected = [True, True, True, False, True, True, False, False]
    np.testing.assert_array_equal(reinforce.finished(rollout)[:, 0], expected)


def test_the_loss_of_the_example_by_hand(reinforce):
    batch = reinforce.Batch(
        observation=None,
        action=jnp.array([0, 1]),
        target=jnp.array([3.0, 9.0]),
        advantage=jnp.array([2.0, 7.0]),
        weight=jnp.array([1.0, 0.0]),
    )
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    outputs = reinforce.PolicyValue(logits, jnp.array([1.0, 2.0]))
    settings = reinforce.ReinforceConfig(value_coef=0.5, entropy_coef=0.1)
    total, parts = reinforce.loss(outputs, batch, settings)
    # policy: -ln 0.5 * 2 = 2 ln 2;  value: (3 - 1)^2 = 4;  entropy: 1.5 ln 2
    ln2 = np.log(2)
    assert float(parts["loss/policy"]) == pytest.approx(2 * ln2, rel=1e-5)
    assert float(total) == pytest.approx(2 * ln2 + 0.5 * 4 - 0.1 * 1.5 * ln2, rel=1e-5)


@pytest.fixture
def recipe(reinforce, tmp_path):
    """The configuration that the page shows, on Catch and one device."""
    path = tmp_path / "reinforce.toml"
    path.write_text(blocks(PAGES["extending"], "toml")[0], encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
def test_the_example_learns_catch(recipe):
    settings = load(recipe).replaced(game="catch", parallel={"num_devices": 1})
    check(settings)
    engine = make_engine(settings, settings.num_envs)
    agent = make_agent(resolve(settings), engine.spec)
    program = make_program(resolve(settings), agent, (engine,), make_mesh(1))
    state = program.init()
    means = []
    # Until it catches nearly every ball; the recipe has steps enough for every seed that was tried.
    for _ in range(resolve(settings).num_updates // 20):
        state = program.run(state, np.int32(20))
        means.append(
            episode_statistics.summarize(jax.device_get(state.games[0].episodes)).return_mean
        )
        if means[-1] >= 0.9 * MAX_SCORE:
            break
    assert means[0] < -0.3
    assert means[-1] >= 0.9 * MAX_SCORE


@pytest.mark.slow
@pytest.mark.rotating(4, group="documents")
def test_one_file_and_one_configuration_are_an_algorithm(tmp_path):
    """In a copy of the package: train, evaluate by its `predict`'s policy, read the run again."""
    shutil.copytree(ROOT / "jaxrl", tmp_path / "jaxrl")
    shutil.copy(EXAMPLE, tmp_path / "jaxrl" / "agents" / "reinforce.py")
    place = tmp_path / "configs" / "reinforce"
    place.mkdir(parents=True)
    (place / "reinforce.toml").write_text(blocks(PAGES["extending"], "toml")[0], encoding="utf-8")
    options = shlex.split(
        "train --config reinforce --game catch --parallel.num-devices 1 --num-envs 4 "
        "--agent.entropy-coef 0.02 --total-steps 112 --log.interval 56 --evaluation.episodes 2 "
        "--run-dir x"
    )
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl", *options], cwd=tmp_path, capture_output=True, text=True,
        env=environment() | {"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run_dir = tmp_path / "x"
    assert "entropy_coef = 0.02" in (run_dir / "config.toml").read_text()
    assert json.loads((run_dir / "evaluation.json").read_text())["episodes"] == 2
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [56, 112]
