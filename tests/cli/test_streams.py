"""Commands whose standard streams are closed, or cannot show every character."""

import io
import os
import subprocess
import sys

import pytest

from jaxrl.cli import streams
from jaxrl.cli.main import main
from jaxrl.training.display import Display, TrainingStatus
from tests.cli.test_watch import DEMO, ROOT
from tests.training.test_display import GAMES

SNOWMAN, ESCAPED = "\N{SNOWMAN}", "\\u2603"


def encoded(monkeypatch, encoding):
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    return output


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_a_curve_is_shown_in_every_encoding(encoding, monkeypatch, tmp_path):
    (tmp_path / SNOWMAN).symlink_to(DEMO)
    monkeypatch.chdir(tmp_path)
    output = encoded(monkeypatch, encoding)
    assert main(["watch", SNOWMAN, "--once"]) == 0
    output.flush()
    shown = output.buffer.getvalue().decode(encoding)
    assert "100% of 1.00M steps" in shown
    assert "return, mean of the last 100 games" in shown
    fine = encoding == "utf-8"
    assert ("\N{BOX DRAWINGS LIGHT VERTICAL}" in shown) == fine
    assert ("*" in shown) == (not fine)
    name, *curve = shown.splitlines()
    assert name == f"vtrace on pong, {SNOWMAN if fine else ESCAPED}"
    assert not any("\\" in line for line in curve)  # nothing had to be escaped


def test_what_cannot_be_shown_is_escaped(monkeypatch):
    """Also of a name that is no text: the byte 255 in UTF-8."""
    for encoding in ("latin-1", "utf-8"):
        output = encoded(monkeypatch, encoding)
        streams.prepare()
        print(f"run-{SNOWMAN}-" + os.fsdecode(b"\xff"))
        output.flush()
        shown = output.buffer.getvalue().decode(encoding)
        snowman = ESCAPED if encoding == "latin-1" else SNOWMAN
        assert shown == f"run-{snowman}-\\udcff\n"


def test_closed_streams_are_opened_on_nothing():
    """Their numbers are not left to files: what libraries print would go into those."""
    code = (
        "import os, sys; from jaxrl.cli import streams; streams.prepare(); "
        "print('lost'); print('lost', file=sys.stderr); sys.stdin.read(); sys.stdout.isatty(); "
        "os._exit(0 if {os.readlink(f'/proc/self/fd/{n}') for n in range(3)} == {os.devnull} "
        "and all(map(os.get_inheritable, range(3))) else 1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT,
        preexec_fn=lambda: [os.close(n) for n in range(3)] and None,
    )  # fmt: skip
    assert done.returncode == 0


@pytest.mark.parametrize("closed", [False, True])
def test_progress_without_standard_error_is_dropped(closed, monkeypatch):
    """As under the API, where it may be None; one that is closed is no other."""
    stream = io.StringIO() if closed else None
    if stream:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with Display() as display, display.busy("compiling"):
        display.say("a line")
        display.update(TrainingStatus(10, 100, 1.0, GAMES), interval_ended=True)


def test_what_a_stream_can_show():
    assert streams.shows("\N{CHECK MARK}", "utf-8")
    assert not streams.shows("\N{CHECK MARK}", "latin-1")
    assert not streams.shows("\N{CHECK MARK}", None)
    assert not streams.shows("x", "no-such-encoding")
