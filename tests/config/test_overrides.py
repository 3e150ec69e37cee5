"""One run at a time in a directory, and with its own configuration unless keys are named."""

import dataclasses
import json
import os

import pytest

from jaxrl.cli.main import main
from jaxrl.config import overrides
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, metrics
from jaxrl.runs.layout import LOCK
from jaxrl.runs.lock import hold_lock
from jaxrl.training import train
from tests.survival import SMALL, begin, finish


def edit(run_dir, before, after):
    text = (run_dir / "config.toml").read_text()
    assert text.count(before) == 1
    (run_dir / "config.toml").write_text(text.replace(before, after))


def test_words_become_values():
    config = Config()
    words = ("total_steps=3e6", "optimizer.learning-rate=1e-4", "env.reward_clip=false",
             "optimizer.name=adam", "game")  # fmt: skip
    changed = overrides.apply(config, words)
    assert changed == config.replaced(
        total_steps=3_000_000,
        env={"reward_clip": False},
        optimizer=dataclasses.replace(config.optimizer, learning_rate=1e-4, name="adam"),
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("total_step=3", "did you mean 'total_steps'"),
        ("total_steps=soon", "total_steps = 'soon': must be a whole number"),
        ("total_steps=1.5", "must be a whole number"),
        ("parallel.num_devices=2", "'parallel.num_devices': give --num-devices instead"),
        ("log_interval=5", "unknown key 'log_interval': it is 'log.interval' now"),
        ("keep-checkpoints=5", "it is 'checkpoint.keep' now"),
        ("reward_clip=false", r"it belongs in \[env\], as 'env\.reward_clip'"),
        ("agent.clip=0.2", "unknown key 'agent.clip': it belongs to ppo"),
        ("optimizer.lr=1e-3", "did you mean 'optimizer.learning_rate'?"),
        ("agent.n-steps=5", "did you mean 'agent.rollout_length'?"),
        ("lr=1e-3", "did you mean 'optimizer.learning_rate'?"),
        ("optimizer.rate=1e-3", "did you mean 'optimizer.learning_rate'?"),
        ("optimizer.learn=1e-3", "did you mean 'optimizer.learning_rate'?"),
        ("", "unknown key ''"),
        ("agent.gamma=", "must be a number"),
    ],
)
def test_words_that_mean_nothing_are_refused(word, message):
    with pytest.raises(UserError, match=message):
        overrides.apply(Config(), (word,))


def test_what_changed_is_told_and_must_be_named():
    before = dataclasses.asdict(Config())
    now = Config().replaced(
        log={"interval": 5}, total_steps=7, parallel={"num_devices": 3}, run_dir="y"
    )
    assert overrides.check(before, Config(), ()) == {}
    with pytest.raises(UserError) as told:
        overrides.check(before, now, ("total_steps",))
    assert str(told.value) == (
        "the configuration has changed since the checkpoint: log.interval was 10000 and is 5: "
        "put it back, or go on with --override log.interval"
    )
    changes = overrides.check(before, now, ("total_steps=7", "log.interval"))
    assert changes == {"total_steps": [10_000_000, 7], "log.interval": [10_000, 5]}
    fewer = dataclasses.replace(Config(), num_envs=8)
    with pytest.raises(UserError, match="num_envs was 16 and is 8: put it back, or train a new"):
        overrides.check(before, fewer, ("num_envs",))


def test_a_key_that_an_older_version_did_not_know_has_its_default():
    before = dataclasses.asdict(Config())
    del before["env"]["stuck_after"]
    assert overrides.check(before, Config(), ()) == {}
    patient = Config().replaced(env={"stuck_after": 7})
    with pytest.raises(UserError, match=r"env\.stuck_after was 300 and is 7"):
        overrides.check(before, patient, ())


