"""`train --seeds`: each of its runs is the run that trains alone with its seed."""

import json
import shlex
import shutil

import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.errors import NotFiniteError
from jaxrl.runs import checkpoint_files, layout, metrics
from jaxrl.training import train
from tests.conftest import recipe_file
from tests.program.test_nonfinite import poisoned
from tests.survival import SMALL, begin, check_metrics, finish, without_times

SHORT = [*SMALL, "--log.interval", "200", "--checkpoint.interval", "200", "--total-steps", "600"]
SEEDS = ["--seeds", "1", "2"]
ATARI = [
    "--config", str(recipe_file("vtrace_cpu")), "--game", "pong", "--env.engine", "atari2600",
    "--num-envs", "4", "--env.random-start-steps", "50", "--agent.window", "3",
    "--agent.num-minibatches", "2", "--parallel.num-devices", "1", "--evaluation.episodes", "0",
    "--log.interval", "200", "--checkpoint.interval", "200", "--total-steps", "600",
]  # fmt: skip


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two seeds at once, with evaluations at the end; not to be changed."""
    root = tmp_path_factory.mktemp("runs") / "x[1]"
    more = ["--evaluation.episodes", "2", "--run-dir", str(root)]
    assert main(["train", *SHORT, *SEEDS, *more]) == 0
    return root


def assert_alike(member, alone):
    """The same lines, but for times and the rounding of float32."""
    rows, expected = without_times(member), without_times(alone)
    assert len(rows) == len(expected) > 1
    for row, other in zip(rows, expected, strict=True):
        assert row.keys() == other.keys()
        for name, value in other.items():
            if value is None:  # no game is over
                assert row[name] is None
            else:
                np.testing.assert_allclose(row[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def cut(path, copy, *steps):
    """A copy as a kill after the first checkpoint would leave it."""
    shutil.copytree(path, copy)
    for run_dir in copy.glob("seed*"):
        for step in steps:
            shutil.rmtree(run_dir / "checkpoints" / step)
    return copy


@pytest.mark.slow
def test_a_member_has_the_lines_of_a_run_alone(together, tmp_path):
    alone = ["--evaluation.episodes", "0", "--seed", "2", "--run-dir", str(tmp_path / "alone")]
    assert main(["train", *SHORT, *alone]) == 0
    assert_alike(together / "seed2", tmp_path / "alone")
    names = {path.name.partition(".tfevents")[0] for path in (together / "seed1").iterdir()}
    assert names == {
        "config.toml", "metrics.jsonl", "events.out", "checkpoints", "provenance.json", "lock",
        "learning_curve.png", "evaluation.json", "evaluations",
    }  # fmt: skip
    for run_dir in (together / "seed1", together / "seed2"):
        check_metrics(run_dir)
        assert checkpoint_files.steps(run_dir) == [200, 400, 600]
    provenance = json.loads((together / "seed1" / "provenance.json").read_text())
    assert provenance["engine"] == "catch"


@pytest.mark.slow
def test_the_members_learn_apart(together):
    first, second = (metrics.read(together / name)[-1] for name in ("seed1", "seed2"))
    assert first["loss/value"] != second["loss/value"]
    assert first["step"] == second["step"] == 600


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_one_resume_continues_all(together, tmp_path, capsys):
    """Killed after the first checkpoint; the second run had completed another."""
    resumed = cut(together, tmp_path / "x", "600")
    shutil.rmtree(resumed / "seed1" / "checkpoints" / "400")
    capsys.readouterr()
    assert main(["resume", str(resumed)]) == 0
    output = capsys.readouterr().err
    assert "seed2' is ahead with checkpoint 400: it goes back to 200" in output
    assert "resumed at step 200" in output
    assert "new games" not in output
    for name in ("seed1", "seed2"):
        assert without_times(resumed / name) == without_times(together / name)
        assert checkpoint_files.survey(resumed / name).good == [200, 400, 600]
    assert main(["resume", str(resumed)]) == 0
    assert "training had ended already, at step 600" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_a_member_is_a_run_of_its_own(together, tmp_path, capsys):
    """It is resumed alone, too, and the folder stands for all of them."""
    resumed = cut(together, tmp_path / "x", "400", "600")
    assert main(["resume", str(resumed / "seed2")]) == 0
    assert_alike(resumed / "seed2", together / "seed2")
    assert main(["evaluate", str(together / "seed1"), "--episodes", "1"]) == 0
    assert main(["plot", str(together), "--output", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").is_file()
    capsys.readouterr()
    assert main(["play", str(together)]) == 2
    assert "holds the runs of several seeds: name one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--seeds", "1"], "must be two or more"),
        (["--seeds", "1", "1"], "1 is there twice"),
        (["--seed", "3", "--seeds", "1", "2"], "leave --seed out"),
        ([*SEEDS, "--parallel.groups", "2"], "parallel.groups: the runs of --seeds"),
        ([*SEEDS, "--parallel.sync-every", "1"], "parallel.sync_every: the runs of --seeds"),
        (["--seeds", "one"], "--seeds"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, words, line):
    assert main(["train", *SHORT, *words, "--run-dir", str(tmp_path / "x")]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert line in output
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_population_that_exists_is_not_overwritten(together, capsys):
    assert main(["train", *SHORT, *SEEDS, "--run-dir", str(together)]) == 2
    assert f"or `jaxrl resume {shlex.quote(str(together))}`" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_one_that_goes_wrong_stops_all_and_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "make_agent", poisoned(train.make_agent, 19, 19))
    root = tmp_path / "x"
    assert main(["train", *SHORT, *SEEDS, "--run-dir", str(root)]) == NotFiniteError.status
    line = capsys.readouterr().err.splitlines()[-1]
    assert "jaxrl: seed 1: training went wrong by step 400: parameters " in line
    assert checkpoint_files.steps(root / "seed2") == [200]


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
@pytest.mark.parametrize("interval", ["300"])
def test_evaluations_during_training_are_of_each(tmp_path, interval):
    root = tmp_path / "x"
    evaluated = ["--evaluation.interval", interval, "--evaluation.episodes", "2"]
    assert main(["train", *SHORT, *evaluated, *SEEDS, "--run-dir", str(root)]) == 0
    for name in ("seed1", "seed2"):
        rows = metrics.read(root / name)
        assert [row["step"] for row in rows if "evaluation/mean" in row] == [400, 600]
    assert checkpoint_files.steps(root / "seed1") == checkpoint_files.steps(root / "seed2")


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
@pytest.mark.parametrize(
    ("config", "devices"),
    [(SHORT, "2"), (ATARI, "1"), ([*ATARI, "--env.flicker", "0.5"], "2")],
    ids=["catch-2", "pong-1", "pong-2-flicker"],
)
def test_a_resumed_population_equals_one_that_never_stopped(tmp_path, capsys, config, devices):
    root, words = tmp_path / "x", [*config, "--parallel.num-devices", devices]
    assert main(["train", *words, *SEEDS, "--run-dir", str(root)]) == 0
    assert main(["train", *words, "--seed", "2", "--run-dir", str(tmp_path / "alone")]) == 0
    assert_alike(root / "seed2", tmp_path / "alone")
    resumed = cut(root, tmp_path / "cut", "400", "600")
    capsys.readouterr()
    assert main(["resume", str(resumed)]) == 0
    assert "new games" not in capsys.readouterr().err
    for name in ("seed1", "seed2"):
        assert without_times(resumed / name) == without_times(root / name)


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_a_population_moves_to_other_devices(together, tmp_path, capsys):
    resumed = cut(together, tmp_path / "x", "400", "600")
    assert main(["resume", str(resumed), "--num-devices", "2"]) == 0
    assert "parameters, optimizer and games continue exactly" in capsys.readouterr().err
    for name in ("seed1", "seed2"):
        assert_alike(resumed / name, together / name)


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_games_of_envpool_begin_again(tmp_path, capsys):
    root = tmp_path / "x"
    words = [*ATARI, "--env.engine", "envpool", *SEEDS, "--run-dir", str(root)]
    assert main(["train", *words]) == 0
    resumed = cut(root, tmp_path / "cut", "400", "600")
    capsys.readouterr()
    assert main(["resume", str(resumed)]) == 0
    assert "emulators cannot be saved: new games begin" in capsys.readouterr().err
    assert [row["step"] for row in metrics.read(resumed / "seed2")] == [200, 400, 600]


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_a_replay_is_saved_and_goes_on(tmp_path):
    agent = ["--agent.learning-starts", "200", "--agent.replay-capacity", "400",
             "--agent.batch-size", "16", "--agent.target-update-interval", "200"]  # fmt: skip
    config = ["--config", str(recipe_file("c51_fast")), *SHORT[2:], *agent]
    root = tmp_path / "x"
    assert main(["train", *config, *SEEDS, "--run-dir", str(root)]) == 0
    steps = checkpoint_files.steps(root / "seed1")
    assert steps == checkpoint_files.steps(root / "seed2")
    resumed = cut(root, tmp_path / "cut", *map(str, steps[1:]))
    assert main(["resume", str(resumed)]) == 0
    for name in ("seed1", "seed2"):
        assert without_times(resumed / name) == without_times(root / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(SHORT, id="catch", marks=pytest.mark.rotating(6)),
        pytest.param(ATARI, id="pong", marks=pytest.mark.rotating(6)),
    ],
)
def test_killed_at_any_moment_it_ends_as_one_that_was_not(tmp_path, config):
    words = [*config, "--total-steps", "4000", *SEEDS]
    status, errors = finish(begin("train", *words, "--run-dir", str(tmp_path / "a")), 600)
    assert status == 0, errors
    process = begin("train", *words, "--run-dir", str(tmp_path / "b"))
    while process.poll() is None and checkpoint_files.steps(tmp_path / "b" / "seed2") == []:
        pass
    process.kill()
    process.communicate()
    status, errors = finish(begin("resume", tmp_path / "b"), 600)
    assert status == 0, errors
    for name in ("seed1", "seed2"):
        assert without_times(tmp_path / "b" / name) == without_times(tmp_path / "a" / name)


@pytest.mark.slow
@pytest.mark.rotating(6, group="population")
def test_a_signal_saves_all(tmp_path):
    process = begin("train", *SHORT, "--total-steps", "1e7", *SEEDS,
                    "--run-dir", str(tmp_path / "x"))  # fmt: skip
    while not (tmp_path / "x" / "seed2" / "checkpoints" / "200").is_dir():
        assert process.poll() is None
    process.terminate()
    status, errors = finish(process)
    assert status == 143, errors
    assert f"jaxrl resume {tmp_path / 'x'}" in errors
    saved = [checkpoint_files.steps(tmp_path / "x" / name)[-1] for name in ("seed1", "seed2")]
    assert saved[0] == saved[1]
    assert (tmp_path / "x" / layout.POPULATION).is_file()
