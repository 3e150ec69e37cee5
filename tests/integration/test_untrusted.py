"""Run directories are data: nothing in them is executed, and no path in them leads out."""

import json
import os
import pickle

import pytest

from jaxrl.cli.main import main
from jaxrl.runs import checkpoint_files, checksums, layout
from tests.runs.test_checkpoint import tree
from tests.survival import SMALL


class Bomb:
    """Its pickle makes a directory when it is read."""

    def __init__(self, target):
        self._target = str(target)

    def __reduce__(self):
        return os.mkdir, (self._target,)


def commands(run_dir):
    yield ["evaluate", run_dir, "--episodes", "1"]
    yield ["play", run_dir, "--max-seconds", "1"]
    yield ["plot", run_dir]
    yield ["resume", run_dir, "--override", "total_steps=600"]
    yield ["train", "--config", run_dir / "config.toml", "--run-dir", run_dir / "new"]


def kinds_of_files(run_dir):
    """One file of each kind that a run leaves, by its path; all of a checkpoint's."""
    names = {str(p.relative_to(run_dir)) for p in run_dir.rglob("*") if p.is_file()}
    return sorted(name for name in names if not name.startswith("learning_curve"))


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_malicious_pickle_is_executed_nowhere(run_dir, tmp_path, monkeypatch, capsys):
    """In place of each file, with sums that agree, every command that reads it."""
    fired = tmp_path / "fired"
    bomb = pickle.dumps(Bomb(fired))
    pickle.loads(bomb)
    fired.rmdir()  # it would have worked

    def refuse(*_):
        raise AssertionError("something reads a pickle")

    whole = {}
    for name in kinds_of_files(run_dir):
        whole[name] = (run_dir / name).read_bytes()
    assert len(whole) > 20
    # What JAX itself pickles to compile is no file of a run.
    monkeypatch.setattr(pickle, "load", refuse)
    folder = run_dir / "checkpoints" / "400"
    for name, data in whole.items():
        (run_dir / name).write_bytes(bomb)
        if name.startswith("checkpoints/400") and not name.endswith(layout.CHECKSUMS):
            checksums.write(folder)
        for command in commands(run_dir):
            if (
                (command[0] == "resume" and name in (layout.METRICS, "config.toml"))
                or (name.startswith("checkpoints") and command[0] in ("evaluate", "resume"))
                or command[0] == "plot"
            ):
                status = main(list(map(str, command)))
                error = capsys.readouterr().err
                assert "Traceback" not in error, (name, command, error)
                assert status in (0, 1, 2, 65), (name, command, status)
        assert not fired.exists(), name
        (run_dir / name).write_bytes(data)
        checksums.write(folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (layout.METRICS, "[1]\n"),
        (layout.METRICS, '{"step": "3"}\n'),
        (layout.METRICS, "nonsense\n"),
        (layout.METRICS, "[" * 100_000 + "\n"),
        (layout.METRICS, '{"step": 1, "frames": 4, "seconds": 1, "return_mean": [2]}\n'),
        ("config.toml", "game = 3\n"),
        ("config.toml", "a" + "[" * 20_000 + "\n"),
        ("provenance.json", "[]"),
        ("provenance.json", '{"resumed": 3}'),
    ],
)
def test_nonsense_is_told_in_one_line(run_dir, capsys, name, text):
    (run_dir / name).write_text(text)
    reads = "plot" if name == layout.METRICS else "resume"
    status = main([reads, str(run_dir)])
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    if name == "provenance.json":
        assert status == 0
    else:
        assert status == 2
        assert len(errors.splitlines()) == 1


@pytest.mark.slow
def test_the_run_directory_in_a_configuration_leads_nowhere(run_dir, tmp_path):
    """A directory may be moved; what goes on is written where it is."""
    text = (run_dir / "config.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("run_dir")]
    outside = tmp_path / "outside"
    (run_dir / "config.toml").write_text(f'run_dir = "{outside}"\n' + "\n".join(lines))
    assert main(["resume", str(run_dir), "--override", "total_steps=600"]) == 0
    assert main(["evaluate", str(run_dir), "--episodes", "1"]) == 0
    assert not outside.exists()
    assert checkpoint_files.steps(run_dir)[-1] == 600


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluation.json", "checkpoints", "lock"])
def test_links_that_lead_out_are_refused(run_dir, tmp_path, capsys, name):
    outside = tmp_path / "precious"
    if (run_dir / name).is_dir():
        (run_dir / name).rename(outside)
    else:
        outside.write_text("precious")
        (run_dir / name).unlink(missing_ok=True)
    (run_dir / name).symlink_to(outside)
    before = tree(outside) if outside.is_dir() else outside.read_text()
    for command in (
        ["resume", "--override", "total_steps=600"], ["evaluate", "--episodes", "1"], ["plot"],
    ):  # fmt: skip
        assert main([command[0], str(run_dir), *command[1:]]) == 2
        assert "is a link out of the run directory" in capsys.readouterr().err
    assert (tree(outside) if outside.is_dir() else outside.read_text()) == before


def test_names_in_the_sums_lead_nowhere(run_dir, tmp_path):
    """A line that names a file outside names one that is not there."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = run_dir / "checkpoints" / "400"
    name = os.path.relpath(secret, folder)
    with (folder / layout.CHECKSUMS).open("a") as file:
        file.write(f"{checksums._sum(secret)}  {name}\n")
    assert checksums.damage(folder) == f"{name} is missing"


@pytest.mark.parametrize(
    "said",
    [
        [], {}, {"format": "x"}, {"format": 6}, {"format": None},
        {"format": 6, "devices": [], "config": {}, "seconds": 0, "step": 1},
        {"format": 6, "devices": 1, "config": 3, "seconds": 0, "step": 1},
        {"format": 6, "devices": 1, "config": {}, "seconds": 0, "step": 1, "else": 2},
        {"format": 6, "devices": 1, "config": {"game": 7}, "seconds": 0, "step": 400,
         "updates": 20, "episodes": 3},
        {"format": 6, "devices": 1, "config": {"nonsense": 7}, "seconds": 0, "step": 400,
         "updates": 20, "episodes": 3},
    ],
)  # fmt: skip
def test_what_a_checkpoint_says_of_itself_is_checked(run_dir, capsys, said):
    folder = run_dir / "checkpoints" / "400"
    (folder / "progress" / "metadata").write_text(json.dumps(said))
    checksums.write(folder)
    before = tree(run_dir)
    assert main(["resume", str(run_dir)]) in (2, 65)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxrl: ")
    assert tree(run_dir) == before


def test_a_new_run_does_not_write_through_a_lock(tmp_path, capsys):
    (tmp_path / "x").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x" / "lock").symlink_to(tmp_path / "precious")
    assert main(["train", *SMALL, "--run-dir", str(tmp_path / "x")]) == 2
    assert "is a link out of the run directory" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "precious"
