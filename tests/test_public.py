"""The public names of `jaxrl`, which are imported when they are first used."""

import subprocess
import sys
from pathlib import Path

import pytest

import jaxrl
from jaxrl.config.plan import scaled_learning_rate
from jaxrl.errors import UserError
from jaxrl.training import train
from tests.conftest import catch_config


def test_every_public_name_is_there():
    assert sorted(jaxrl.__all__) == jaxrl.__all__
    for name in jaxrl.__all__:
        assert callable(getattr(jaxrl, name)), name
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        jaxrl.trane  # noqa: B018


def test_import_starts_nothing():
    code = "import sys, jaxrl; jaxrl.load_config; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_learning_rate_scales_from_the_environments_of_the_file(tmp_path):
    """As `jaxrl train` does: four times as many, so that linear scaling is 4 x 0.02."""
    (tmp_path / "mine.toml").write_text("num_envs = 8\n[optimizer]\nlearning_rate = 0.02\n")
    config = jaxrl.load_config(tmp_path / "mine.toml")
    more = config.replaced(num_envs=32, optimizer={"lr_scaling": "linear"})
    assert scaled_learning_rate(more) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game": "pogn"}, "unknown game 'pogn': did you mean pong"),
        (
            {"network": {"torso": "natur"}},
            "network.torso = 'natur': must be one of nips, nature, impala",
        ),
        (
            {"agent": {"target": "sarza"}},
            "agent.target = 'sarza': must be one of n_step, one_step, sarsa",
        ),
        ({"parallel": {"order": None}}, "parallel.order = None: must be one of strict, overlapped"),
    ],
)
def test_misspelt_values_are_refused_as_on_the_command_line(changes, message):
    """Nothing else checks them: `nature` and `strict` are ordinary strings to Python."""
    config = jaxrl.load_config(Path("nstep_q"))
    with pytest.raises(UserError, match=message):
        jaxrl.train(config.replaced(**changes))


def test_a_run_names_its_directory_and_its_learners(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "_train", lambda asked, *_: train.Outcome(asked.path, 80, None))
    config = catch_config(seed=3, parallel={"sync_every": 1})
    run = jaxrl.train(config)
    assert run.step == 80
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert run_dir.samefile(run.directory)
    assert run_dir.name.startswith("catch-a2c-seed3-")
    kept = jaxrl.load_config(run_dir / "config.toml")
    assert (kept.run_dir, kept.parallel.num_learners) == (f"runs/{run_dir.name}", 1)


def test_a_run_is_trained_looked_at_and_continued(tmp_path):
    seen = []
    run = jaxrl.train(
        "a2c_fast",
        on_metrics=seen.append,
        game="catch",
        num_envs=4,
        total_steps=80,
        run_dir=str(tmp_path / "x"),
        parallel={"num_devices": 1},
        log={"interval": 40},
        evaluation={"episodes": 2},
    )
    assert (run.step, run.signal) == (80, None)
    assert [row["step"] for row in seen] == list(run.metrics["step"]) == [40, 80]
    assert run.evaluation.episodes == 2
    assert run.policy().step == jaxrl.load_policy(str(tmp_path / "x"), 80).step == 80
    more = jaxrl.resume(str(run.directory), override=["total_steps=120"], on_metrics=seen.append)
    assert (more.directory, more.step) == (run.directory, 120)
    assert seen[-1]["step"] == 120
    table = jaxrl.load_runs([str(tmp_path / "x")])
    assert list(table["step"]) == list(jaxrl.load_runs(tmp_path)["step"]) == [40, 80, 120]


def test_engines_are_made_by_a_game_s_name():
    engine = jaxrl.make_engine("catch", 3)
    assert (engine.spec.num_envs, engine.spec.num_actions) == (3, 3)
    _, timestep = engine.init(0)
    assert timestep.frame.shape == (3, 84, 84)
    with pytest.raises(UserError, match="unknown game 'pogn'"):
        jaxrl.make_engine("pogn", 3)


def test_paths_may_be_strings():
    assert jaxrl.load_config("ppo_pong") == jaxrl.load_config(Path("ppo_pong"))
    assert jaxrl.load_config("ppo_pong", game="ALE/Breakout-v5").game == "breakout"
    assert jaxrl.__version__.count(".") == 2
