"""The script of `jaxrl completion` completes commands, options and values, in bash and in zsh."""

import shlex
import shutil
import subprocess

import pytest

from jaxrl.cli import completion
from jaxrl.cli.main import COMMANDS, main

ASK = """
COMP_WORDS=({words}) COMP_CWORD={place} COMPREPLY=()
_jaxrl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script():
    return completion.script(COMMANDS)


def offered(script, *words):
    ask = ASK.format(words=shlex.join(["jaxrl", *words]), place=len(words))
    command = ["bash", "--norc", "-u", "-c", script + ask]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_script_is_valid(script):
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["--v"], ["--version"]),
        (["train", "--optimizer.le"], ["--optimizer.learning-rate"]),
        (["train", "--optimizer.no-e"], ["--optimizer.no-eps-inside-root"]),
        (["train", "--game", "pon"], ["pong"]),
        (
            ["train", "--network.torso", ""],
            ["nips", "nature", "gamma", "hadamax", "gamma_hadamax", "impala"],
        ),
        (["train", "--seed", ""], []),
        (["train", "--agent.gae"], ["--agent.gae-lambda"]),  # PPO's
        (["train", "--config", "ppo_"], ["ppo_breakout", "ppo_fast", "ppo_lstm", "ppo_pong"]),
        (["sweep", "--games", "pong", "atari"], ["atari5", "atari57"]),
        (["bench", "--min"], ["--minutes"]),  # of bench --suite
        (["evaluate", "runs/x", "--protocol", "s"], ["sticky"]),
        (["completion", ""], ["bash", "zsh"]),
        (["play", "runs/"], []),  # where bash completes the path
        (["unknown", "--"], []),
    ],
)
def test_it_completes(words, expected, script):
    assert offered(script, *words) == expected


def test_it_knows_every_command(script):
    assert offered(script, "") == [*COMMANDS, "--help", "--version"]
    assert all(offered(script, name, "--he") == ["--help"] for name in ("train", "completion"))


def test_the_command_prints_it(script, capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out == completion.ZSH_SETUP + script
    assert main(["completion", "tcsh"]) == 2
    assert "{bash,zsh} tcsh: must be one of bash, zsh" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not here")
def test_zsh_reads_it(script):
    ask = completion.ZSH_SETUP + script + "print ${_comps[jaxrl]}"
    done = subprocess.run(["zsh", "-f", "-c", ask], capture_output=True, text=True, check=True)
    assert "_jaxrl" in done.stdout
