"""The public names of `jaxrl`, which are imported when they are first used."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxrl
from jaxrl.config.plan import scaled_learning_rate
from jaxrl.config.toml import to_toml
from jaxrl.config.validation import check
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
            "network.torso = 'natur': must be one of nips, nature, gamma, hadamax, gamma_hadamax, ",
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


def test_values_that_python_writes_otherwise_become_those_of_a_file(tmp_path):
    """A run that was trained with 1e6 or NumPy's numbers can be read again."""
    changes = {
        "total_steps": 1e6,
        "seed": np.int64(3),
        "run_dir": tmp_path / "x",
        "optimizer": {"learning_rate": np.float32(0.5)},
        "env": jaxrl.load_config("a2c").env,
        "evaluation": {"episodes": np.int32(2), "interval": 0.0},
    }
    config = jaxrl.load_config("a2c_fast", **changes)
    check(config)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert jaxrl.load_config(tmp_path / "config.toml") == config
    assert (config.total_steps, config.seed, config.run_dir) == (10**6, 3, str(tmp_path / "x"))
    assert config.optimizer.learning_rate == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 1e-3}, "unknown key 'lr': did you mean 'optimizer.learning_rate'"),
        ({"optimiser": {"eps": 1e-3}}, "unknown key 'optimiser': did you mean 'optimizer'"),
        ({"total_steps": "1M"}, "total_steps = '1M': must be a whole number: write 1e6"),
        ({"optimizer": 1e-3}, r"optimizer = 0\.001: must be a table, \[optimizer\]"),
        ({"optimizer": {1: 2}}, "unknown key 'optimizer.1'"),
        ({"seed": None}, "seed = None: must be a whole number"),
        ({"seed": np.zeros(2)}, "seed = array.*: must be a whole number"),
    ],
)
def test_mistakes_of_a_caller_are_named(changes, message):
    for read in (jaxrl.load_config, jaxrl.train):
        with pytest.raises(UserError, match=message):
            read("a2c", **changes)


def test_a_run_names_its_directory_and_its_learners(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "_train", lambda request, *_: train.Outcome(request.path, 80, None))
    config = catch_config(seed=3, parallel={"sync_every": 1})
    run = jaxrl.train(config)
    assert run.step == 80
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert run_dir.samefile(run.directory)
    assert run_dir.name.startswith("catch-a2c-seed3-")
    written = jaxrl.load_config(run_dir / "config.toml")
    assert (written.run_dir, written.parallel.num_learners) == (f"runs/{run_dir.name}", 1)


@pytest.mark.slow
def test_a_run_is_trained_looked_at_and_continued(tmp_path):
    seen = []
    run = jaxrl.train(
        "a2c_fast",
        on_metrics=seen.append,
        game="catch",
        num_envs=4,
        total_steps=80,
        run_dir=tmp_path / "x",
        parallel={"num_devices": 1},
        log={"interval": 40},
        evaluation={"episodes": 2},
    )
    assert (run.step, run.signal) == (80, None)
    assert [row["step"] for row in seen] == list(run.metrics["step"]) == [40, 80]
    assert run.evaluation.episodes == 2
    assert run.policy().step == jaxrl.load_policy(str(tmp_path / "x"), 80).step == 80
    for checkpoint in ("latest", "80"):
        assert run.policy(checkpoint).step == 80
    with pytest.raises(UserError, match="can be called the best: until enough games have ended"):
        run.policy("best")  # as on the command line
    with pytest.raises(UserError, match="checkpoint = last: must be an agent step, latest or best"):
        jaxrl.load_policy(run.directory, "last")
    more = jaxrl.resume(str(run.directory), override="total_steps=120", on_metrics=seen.append)
    assert (more.directory, more.step) == (run.directory, 120)
    assert seen[-1]["step"] == 120
    table = jaxrl.load_runs([str(tmp_path / "x")])
    assert list(table["step"]) == list(jaxrl.load_runs(tmp_path)["step"]) == [40, 80, 120]


def test_more_devices_than_jax_has_opened_are_refused():
    """JAX cannot simulate others in this process any more, and raises an error that is no line."""
    with pytest.raises(UserError, match=r"there are 4 cpu devices: .* begin a new process"):
        jaxrl.train(catch_config(num_envs=32, parallel={"num_devices": 8}))


def test_engines_are_made_by_a_game_s_name():
    engine = jaxrl.make_engine("catch", 3)
    assert (engine.spec.num_envs, engine.spec.num_actions) == (3, 3)
    _, timestep = engine.init(0)
    assert timestep.frame.shape == (3, 84, 84)
    with pytest.raises(UserError, match="unknown game 'pogn'"):
        jaxrl.make_engine("pogn", 3)


def test_engines_do_not_ask_how_an_agent_would_learn():
    """One environment is too few for its minibatches, and the layers leave nothing of a frame."""
    config = jaxrl.load_config("ppo", game="catch", parallel={"groups": 2}, env={"frame_width": 16})
    assert jaxrl.make_engine(config, 1).spec.num_envs == 1
    with pytest.raises(UserError, match="nothing is left of it after the convolutions"):
        check(config)
    with pytest.raises(UserError, match=r"parallel\.groups = 2 does not divide"):
        check(config.replaced(num_envs=1, env={"frame_width": 84}))
    with pytest.raises(UserError, match="num_envs = 0: must be at least 1"):
        jaxrl.make_engine(config, 0)
    with pytest.raises(UserError, match=r"env\.frame_width = 18: must be a multiple of 4"):
        jaxrl.make_engine(config.replaced(env={"frame_width": 18}), 1)


def test_paths_may_be_strings():
    assert jaxrl.load_config("ppo_pong") == jaxrl.load_config(Path("ppo_pong"))
    assert jaxrl.load_config("ppo_pong", game="ALE/Breakout-v5").game == "breakout"
    assert jaxrl.__version__.count(".") == 2
