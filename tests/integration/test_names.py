"""Odd names of directories and files: a command works, or ends in one line with status 2."""

import json
import os
import shutil
from pathlib import Path

import optuna
import pytest

import jaxrl
from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.experiments import runner, search, search_plan
from jaxrl.formatting import no_option
from jaxrl.runs import checkpoint_files, evaluation_record, layout
from jaxrl.runs.directory import check_new_run
from tests.conftest import recipe_file
from tests.experiments.test_sweep import planned
from tests.runs.test_checkpoint import tree
from tests.survival import SMALL

LONGEST = "x" * 255  # bytes of a name in most file systems
NAMES = [
    "r[1]", "[!a]*", "*", "a?b", "\\", "r\\x", "new\nline", " two  spaces ", "ü🎮", "-dash",
    "--json", "#x%20?y=1&z", "%s%d{0}", "[red]x", "'\"", "$HOME", "~", LONGEST, LONGEST + "x",
]  # fmt: skip
STUDY = """
config = "a2c_fast"
game = "catch"
[search]
optimizer.learning_rate = [1e-3, 1e-2]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, with a file that nothing may change."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    monkeypatch.chdir(folder)
    yield folder
    assert (folder / "precious").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["here"]  # nothing was written elsewhere


@pytest.fixture
def call(capsys):
    """Runs a command; returns what it printed, or nothing where it refused in one line."""

    def run(*words):
        status = main(list(map(str, words)))
        printed, errors = capsys.readouterr()
        assert status in (0, 2), (words, errors)
        assert "Traceback" not in errors
        if status == 2:
            assert errors.startswith("jaxrl: "), errors
            assert errors.count("\n") == 1, errors
        return printed if status == 0 else ""

    return run


def exists(path):
    """Whether a path is there; no where no file system has such a name."""
    return os.path.exists(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_any_name_is_read(trained, here, call, name):
    if len(name) > 255:
        assert not call("resume", name)
        assert not call("evaluate", name, "--recorded")
        return
    shutil.copytree(trained, here / name)
    before, given = tree(here / name), no_option(name)
    assert call("watch", given, "--once")
    assert call("export", given, "x.safetensors")
    call("resume", given)
    assert not call("evaluate", given, "--recorded")  # it has none
    assert list(jaxrl.load_runs(name).step) == [200, 400]
    if given != name:  # taken for an option
        assert not call("watch", name, "--once")
    assert tree(here / name) == before


def fitting(name, suffix):
    """A file's name; that of a long one has as many bytes as itself."""
    return name[: len(name) - len(suffix)] + suffix if LONGEST in name else name + suffix


WRITERS = {".safetensors": ["export", "r"], ".json": ["evaluate", "r", "--recorded"]}
DRAWN = {
    ".png": ["plot", "r"], ".html": ["report", "r"], ".gif": ["play", "r"], ".mp4": ["play", "r"],
}  # fmt: skip


def write(here, call, command, name):
    """Lets a command write a file of a name; what it says it wrote is there."""
    before = {path.name for path in here.iterdir()}
    option = [name] if command[0] == "export" else [f"--output={name}"]
    wrote = bool(call(*command, *option))
    assert wrote == exists(here / name), (command, name)
    if not wrote:
        assert {path.name for path in here.iterdir()} == before  # no temporary file


@pytest.fixture
def evaluated(trained, here):
    """A run with an evaluation, called `r`."""
    shutil.copytree(trained, here / "r")
    result = {
        "game": "catch", "protocol": "noop", "step": 400, "scores": [1.0], "lengths": [9],
    }  # fmt: skip
    (here / "r" / layout.EVALUATION).write_text(json.dumps(result))


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.slow
def test_outputs_of_any_name(evaluated, here, call, suffix):
    for name in NAMES:
        write(here, call, WRITERS[suffix], fitting(name, suffix))


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize("suffix", DRAWN)
def test_pictures_of_any_name(evaluated, here, call, suffix):
    for name in ("r[1]", "-dash\n", "ü🎮\\", "a:b%03d#?"):
        write(here, call, DRAWN[suffix], fitting(name, suffix))


@pytest.mark.parametrize("name", NAMES)
def test_files_of_any_name_are_read(here, call, name):
    config, study = fitting(name, ".toml"), fitting(name, ".study.toml")
    if len(name) <= 255:
        shutil.copy(recipe_file("a2c_fast"), config)
        Path(study).write_text(STUDY)
    before = tree(here)
    sweep_words = ["sweep", "--games", "catch", "--seeds", "1", "--dry-run"]
    call(*sweep_words, f"--configs={config}")
    call(*sweep_words, "--configs", "a2c_fast", f"--root={name}")
    read = call("search", no_option(study), "--dry-run")
    assert bool(read) == (len(name) <= 255)
    call("search", no_option(study), f"--root={name}", "--dry-run")
    assert not call("train", f"--config={config}", "--game", "catch", "--total-steps", "x")
    assert tree(here) == before


@pytest.mark.parametrize("name", ["r?x#%41", "r[1]", "\\"])
def test_a_study_of_any_name_is_where_it_belongs(here, name):
    """Its file is named by an address, of which a question mark could be the end."""
    Path("s.toml").write_text(STUDY)
    Path(name).mkdir()
    plan = search_plan.load(Path("s.toml"))
    study = search.open_study(plan, Path(name))
    assert isinstance(study, optuna.Study)
    assert (here / name / layout.STUDY).is_file()
    assert search.open_study(plan, Path(name)).trials[0].system_attrs
    assert sorted(path.name for path in here.iterdir()) == sorted(["precious", "s.toml", name])


def test_a_member_s_directory_is_no_option(here):
    (member,) = planned(Path("-s"), games=("catch",), seeds=(7,))
    words = runner.command(member)
    assert words[words.index("--run-dir") + 1] == "./-s/a2c_fast-catch-seed7"
    assert words[words.index("--config") + 1] == "./-s/a2c_fast.toml"
    member.run_dir.mkdir(parents=True)
    (member.run_dir / layout.CONFIG).touch()
    assert "./-s/a2c_fast-catch-seed7" in runner.command(member)


def test_commands_in_messages_can_be_repeated(trained, here):
    """With quotes where a shell needs them, and no name that is taken for an option."""
    shutil.copytree(trained, here / "-a [1]")
    with pytest.raises(UserError, match=r"or `jaxrl resume './-a \[1\]'`$"):
        check_new_run(Config(run_dir="-a [1]"))
    with pytest.raises(UserError, match=r"run `jaxrl evaluate './-a \[1\]'`$"):
        evaluation_record.read(Path("-a [1]"))


@pytest.mark.slow
def test_a_run_directory_that_looks_like_an_option_is_trained_in(here, call):
    short = ["train", *SMALL, "--log.interval", "200", "--total-steps", "400"]
    call(*short, "--run-dir=-r[1]")
    assert checkpoint_files.survey(Path("-r[1]")) == checkpoint_files.Survey([400], {})


def test_names_that_no_run_can_have_are_refused(here, call):
    for seeds in ([], ["--seeds", "1", "2"]):
        assert not call("train", *SMALL, *seeds, f"--run-dir={LONGEST}x")
    with pytest.raises(UserError, match="codec can't encode"):  # config.toml could not be read
        check_new_run(Config(run_dir="\udcff"))
    assert [path.name for path in here.iterdir()] == ["precious"]
