"""Bad input ends in status 2 and one line, soon, and overwrites nothing."""

import dataclasses
import os
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from jaxrl.cli import doctor, main
from jaxrl.config.algorithms import shipped
from jaxrl.config.schema import Config
from jaxrl.experiments.doctor import machine
from jaxrl.training import train
from tests.conftest import CONFIGS
from tests.rotation import THOROUGH
from tests.runs.test_checkpoint import tree

# Of this process's own time. It takes one or two; this finds what would take for ever, as a busy
# machine doubles also that.
SECONDS = 10.0
# Configurations and command lines: a quick tier and a long one, which `make test-thorough` extends.
TIERS = [pytest.param(20), pytest.param(2000 if THOROUGH else 500, marks=pytest.mark.slow)]

KEYS = [field.name for field in dataclasses.fields(Config)]
SECTIONS = {
    "agent": sorted({f.name for kind in shipped().values() for f in dataclasses.fields(kind)}),
    "optimizer": [f.name for f in dataclasses.fields(Config().optimizer)],
    "network": [f.name for f in dataclasses.fields(Config().network)],
}
DOTTED = [k for k in KEYS if k not in SECTIONS] + [
    f"{section}.{key}" for section, keys in SECTIONS.items() for key in keys
]
ODD = st.text(max_size=12) | st.sampled_from(
    [
        "\u202e",
        "\u0000",
        "🎮",
        "ﬀ",
        "İ",
        "pong\n",
        "../..",
        "~",
        "$HOME",
        "%s%n",
        "-",
        "--",
        "=",
        "'",
        '"',
    ]
)
SCALARS = st.one_of(
    st.sampled_from(
        ["true", "false", "nan", "-inf", "inf", "1e400", "-1", "0", "9" * 30, "-" + "9" * 30, "1_0",
         "0x10", "1979-05-27", "[]", "[[1]]", "{}", '""', "'pong'", '"relu"', "0.1", "1e-300"]
    ),
    st.integers().map(str),
    st.floats().map(repr),
    ODD.map(lambda text: '"' + text.replace("\\", "").replace('"', "").replace("\n", "\\n") + '"'),
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(DOTTED), st.sampled_from(DOTTED).map(lambda key: key[:-1]), ODD)
LINES = st.tuples(NAMES, SCALARS).map(" = ".join)
RECIPES = [path.read_text() for path in sorted(CONFIGS.glob("*/*.toml"))]


@st.composite
def toml(draw):
    """Nearly a configuration: cut off, with wrong values, with lines that are none."""
    text = draw(st.sampled_from(["", *RECIPES]))
    if draw(st.booleans()):
        text = text[: draw(st.integers(0, len(text)))]
    extra = "\n".join(draw(st.lists(LINES | ODD, max_size=4)))
    return extra + "\n" + text if draw(st.booleans()) else text + "\n" + extra


@st.composite
def words(draw):
    """Nearly a command line."""
    flags = st.sampled_from(DOTTED).map(lambda key: "--" + key.replace("_", "-"))
    values = SCALARS.map(lambda text: text.strip('"')) | ODD
    command = draw(st.sampled_from([*main.COMMANDS, "trian", ""]))
    rest = draw(st.lists(flags | values | st.sampled_from(["--config", "--help="]), max_size=6))
    return [command, *rest]


@pytest.fixture
def nothing_starts(monkeypatch, tmp_path):
    """What is right by chance is not trained; relative paths stay below the test's directory."""
    accepted = []

    def started(*arguments, **_):
        accepted.append(arguments)
        return train.Outcome(Path("x"), 0, None)

    monkeypatch.setattr(train, "start", started)
    monkeypatch.setattr(train, "start_population", started)
    monkeypatch.setattr(train, "resume", started)
    for name in ("bench", "tune", "games"):  # without mistakes they measure or print for long
        monkeypatch.setitem(main.COMMANDS, name, main.COMMANDS["train"])
    # Its checks take a minute of processes; only how its words are read matters here.
    monkeypatch.setattr(doctor, "describe_apart", machine.describe)
    monkeypatch.setattr(doctor, "diagnose", lambda *_: (check for check in ()))
    here = tmp_path / "two" / "below"  # so that ../.. holds no runs of other tests
    here.mkdir(parents=True)
    (here / "precious").write_text("precious")
    monkeypatch.chdir(here)
    return accepted


def run(arguments, capsys):
    """Its status, checked: one line and no traceback where it is a mistake."""
    began = time.process_time()
    try:
        status = main.main(arguments)
    except SystemExit as ended:  # --help
        status = ended.code or 0
    seconds = time.process_time() - began
    said = capsys.readouterr()
    assert status in (0, 2), (arguments, status, said.err)
    assert "Traceback" not in said.err
    if status == 2:
        assert said.err.startswith("jaxrl: ")
        assert said.err.count("\n") == 1, said.err
        assert said.err.endswith("\n")
    assert seconds < SECONDS, (arguments, seconds)
    return status


def fuzz(strategy, count):
    settled = settings(
        max_examples=count, deadline=None, database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip
    return lambda test: settled(given(strategy)(test))


@pytest.mark.parametrize("count", TIERS)
def test_every_configuration_file_is_read_or_refused(nothing_starts, tmp_path, capsys, count):
    file, seen = tmp_path / "config.toml", []
    run(["train", "--total-steps", "x"], capsys)  # imports, which are not counted

    @fuzz(toml(), count)
    def test(text):
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        before = tree(tmp_path)
        seen.append(run(["train", "--config", str(file), "--run-dir", "new"], capsys))
        assert tree(tmp_path) == before

    test()
    assert seen.count(2) > count // 3  # most are mistakes
    assert 0 in seen
    assert len(nothing_starts) == seen.count(0)


@pytest.mark.parametrize("count", TIERS)
def test_every_command_line_is_read_or_refused(nothing_starts, tmp_path, capsys, count):
    seen = []
    run(["train", "--total-steps", "x"], capsys)
    before = tree(tmp_path)

    @fuzz(words(), count)
    def test(arguments):
        seen.append(run(arguments, capsys))
        assert tree(tmp_path) == before

    test()
    assert seen.count(2) > count // 3


def test_what_is_no_file_is_refused(nothing_starts, capsys):
    here = Path.cwd()
    (here / "folder.toml").mkdir()
    (here / "binary.toml").write_bytes(os.urandom(1000))
    (here / "bom.toml").write_bytes("﻿total_steps = 1".encode("utf-16"))
    (here / "loop.toml").symlink_to(here / "loop.toml")
    (here / "long.toml").write_text("total_steps = " + "1" * 5000)
    (here / "deep.toml").write_text("agent = " + "[" * 5000)
    names = [path.name for path in here.glob("*.toml")]
    for name in [*names, "missing.toml", "a" * 5000, "no\x00name", ""]:
        assert run(["train", "--config", name], capsys) == 2, name
    for name in ["missing", "precious", "folder.toml", "a" * 5000, "no\x00name", "loop.toml"]:
        for command in ("evaluate", "play", "plot"):
            assert run([command, name], capsys) == 2, (command, name)
    status = run(["train", "--game", "catch", "--run-dir", "precious"], capsys)
    assert status == 2
    assert Path("precious").read_text() == "precious"
    assert nothing_starts == []
