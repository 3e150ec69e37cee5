"""The help of a command: every option of tyro's, wrapped by the width of the terminal."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tyro

from jaxrl.cli import help as help_page
from jaxrl.cli import parsing
from jaxrl.cli.main import COMMANDS, main
from jaxrl.cli.options import options_of
from jaxrl.cli.suite import Suite
from jaxrl.cli.train import Train
from jaxrl.config import descriptions
from jaxrl.config.schema import Config
from tests.conftest import CONFIGS

KINDS = {name: command.arguments for name, command in COMMANDS.items()} | {"bench --suite": Suite}
FLAG = r"(?<![\w-])--[a-z][\w.-]*"
WITHOUT_JAX = """
import contextlib, sys
from jaxrl.cli.main import COMMANDS, main

calls = [["--help"], ["--version"], ["trian"], ["completion", "bash"]]
calls += [["bench", "--suite", "--help"]]
calls += [[name, option] for name in COMMANDS for option in ("--help", "--hlep")]
for call in calls:
    with contextlib.suppress(SystemExit):
        main(call)
    loaded = {"jax", "flax", "orbax", "envpool"} & set(sys.modules)
    assert not loaded, (call, loaded)
"""


def shown(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", KINDS)
def test_lines_are_wrapped_by_the_terminal_and_not_by_the_source(command, monkeypatch, capsys):
    pages = {}
    for width in (80, 140, 1000):
        monkeypatch.setenv("COLUMNS", str(width))
        pages[width] = shown(command.split(), capsys)
        lines = pages[width].splitlines()
        assert max(len(line) for line in lines if not line.startswith("Example: ")) <= width
    assert pages[80].split() == pages[140].split() == pages[1000].split()
    # Where there is room for all, each option has a line; the longest names have two.
    texts = [line for line in pages[1000].splitlines() if line.startswith(" " * 30)]
    names = [line for line in pages[1000].splitlines() if line.startswith("  -")]
    assert len(texts) == len([line for line in names if not re.search(r"[^ ]  +[^ ]", line)])


@pytest.mark.parametrize("command", KINDS)
def test_it_lists_every_option_that_tyro_reads(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    kind = KINDS[command]
    part = kind(settings=Config()) if "settings" in kind.__dataclass_fields__ else None
    flags = {name for option in options_of(part or kind) for name in option.names if name != "-o"}
    default = {} if part is None else {"default": part}
    with parsing._REGISTRY, pytest.raises(SystemExit):
        tyro.cli(tyro.conf.AvoidSubcommands[kind], args=["--help"], **default)
    read = set(re.findall(FLAG, capsys.readouterr().out))
    assert flags <= read
    assert read == set(re.findall(FLAG, shown(command.split(), capsys)))


def test_a_dozen_comes_first_and_each_option_once(capsys):
    page = shown(["train"], capsys)
    first, _, rest = page.partition("\nrun options:")
    title = f"{help_page.FIRST_TITLE}:\n"
    listed = re.findall(rf"(?m)^  ({FLAG})", first.partition(title)[2])
    assert listed == list(Train.first_options)
    assert len(listed) == 12
    others = re.findall(rf"(?m)^  ({FLAG})", rest)
    assert len(others) == len(set(others))
    assert not set(others) & set(listed)
    assert {"--env.interface", "--agent.rollout-length", "--coordinator"} <= set(others)


def test_it_shows_the_defaults_of_the_configuration_as_they_are_typed(capsys):
    page = " ".join(shown(["train", "--config", f"{CONFIGS}/ppo/ppo_pong.toml"], capsys).split())
    assert "(default: 1_000_000)" in page
    assert "--agent.num-minibatches INT" in page
    assert "--run-dir STR directory to create for the run; default runs/GAME" in page
    assert "default: None" not in page
    assert "(default: true)" in page


def test_arguments_without_a_name_stand_in_the_usage(capsys):
    page = shown(["export"], capsys)
    assert page.startswith("usage: jaxrl export RUN_DIR POLICY.safetensors [OPTIONS]\n")
    assert "arguments:\n  RUN_DIR  " in page


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_list_of_commands_fits_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line for line in lines if line.startswith("  ")]
    assert max(map(len, listed)) <= width
    assert len([line for line in listed if not line.startswith("   ")]) == len(COMMANDS)


def test_the_list_of_commands_has_each_in_one_group(capsys):
    assert main(["--help"]) == 0
    _, *groups, _ = capsys.readouterr().out.split("\n\n")
    listed = {}
    for group in groups[1:]:
        title, *lines = group.splitlines()
        listed[title] = [line.split()[0] for line in lines if line[2] != " "]
    assert listed["train:"] == ["train", "resume", "sweep", "search"]
    assert len(listed) == 4
    assert [name for names in listed.values() for name in names] == list(COMMANDS)


def test_help_does_not_need_docstrings(monkeypatch, capsys):
    """`python -OO` drops them, and a dataclass then has its signature there."""

    def pages():
        assert main(["--help"]) == 0
        return [capsys.readouterr().out, *(shown([name], capsys) for name in ("evaluate", "train"))]

    expected = pages()
    assert "Play whole games by a named protocol" in expected[1]
    flags = SimpleNamespace(optimize=2)
    monkeypatch.setattr(descriptions, "sys", SimpleNamespace(flags=flags))
    for command in COMMANDS.values():
        monkeypatch.setattr(command.arguments, "__doc__", "Train(settings: int = 1)")
    monkeypatch.setattr(Config, "__doc__", None)
    assert pages() == expected


def test_help_completion_and_mistakes_do_not_import_jax():
    """They would take twice as long."""
    command = [sys.executable, "-c", WITHOUT_JAX]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    mistakes = ended.stderr.splitlines()
    assert len(mistakes) == 1 + len(COMMANDS)
    assert all(line.startswith("jaxrl: ") for line in mistakes)
