"""metrics.jsonl and TensorBoard where writing fails: no line lost, torn, or written twice."""

import errno
import json
import os

import pytest

from jaxrl.errors import UserError
from jaxrl.runs import layout, metrics
from tests.survival import tensorboard


def row(step):
    return {"step": step, "frames": 4 * step, "seconds": step / 10, "return_mean": None,
            "loss/value": step / 7}  # fmt: skip


class FullDisk:
    """A file with `room` bytes left."""

    def __init__(self, file, room):
        self._file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        fits = data[: self.room]
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(fits)
        return self._file.write(fits)


def steps_of(run_dir):
    return [row["step"] for row in metrics.read(run_dir)], [s for s, _ in tensorboard(run_dir)]


def test_lines_wait_for_room(tmp_path):
    log = metrics.MetricsLog(tmp_path, 0)
    log.write(row(1))
    disk = log._file = FullDisk(log._file, 30)
    for step in (2, 3):
        with pytest.raises(OSError, match="No space left"):
            log.write(row(step))
        assert (tmp_path / layout.METRICS).read_text().endswith("}\n")  # half a line is taken back
        disk.room = 10
    assert steps_of(tmp_path) == ([1], [1])
    disk.room = 10_000
    log.write(row(4))
    assert steps_of(tmp_path) == ([1, 2, 3, 4], [1, 2, 3, 4])
    log.write(row(5))
    log.close()
    assert steps_of(tmp_path) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert len(list(tmp_path.glob("events*"))) == 1


@pytest.mark.parametrize("torn", ["", '{"step": 4', '{"step": 4}', "\0\0\0"])
def test_a_resume_cuts_what_comes_after_its_checkpoint(tmp_path, torn):
    log = metrics.MetricsLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.write(row(step) | {"wall_seconds": 5.0 * step})
    log.close()
    with (tmp_path / layout.METRICS).open("a") as file:
        file.write(torn)
    log = metrics.MetricsLog(tmp_path, 2)
    assert log.wall_seconds == 15.0  # what is undone was waited for too
    log.write(row(3))
    log.close()
    assert steps_of(tmp_path) == ([1, 2, 3], [1, 2, 3])


def test_a_line_that_is_none_is_named(tmp_path):
    lines = [json.dumps(row(1)), "{", json.dumps(row(2))]
    (tmp_path / layout.METRICS).write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="line 2: "):
        metrics.MetricsLog(tmp_path, 2)
    assert (tmp_path / layout.METRICS).read_text() == "\n".join(lines) + "\n"


def test_a_disk_that_is_full_only_when_it_syncs(tmp_path, monkeypatch):
    log = metrics.MetricsLog(tmp_path, 0)
    log.write(row(1))
    sync = os.fsync

    def full(number):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="quota"):
        log.write(row(2))
    monkeypatch.setattr(os, "fsync", sync)
    log.write(row(3))
    log.close()
    assert steps_of(tmp_path) == ([1, 2, 3], [1, 2, 3])
