"""metrics.jsonl and TensorBoard where writing fails: no line lost, torn, or written twice."""

import errno
import json
import os

import pytest

from jaxrl.errors import StorageError, UserError
from jaxrl.runs import layout, metrics, tensorboard
from tests import survival


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
    return [row["step"] for row in metrics.read(run_dir)], [
        s for s, _ in survival.tensorboard(run_dir)
    ]


def open_sinks(run_dir, step=0, say=print):
    """Both files, as a session that begins at a step opens them."""
    rows, _ = metrics.rows_before(run_dir, step)
    return [kind.open_sink(run_dir, rows, say) for kind in (metrics, tensorboard)]


def write(sinks, *steps):
    for step in steps:
        for sink in sinks:
            sink.write(row(step))


def close(sinks):
    for sink in sinks:
        sink.close()


def test_lines_wait_for_room(tmp_path):
    warnings = []
    sinks = open_sinks(tmp_path, say=warnings.append)
    write(sinks, 1)
    disks = []
    for sink in sinks:
        sink._file = FullDisk(sink._file, 30)
        disks.append(sink._file)
    for step in (2, 3):
        write(sinks, step)
        for sink in sinks:
            with pytest.raises(StorageError, match="metrics could not be written: No space left"):
                sink.flush()
        assert (tmp_path / layout.METRICS).read_text().endswith("}\n")  # half a line is taken back
        assert steps_of(tmp_path) == ([1], [1])
        for disk in disks:
            disk.room = 10
    assert len(warnings) == 2  # one for each file, not for each line
    assert warnings[0].startswith(
        "warning: metrics cannot be written to metrics.jsonl (No space left"
    )
    for disk in disks:
        disk.room = 10_000
    write(sinks, 4)
    assert steps_of(tmp_path) == ([1, 2, 3, 4], [1, 2, 3, 4])
    write(sinks, 5)
    close(sinks)
    assert steps_of(tmp_path) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert len(list(tmp_path.glob("events*"))) == 1
    assert len(warnings) == 2


@pytest.mark.parametrize("torn", ["", '{"step": 4', '{"step": 4}', "\0\0\0"])
def test_a_resume_cuts_what_comes_after_its_checkpoint(tmp_path, torn):
    (log, board) = sinks = open_sinks(tmp_path)
    for step in (1, 2, 3):
        log.write(row(step) | {"wall_seconds": 5.0 * step})
        board.write(row(step))
    close(sinks)
    with (tmp_path / layout.METRICS).open("a") as file:
        file.write(torn)
    rows, seconds = metrics.rows_before(tmp_path, 2)
    assert [line["step"] for line in rows] == [1, 2]
    assert seconds == 15.0  # what is undone was waited for too
    sinks = open_sinks(tmp_path, 2)
    write(sinks, 3)
    close(sinks)
    assert steps_of(tmp_path) == ([1, 2, 3], [1, 2, 3])


def test_a_line_that_is_none_is_named(tmp_path):
    lines = [json.dumps(row(1)), "{", json.dumps(row(2))]
    (tmp_path / layout.METRICS).write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="line 2: "):
        open_sinks(tmp_path, 2)
    assert (tmp_path / layout.METRICS).read_text() == "\n".join(lines) + "\n"


def test_a_disk_that_is_full_only_when_it_syncs(tmp_path, monkeypatch):
    sinks = open_sinks(tmp_path)
    write(sinks, 1)
    sync = os.fsync

    def full(number):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    write(sinks, 2)
    with pytest.raises(StorageError, match="quota"):
        sinks[0].flush()
    monkeypatch.setattr(os, "fsync", sync)
    write(sinks, 3)
    close(sinks)
    assert steps_of(tmp_path) == ([1, 2, 3], [1, 2, 3])
