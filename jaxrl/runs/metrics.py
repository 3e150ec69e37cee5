"""metrics.jsonl and TensorBoard: one line per interval, none lost or repeated across a resume.

A line is whole or absent: one that a full disk cuts is removed, and kept until there is room.
TensorBoard's file has the same rows; after a failed write it is rewritten from the lines.
"""

import contextlib
import errno
import json
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import RecordWriter

from jaxrl.atari.games import CATCH_GAMES
from jaxrl.errors import UserError
from jaxrl.runs import hints, layout
from jaxrl.types import WINDOW, Count, Mean, Metrics

ROUNDS = 2  # games of each environment after which long ones have ended as often as they begin
LARGEST = 2.0**63


def games_needed(num_envs: int) -> int:
    """Returns how many games must have ended before their mean stops favoring short ones.

    The first games to end are the shortest of those that began together: of scores that grow with
    length, the mean of the first 100 was 0.98 of the truth with 16 environments, 0.71 with 128 and
    0.43 with 1,200. Where lengths vary strongly it stays low for longer.
    """
    return max(WINDOW, ROUNDS * num_envs)


def num_envs_in(settings: dict[str, Any]) -> int | None:
    """Returns the number of environments in a run's settings by key; None if it is unknown."""
    number = settings.get("num_envs")
    return number if type(number) is int and 0 < number < LARGEST else None


def of_first_games(rows: list[dict[str, Any]], settings: dict[str, Any]) -> list[bool]:
    """Returns for each line whether its mean is of the first games of a session.

    Games began together where the line says so in `new_games`. Older versions do not say it: there
    they did with every session, which begins with the line that has `compile_seconds`, but for
    Catch's, because no others could be saved.

    Args:
      rows: of metrics.jsonl.
      settings: of the run by key; without a number of environments all lines count as early.
    """
    num_envs, unsaid = num_envs_in(settings), settings.get("game") not in CATCH_GAMES
    if num_envs is None:
        return [True] * len(rows)
    found, ended, before = [], 0, 0  # games, now and when the session began
    for row in rows:
        if row.get("new_games", "compile_seconds" in row and unsaid):
            before = ended
        ended = int(row.get("episodes") or 0)
        found.append(ended - before < games_needed(num_envs))
    return found


def read(run_dir: Path) -> list[dict[str, Any]]:
    """Reads the rows of a run, oldest first, without a last line that a crash cut off.

    Raises `UserError` if there is no such file, or a line is no row of metrics.
    """
    try:
        if (run_dir / layout.METRICS).exists() and not (run_dir / layout.METRICS).is_file():
            raise OSError("it is no file")
        text = (run_dir / layout.METRICS).read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "" if (run_dir / layout.CONFIG).exists() else hints.remedy(run_dir)
        reason = hint or f"it has no {layout.METRICS}"
        raise UserError(f"'{run_dir}' is no run directory: {reason}") from None
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no path
        raise UserError(f"cannot read '{run_dir / layout.METRICS}': {error}") from None
    rows = []
    # A cut line comes after the newest checkpoint, so a resumed run writes it again.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UserError(f"'{run_dir / layout.METRICS}', line {number}: {error}") from None
    return rows


def lacks_lines(run_dir: Path) -> str:
    """Returns why a run cannot be drawn yet, as one that still compiles; empty if it can."""
    try:
        return "" if read(run_dir) else f"no line in {layout.METRICS} yet"
    except UserError as error:
        return str(error) if (run_dir / layout.METRICS).exists() else f"no {layout.METRICS} yet"


def _row(row: Any) -> dict[str, Any]:
    """Returns the row. Raises `ValueError` if it cannot be plotted."""
    if not isinstance(row, dict):
        raise ValueError("is no object")
    for name in ("step", "frames", "seconds"):
        if _finite(row.get(name)) is None:
            raise ValueError(f"has no number '{name}'")
    if type(row.get("return_mean")) not in (int, float, type(None)):
        raise ValueError("'return_mean' is no number")
    return {"return_mean": None} | {name: _finite(value) for name, value in row.items()}


