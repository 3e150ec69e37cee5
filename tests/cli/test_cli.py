"""A user's mistake: exit status 2, one line that says what to do, nothing written."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys

import jax
import pytest

import jaxrl
from jaxrl.cli.main import COMMANDS, main
from jaxrl.cli.outcome import print_error
from jaxrl.runs.files import writing
from tests.conftest import CONFIGS

TOO_LARGE = ["train", "--config", f"{CONFIGS}/c51/c51.toml", "--agent.replay-capacity", "1e9"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "did you mean 'train'?"),
        (["train", "--game", "pogn"], "unknown game 'pogn': did you mean pong"),
        (["train", "--nmu-envs", "3"], "did you mean --num-envs?"),
        (["train", "--num-devices", "3"], "did you mean --parallel.num-devices?"),
        (["train", "--log-interval", "3"], "did you mean --log.interval?"),
        (["train", "--engine", "xla"], "did you mean --env.interface?"),
        (["train", "--num-envs", "3.5"], "--num-envs: '3.5' is not a whole number"),
        (["train", "--learning-rate", "1"], "did you mean --optimizer.learning-rate?"),
        (["train", "--network.no-duelling"], "did you mean --network.no-dueling?"),
        (["train", "--no-env.reward-clip"], "did you mean --env.no-reward-clip?"),
        (["train", "--no_env.reward_clip"], "did you mean --env.no-reward-clip?"),
        (["train", "--no-agent.double-q"], "it belongs to "),
        (["train", "pong"], "unexpected argument 'pong': did you mean --game pong?"),
        (["train", "--env.grayscale", "false"], "has no value: --section.key or --section.no-key"),
        (["train", "ALE/Pong-v5"], "did you mean --game pong?"),
        (["train", "ppo_pong"], "did you mean --config ppo_pong?"),
        (["train", "now"], "unexpected argument 'now' (jaxrl train --help"),
        (["train", "--lr", "1e-3"], "did you mean --optimizer.learning-rate?"),
        (["train", "--timesteps", "1e6"], "did you mean --total-steps?"),
        (["train", "--total-timesteps", "1e6"], "did you mean --total-steps?"),
        (["train", "--total_timesteps=1e6"], "did you mean --total-steps?"),
        (["train", "--env", "pong"], "did you mean --game?"),
        (["train", "--env-id", "ALE/Pong-v5"], "did you mean --game?"),
        (["train", "--n-steps", "5"], "did you mean --agent.rollout-length?"),
        (["train", "--agent.n-steps", "5"], "did you mean --agent.rollout-length?"),
        (["train", "--device", "cuda"], "unknown option '--device': JAX takes a GPU by itself"),
        (["train", "--gpu", "0"], "unknown option '--gpu': JAX takes a GPU by itself"),
        (["train", "--batch-size", "64"], "--num-envs times --agent.rollout-length"),
        (["train", "--config", "dqn", "--batch-size", "64"], "did you mean --agent.batch-size?"),
        (["train", "--optimizer.learning-rate", "abc"], "learning-rate: 'abc' is not a number ("),
        (["train", "--config", "{here}/timesteps.toml"], "did you mean 'total_steps'?"),
        (["train", "--total-steps", "1M"], "'1M' is not a whole number: write 1e6 ("),
        (["train", "--total-steps", "2.5k"], "write 2.5e3"),
        (
            ["train", "--config", "{here}/hyphen.toml"],
            "it belongs in [optimizer], as 'optimizer.learning_rate'",
        ),
        (["train", "--config", "{here}/steps.toml"], "must be a whole number: write 1e6"),
        (["train", "--game", "PongNoFrameskip-v4x"], "unknown game 'PongNoFrameskip-v4x'"),
        (["sweep", "--gmaes", "pong"], "did you mean --games?"),
        (["sweep", "--games", "pong"], "--seeds, --configs are required"),
        (["bench", "--suite", "--minuts", "1"], "--minutes? (jaxrl bench --suite --help"),
        (["train", "--total-steps", "1.5e0"], "not a whole number"),
        (["train", "--total-steps", "1e999"], "not a whole number"),
        (["train", "--total-steps"], "--total-steps needs a value"),
        (
            ["train", "--network.torso", "resnet"],
            "network.torso = 'resnet': must be one of nips, nature, gamma, hadamax, "
            "gamma_hadamax, impala; no installed",
        ),
        (["train", "--algorithm", "ppo"], "take one of configs/, as --config ppo"),
        (
            ["train", "--algorithm", "btr"],
            "is a configuration, which has its algorithm: give it by --config btr",
        ),
        (["train", "--config", "{here}/stem.toml"], "algorithm = 'btr': is a configuration, which"),
        (["train", "--algorithm", "rainbov"], "algorithm = 'rainbov': jaxrl has none of this name"),
        (
            ["train", "--config", f"{CONFIGS}/ppo/ppo.toml", "--agent.num-minibatches", "3"],
            "take 2",
        ),
        (
            ["train", "--config", f"{CONFIGS}/ppo/ppo.toml", "--agent.log-epsilon", "1"],
            "belongs to a2c",
        ),
        (
            ["train", "--agent.training-intensity", "1"],
            "belongs to dqn, c51, qr_dqn, iqn and r2d2 (jaxrl train --help",
        ),
        (["train", "--config", f"{CONFIGS}/ppo/ppo.toml", "--nmu-envs", "3"], "ppo.toml --help"),
        (["train", "--config", f"{CONFIGS}/ppo/poo.toml"], "/ppo.toml'?"),
        (["train", "--config", f"{CONFIGS}/rainbow"], "/rainbow.toml'?"),
        (
            [*TOO_LARGE, "--parallel.num-devices", "1"],
            "or twice as much with --checkpoint.no-memory",
        ),
        (["train", "--num-envs", "3", "--parallel.num-devices", "2"], "take 2 or 4"),
        (
            ["train", "--agent.micro-batch", "7", "--game", "catch", "--parallel.num-devices", "1"],
            "take 8",
        ),
        (["train", "--config", "absent.toml"], "no configuration file"),
        (["train", "--env.noop-max", "0"], "noop_max = 0: must be at least 1"),
        (["train", "--run-dir", "{here}"], "exists: choose another --run-dir"),
        (["train", "--run-dir", "{here}/file"], "/file' is a file: choose another --run-dir"),
        (
            ["train", "--config", "a2c", "--run-dir", "{here}/file/x"],
            "/file/x': Not a directory: choose another --run-dir",
        ),
        (
            ["train", "--config", "a2c", "--run-dir", "/proc/x"],
            "cannot write the run directory '/proc/x': No such file or directory: choose another",
        ),
        (["train", "--config", "{here}/bad.toml"], "unknown key 'num_evns': did you mean"),
        (["resume", "{here}/none"], "is no run directory"),
        (["resume", "x", "--total-steps", "2e6"], "change it by --override total_steps=2e6 ("),
        (["resume", "x", "--total-steps=2e6"], "change it by --override total_steps=2e6 ("),
        (["resume", "x", "--total_timesteps", "2e6"], "by --override total_steps=2e6 ("),
        (["resume", "x", "--total-steps"], "by --override total_steps=VALUE ("),
        (["resume", "x", "--lr", "1e-4"], "by --override optimizer.learning_rate=1e-4 ("),
        (["resume", "x", "--agent.clip", "0.2"], "by --override agent.clip=0.2 ("),
        (["resume", "x", "--num-envs", "8"], "a run keeps its num_envs: train a new one ("),
        (["resume", "x", "--network.torso", "nips"], "a run keeps its network.torso: train a new"),
        (["resume", "x", "--parallel.num-devices", "2"], "did you mean --num-devices?"),
        (["resume", "x", "--overide", "seed=2"], "unknown option '--overide': did you mean --ov"),
        (["evaluate", "{here}"], "is no run directory"),
        (["evaluate", "{here}", "--protocol", "human"], "must be one of noop, sticky"),
        (["evaluate", "{here}", "--episodes", "0"], "must be at least 1"),
        (["evaluate", "{here}", "--epsilon", "1.5"], "must be from 0 to 1"),
        (["evaluate", "{here}", "--epsilon", "0.1", "--recorded"], "leave one of them out"),
        (["play", "{here}"], "is no run directory"),
        (["play"], "required"),
        (
            ["play", "{here}/a/b/run", "--checkpoint", "last"],
            "must be an agent step, latest or best",
        ),
        (["play", "{here}/a/b/run", "--checkpoint", "newest"], "checkpoint = newest: must be an"),
        (["evaluate", "{here}/a/b/run", "--checkpoint", "-3"], "checkpoint = -3"),
        (["plot"], "run director"),
        (["plot", "{here}", "{here}"], "-o comparison.png"),
        (["plot", "{here}"], "is no run directory"),
        (["bench", "--game", "pogn"], "did you mean pong"),
        (["bench", "--repeats", "0"], "must be at least 1"),
    ],
)
def test_mistakes_end_in_one_line_and_status_two(arguments, message, tmp_path, capsys):
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "bad.toml").write_text("num_evns = 3")
    (tmp_path / "timesteps.toml").write_text("total-timesteps = 1e6")
    (tmp_path / "hyphen.toml").write_text("learning-rate = 1e-3")
    (tmp_path / "steps.toml").write_text('total_steps = "1M"')
    (tmp_path / "stem.toml").write_text('algorithm = "btr"')
    (tmp_path / "a" / "b" / "run").mkdir(parents=True)
    (tmp_path / "a" / "b" / "run" / "config.toml").write_text('game = "catch"')
    before = sorted(tmp_path.iterdir())
    assert main([a.replace("{here}", str(tmp_path)) for a in arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"Example: jaxrl {command}" in " ".join(capsys.readouterr().out.split())


def test_help_is_a_command_too(capsys):
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: jaxrl COMMAND")
    with pytest.raises(SystemExit) as ended:
        main(["help", "train"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: jaxrl train [OPTIONS]")


def test_the_version_is_the_package_s(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxrl {jaxrl.__version__}\n"


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_devices_that_are_not_there_are_refused_in_one_line(tmp_path):
    """JAX raises an AssertionError, or a RuntimeError, with a traceback of its own."""
    run_dir = str(tmp_path / "x")
    words = [sys.executable, "-m", "jaxrl", "train", "--game", "catch", "--run-dir", run_dir]
    ended = subprocess.run(words, env=os.environ | {"JAX_PLATFORMS": "cuda"}, check=False,
                           capture_output=True, text=True)  # fmt: skip
    if jax.devices()[0].platform == "cpu":
        assert ended.returncode == 2
        assert "JAX_PLATFORMS = cuda: JAX finds no such device here" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_help_lists_the_commands(capsys):
    assert main([]) == 0
    output = capsys.readouterr().out
    assert all(command in output for command in COMMANDS)


def test_files_that_are_no_configurations_are_left_out_of_the_list(tmp_path, capsys, monkeypatch):
    """Many projects have a folder configs/ with files of other programs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    for name, text in (("mine", "num_envs = 3"), ("other", "[tool]\nx = 1"), ("broken", "]")):
        (tmp_path / "configs" / f"{name}.toml").write_text(text)
    for words in (["--names"], []):
        assert main(["configs", *words]) == 0
        out, errors = capsys.readouterr()
        stems = {line.split()[0] for line in out.splitlines()}
        assert {"mine", "ppo_pong"} <= stems
        assert not {"other", "broken"} & stems
        broken, other = errors.splitlines()
        assert broken.startswith("left out: 'configs/broken.toml' is not valid TOML")
        assert other.startswith("left out: 'configs/other.toml': unknown key 'tool'")