@pytest.mark.slow
@pytest.mark.rotating(4, group="overrides")
def test_an_edited_configuration_is_refused_until_its_keys_are_named(run_dir, capsys):
    edit(run_dir, "total_steps = 400", "total_steps = 600")
    edit(run_dir, "gamma = 0.99", "gamma = 0.98")
    text = (run_dir / "config.toml").read_text()
    assert main(["resume", str(run_dir), "--override", "total_steps"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "agent.gamma was 0.99 and is 0.98: put it back, or go on with --override agent" in line
    assert (run_dir / "config.toml").read_text() == text
    assert main(["resume", str(run_dir), "--override", "total_steps", "agent.gamma"]) == 0
    assert checkpoint_files.steps(run_dir)[-1] == 600
    provenance = json.loads((run_dir / "provenance.json").read_text())
    changes = {"total_steps": [400, 600], "agent.gamma": [0.99, 0.98]}
    assert provenance["resumed"][0]["overridden"] == changes
    assert main(["resume", str(run_dir)]) == 0  # it is the checkpoint's now
    assert "at step 600: --override total_steps=1200 trains as long" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.rotating(4, group="overrides")
def test_a_value_on_the_command_line_is_kept_in_the_run(run_dir):
    assert main(["resume", str(run_dir), "--override", "total_steps=600"]) == 0
    assert load(run_dir / "config.toml").total_steps == 600
    assert checkpoint_files.steps(run_dir)[-1] == 600


@pytest.mark.slow
def test_an_end_that_the_run_has_passed_is_refused(run_dir, capsys):
    assert main(["resume", str(run_dir), "--override", "total_steps=200"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "total_steps = 200: the run has reached step 400 already" in line
    assert load(run_dir / "config.toml").total_steps == 400


@pytest.mark.slow
def test_what_does_not_fit_the_arrays_is_refused(run_dir, capsys):
    words = ["optimizer.name=adam", "total_steps=600"]
    text = (run_dir / "config.toml").read_text()
    assert main(["resume", str(run_dir), "--override", *words]) == 2
    assert "does not fit its configuration" in capsys.readouterr().err.splitlines()[-1]
    assert (run_dir / "config.toml").read_text() == text


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate", ["--episodes", "2"]),
        ("watch", ["--once"]),
        ("play", ["--max-seconds", "1"]),
    ],
)
@pytest.mark.slow
def test_a_run_is_read_wherever_it_was_trained(command, words, run_dir, capsys):
    """As four devices leave it that were counted when training began: the policy has their form."""
    edit(run_dir, "num_devices = 1", "num_devices = 0")
    edit(run_dir, "num_envs = 4", "num_envs = 8")
    edit(run_dir, "groups = 1", "groups = 2")
    edit(run_dir, "sync_every = 0", "sync_every = 1")
    edit(run_dir, "num_learners = 0", "num_learners = 4")
    assert main([command, str(run_dir), *words]) == 0
    # Training goes on only where it fits, and here 0 is one CPU device.
    assert main(["resume", str(run_dir), "--num-devices", "0"]) == 2
    assert "several learners of a device play in one group" in capsys.readouterr().err


def test_values_out_of_bounds_are_named_with_their_file(run_dir, capsys):
    edit(run_dir, "num_envs = 4", "num_envs = 0")
    assert main(["watch", str(run_dir)]) == 2
    assert "config.toml': num_envs = 0: must be at least 1" in capsys.readouterr().err


def test_two_may_not_train_in_one_directory(run_dir, capsys):
    with hold_lock(run_dir):
        assert main(["resume", str(run_dir), "--override", "total_steps=600"]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"is in use by process {os.getpid()} on " in line
        (new := run_dir.parent / "new").mkdir()
        with hold_lock(new):
            assert main(["train", *SMALL, "--run-dir", str(new)]) == 2
    assert "in use by process" in capsys.readouterr().err
    assert main(["resume", str(run_dir)]) == 0  # let go


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_the_lock_of_a_killed_process_is_taken_over(run_dir):
    holder = begin("resume", run_dir, "--override", "total_steps=1e6")
    line = holder.stderr.readline()
    while "compiling" not in line:
        assert line, "it has ended"
        line = holder.stderr.readline()
    other = begin("resume", run_dir)
    status, errors = finish(other)
    assert status == 2
    assert f"in use by process {holder.pid} on" in errors
    holder.kill()
    holder.communicate()
    assert (run_dir / LOCK).exists()
    goal = f"total_steps={checkpoint_files.steps(run_dir)[-1] + 200}"
    status, errors = finish(begin("resume", run_dir, "--override", goal))
    assert status == 0, errors


@pytest.mark.slow
@pytest.mark.rotating(4, group="overrides")
def test_a_change_that_was_named_stays_named_until_a_checkpoint_holds_it(run_dir, monkeypatch):
    """As a kill -9 before the next checkpoint leaves it."""
    monkeypatch.setattr(train.loop, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train.resume(run_dir, override=("total_steps=600", "agent.gamma=0.9"))
    monkeypatch.undo()
    assert checkpoint_files.steps(run_dir)[-1] == 400
    assert main(["resume", str(run_dir)]) == 0
    assert checkpoint_files.steps(run_dir)[-1] == 600


@pytest.mark.slow
@pytest.mark.rotating(4, group="overrides")
def test_a_run_may_begin_to_skip(run_dir):
    words = ["optimizer.on_nonfinite=skip", "total_steps=600"]
    assert main(["resume", str(run_dir), "--override", *words]) == 0
    assert metrics.read(run_dir)[-1]["loss/skipped_updates"] == 0
