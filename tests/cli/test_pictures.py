"""`jaxrl plot` and `jaxrl report`: what they draw of folders in which some runs have no metrics."""

import contextlib
import errno
import os
import tempfile

import imageio.v2 as imageio
import pytest

from jaxrl.analysis import curves
from jaxrl.cli.main import main
from jaxrl.cli.parsing import check_target
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from tests.analysis.test_curves import make_run
from tests.runs.test_files import growing_to


@pytest.fixture
def sweep(tmp_path):
    """A folder of three runs: one with games, one that has not begun, and a damaged one."""
    root = tmp_path / "sweep"
    make_run(root / "pong-x-seed1", [1.0, 2.0], Config(seed=1))
    make_run(root / "pong-x-seed2", [1.0], Config(seed=2)).joinpath("metrics.jsonl").unlink()
    (make_run(root / "pong-x-seed3", [1.0], Config(seed=3)) / "metrics.jsonl").write_text("{}\n")
    return root


def test_runs_of_a_folder_that_cannot_be_drawn_are_left_out_and_named(sweep, tmp_path, capsys):
    for command, target in (("plot", tmp_path / "x.png"), ("report", tmp_path / "x.html")):
        assert main([command, str(sweep), "-o", str(target)]) == 0
        output = capsys.readouterr()
        assert output.out == f"{target}\n"
        first, second, *rest = output.err.splitlines()
        assert first == "jaxrl: left out 'pong-x-seed2': no metrics.jsonl yet"
        assert "left out 'pong-x-seed3'" in second
        assert "line 1: has no number 'step'" in second
        assert ["no video is in the page" in line for line in rest] == [True] * (
            command == "report"
        )
    assert "2 runs are left out" in (tmp_path / "x.html").read_text()


def test_a_report_without_a_video_says_which_command_makes_one(sweep, tmp_path, capsys):
    run_dir, target = str(sweep / "pong-x-seed1"), str(tmp_path / "x.html")
    assert main(["report", run_dir, "-o", target, "--no-video"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["report", run_dir, "-o", target]) == 0
    assert "`jaxrl play RUN_DIR` makes that of a run" in capsys.readouterr().err
    (sweep / "pong-x-seed1" / "video.mp4").write_bytes(b"film")
    assert main(["report", run_dir, "-o", target]) == 0
    assert capsys.readouterr().err == ""


def test_a_run_that_is_named_is_never_left_out(sweep, tmp_path, capsys):
    members = [str(path) for path in sorted(sweep.iterdir())]
    assert main(["plot", *members[:2], "-o", str(tmp_path / "x.png")]) == 2
    assert "it has no metrics.jsonl" in capsys.readouterr().err


def test_a_folder_without_any_metrics_is_refused(sweep, tmp_path, capsys):
    (sweep / "pong-x-seed1" / "metrics.jsonl").write_text("")
    assert main(["report", str(sweep), "-o", str(tmp_path / "x.html")]) == 2
    words = "is ready; 'pong-x-seed1': no line in metrics.jsonl yet"
    assert words in capsys.readouterr().err


def test_several_runs_are_drawn_as_the_notebook_draws_them(sweep, tmp_path, monkeypatch):
    """The picture is that of `curves.comparison`, with `--each` a curve for each run."""
    arguments, comparison = [], curves.comparison
    monkeypatch.setattr(
        curves,
        "comparison",
        lambda runs, each: arguments.append(each) or comparison(runs, each=each),
    )
    target = tmp_path / "x.png"
    assert main(["plot", str(sweep), "-o", str(target)]) == 0
    assert main(["plot", str(sweep), "--each", "-o", str(target)]) == 0
    assert arguments == [False, True]
    assert imageio.imread(target).shape[2] >= 3


@pytest.mark.parametrize(("command", "name"), [("plot", "x.png"), ("report", "x.html")])
def test_a_full_disk_is_one_line_and_leaves_nothing(command, name, sweep, tmp_path, capsys):
    target = tmp_path / name
    with growing_to(1000):
        assert main([command, str(sweep / "pong-x-seed1"), "-o", str(target)]) == 74
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"jaxrl: cannot write '{target}': File too large\n")
    assert list(tmp_path.iterdir()) == [sweep]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/x.png", "none' is no directory: make it first"),
        ("folder.png", "folder.png' is a directory: choose another name"),
        ("x" * 252 + ".png", "File name too long: choose another name"),
        ("closed/x.png", "closed' may not be written: write elsewhere"),
    ],
)
def test_what_cannot_be_written_is_refused_first(name, message, tmp_path, monkeypatch):
    for folder in ("folder.png", "closed"):
        (tmp_path / folder).mkdir()

    def temporary(dir):  # the owner of a machine may write everywhere
        if dir.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return contextlib.nullcontext()

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    with pytest.raises(UserError, match=message):
        check_target(tmp_path / name, (".png",))
    check_target(tmp_path / ("x" * 251 + ".png"), (".png",))