def _finite(value: Any) -> float | None:
    """Returns the value if it is a number that a plot can hold, else None."""
    fits = type(value) in (int, float) and abs(value) < LARGEST  # also not NaN
    return value if fits else None


def means(sums: Metrics, updates: int) -> dict[str, float | None]:
    """Returns the means of metrics summed over `updates` updates; None if no update had one."""

    def mean(value: Any) -> float | None:
        if isinstance(value, Count):
            return float(value.total)
        total, number = value if isinstance(value, Mean) else (value, updates)
        return float(total) / float(number) if number else None

    return {name: mean(value) for name, value in sums.items()}


class MetricsLog:
    """The writer of a run's rows, from agent step `step` on."""

    def __init__(self, run_dir: Path, step: int) -> None:
        path = run_dir / layout.METRICS
        rows = read(run_dir) if path.exists() else []
        # All the time that the run took, also for steps that a kill undid.
        self.wall_seconds = float(rows[-1].get("wall_seconds") or 0) if rows else 0.0
        kept = [row for row in rows if row["step"] <= step]  # a resumed run writes the others again
        replacement = run_dir / (layout.METRICS + ".tmp")
        with replacement.open("w", encoding="utf-8") as file:
            file.writelines(map(_line, kept))
            file.flush()
            os.fsync(file.fileno())
        replacement.replace(path)
        self._run_dir = run_dir
        self._file = path.open("ab", buffering=0)
        self._pending: list[bytes] = []
        self._board: _Board | None = _Board(run_dir, kept)

    def write(self, row: dict[str, Any]) -> None:
        """Appends one row, with null for values that are not finite; TensorBoard's x is the step.

        Raises `OSError` if it cannot be written now; the next call tries again.
        """
        row = {k: None if v is None or not math.isfinite(v) else v for k, v in row.items()}
        self._pending.append(_line(row).encode())
        self.flush()
        if self._board is None:  # the old file may lack rows, or hold half of one
            self._board = _Board(self._run_dir, read(self._run_dir))
            return
        board, self._board = self._board, None
        board.write(row)
        self._board = board

    def flush(self) -> None:
        """Writes the pending lines and waits until they are on the disk. Raises `OSError`."""
        while self._pending:
            size = self._file.seek(0, os.SEEK_END)
            line = self._pending[0]
            try:
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(
                    self._file.fileno()
                )  # some file systems report only here that they are full
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)
                self._board = None  # it would miss this row
                raise
            del self._pending[0]

    def close(self) -> None:
        """Writes the pending lines and closes the files. Raises `OSError`."""
        self.flush()
        self._file.close()
        if self._board is None:
            self._board = _Board(self._run_dir, read(self._run_dir))
        self._board.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


class _Board:
    """TensorBoard's file of events; it begins with the given rows and replaces older files.

    tensorboardX's `SummaryWriter` cannot do this: it writes in a thread that dies on a full disk,
    after which training blocks on its queue, and its `flush` does not wait for that queue.
    """

    def __init__(self, run_dir: Path, rows: list[dict[str, Any]]) -> None:
        before = list(run_dir.glob(f"{layout.EVENTS}.*"))
        name = f"{layout.EVENTS}.{time.time_ns() // 10**9:010}.{socket.gethostname()}"
        path = run_dir / name
        while path in before:
            path = path.with_name(f"{path.name}.1")
        self._now = time.time() - (rows[-1]["seconds"] if rows else 0.0)
        self._writer = RecordWriter(str(path))
        self._add(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
        for row in rows:
            self._add(self._event(row))
        self._writer.flush()
        for old in before:
            old.unlink(missing_ok=True)

    def _event(self, row: dict[str, Any]) -> event_pb2.Event:
        values = [
            summary_pb2.Summary.Value(
                tag=name if "/" in name else f"run/{name}", simple_value=value
            )
            for name, value in row.items()
            if name != "step" and isinstance(value, int | float)
        ]
        return event_pb2.Event(
            wall_time=self._now + row["seconds"],
            step=int(row["step"]),
            summary=summary_pb2.Summary(value=values),
        )

    def _add(self, event: event_pb2.Event) -> None:
        self._writer.write(event.SerializeToString())

    def write(self, row: dict[str, Any]) -> None:
        self._add(self._event(row))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
