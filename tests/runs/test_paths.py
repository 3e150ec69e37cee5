"""A path that is no run directory is met with the likeliest run or policy."""

import os
from pathlib import Path

import pytest

import jaxrl
from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.runs import layout


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, with a folder of three runs, of which `boxing-2` is the newest."""
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(("boxing-2", "boxing-1", "zaxxon-1")):
        config = tmp_path / "runs" / name / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('game = "boxing"')
        os.utime(config, (1000 - age, 1000 - age))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play", "tutankham"], "no policy of tutankham comes with jaxrl, train one: jaxrl train"),
        (["play", "Tutankham-v5"], "train one: jaxrl train --config vtrace_fast --game tutankham"),
        (
            ["play", "catch_memory"],
            "--config vtrace_lstm_cpu --total-steps 1e5 --game catch_memory",
        ),
        (["play", "PONG"], "did you mean the policy 'pong'?"),
        (["evaluate", "pon"], "did you mean the policy 'pong'? `jaxrl policies` lists"),
        (["plot", "pongg"], "did you mean the policy 'pong'?"),
        (["play", "zzzzzz"], "directory: `jaxrl policies` lists the policies that come with jaxrl"),
        (["resume", "pong"], "this needs a run"),
        (["watch", "pong", "--once"], "this needs a run"),
        (["export", "pong", "x.safetensors"], "this needs a run"),
        (["watch", "absent.safetensors"], "this needs a run"),
        (["resume", "runs"], "did you mean 'runs/boxing-2' or 'runs/boxing-1'?"),
        (["watch", "runs", "--once"], "did you mean 'runs/boxing-2'"),
        (["play", "runs"], "did you mean 'runs/boxing-2'"),
        (["resume", "latest"], "did you mean 'runs/boxing-2'?"),
        (["watch", "runs/zaxxon1"], "did you mean 'runs/zaxxon-1'?"),
        (["watch", "zaxxon-1"], "did you mean 'runs/zaxxon-1'?"),
        (["watch", "runs/zzzzzz"], "it has no config.toml"),
        (["watch", "x\0/y"], "x"),
    ],
)
def test_the_message_offers_what_is_probably_meant(words, message, here, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith(f"jaxrl: '{words[1]}'") or "\0" in words[1]
    assert error.count("\n") == 1


def test_the_directory_of_a_sweep_is_told_as_such(here, capsys):
    (here / "runs" / layout.SWEEP).write_text("[]")
    assert main(["resume", "runs"]) == 2
    error = "'runs' is no run directory: it is a sweep's: name one of its runs, as 'runs/boxing-2'"
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--game", "catch", "--config", "a2c_fast", "--run-dir", "gs://b/x"],
        ["train", "--game", "catch", "--config", "a2c_fast", "--run-dir=s3://b/x"],
        ["train", "--game", "catch", "--config", "a2c_fast", "--seeds", "1", "2", "--run-dir",
         "gs://b/x"],
        ["train", "--config", "gs://b/x.toml"],
        *(
            [name, "gs://b/x"]
            for name in ("resume", "watch", "evaluate", "play", "plot", "report", "search")
        ),
        ["compare", "runs/boxing-1", "gs://b/x"],
        ["evaluate", "runs/boxing-1", "--output", "gs://b/x.png"],
        ["play", "runs/boxing-1", "-o", "file:///tmp/x.mp4"],
        ["plot", "runs/boxing-1", "-o", "s3://b/x.png"],
        ["report", "runs/boxing-1", "-o", "https://b/x.html"],
        ["export", "runs/boxing-1", "gs://b/x.safetensors"],
        ["sweep", "--games", "catch", "--seeds", "1", "--configs", "a2c_fast", "--root", "gs://b/"],
        ["sweep", "--games", "catch", "--seeds", "1", "--configs", "gs://b/x.toml"],
        ["search", "study.toml", "--root", "gs://b/x"],
        ["bench", "--config", "a2c_fast", "--profile", "gs://b/x"],
        ["bench", "--suite", "--output", "gs://b/x"],
        ["tune", "--config", "a2c_fast", "--output", "gs://b/x.toml"],
        ["doctor", "--root", "gs://b/x"],
    ],
)  # fmt: skip
def test_addresses_of_storage_are_refused_everywhere(words, here, capsys):
    """A path made folders `gs:` of them, and training ended there in a traceback."""
    before = sorted(here.rglob("*"))
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "is not a local path" in error
    assert error.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_the_api_refuses_addresses_too(here):
    for read in (jaxrl.load_policy, jaxrl.load_runs, jaxrl.resume, jaxrl.load_config):
        with pytest.raises(UserError, match="is not a local path"):
            read("gs://b/x")
    with pytest.raises(UserError, match="is not a local path"):
        jaxrl.train("a2c_fast", game="catch", run_dir=Path("s3://b/x"))
    assert [path.name for path in here.iterdir()] == ["runs"]


def test_the_api_offers_the_same(here):
    with pytest.raises(UserError, match="'pongg' is no run directory: did you mean the policy 'po"):
        jaxrl.load_policy("pongg")