def test_examples_in_help_name_configurations_that_a_wheel_has(capsys):
    """By their stems: the files are those of a checkout."""
    assert main([]) == 0
    examples = [capsys.readouterr().out, *(c.arguments.__doc__ for c in COMMANDS.values())]
    assert not [text for text in examples if "configs/" in text.partition("Example:")[2]]


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.EFBIG, 74), (errno.EDQUOT, 74), (errno.EROFS, 74), (errno.ENAMETOOLONG, 2),
     (errno.EISDIR, 2), (errno.ENOTDIR, 2), (errno.EEXIST, 2), (errno.ELOOP, 2)],
)  # fmt: skip
def test_a_path_that_cannot_be_used_is_one_line(number, status, capsys):
    assert print_error(OSError(number, os.strerror(number), "x")) == status
    output = capsys.readouterr().err
    assert output == f"jaxrl: cannot read or write 'x': {os.strerror(number)}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_killed_command_leaves_no_temporary_file(tmp_path, monkeypatch, number):
    before = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGTERM, signal.SIGHUP)}

    def killed(_):
        with writing(tmp_path / "x.mp4") as temporary:
            temporary.write_text("half")
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)  # `timeout` sends it twice

    monkeypatch.setitem(COMMANDS, "games", dataclasses.replace(COMMANDS["games"], run=killed))
    try:
        with pytest.raises(SystemExit) as ended:
            main(["games"])
        assert ended.value.code == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
        assert not list(tmp_path.iterdir())
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)


def test_commands_that_save_after_a_signal_handle_it_themselves():
    handle = {name for name, command in COMMANDS.items() if command.handles_signals}
    assert handle == {"train", "resume", "sweep", "search"}
    assert COMMANDS["bench"].by_option["--suite"].handles_signals
