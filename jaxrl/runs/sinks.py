"""Sinks: what a run reports its rows to, the lines of metrics.jsonl, in process 0.

A sink begins with the rows of earlier sessions, up to the checkpoint that training goes on from.
Then `write` takes one row after the other, `flush` precedes every checkpoint, and `close` ends a
session that has saved. A resumed run writes the rows after its checkpoint again.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from jaxrl.config.extensions import SINKS, package_of
from jaxrl.config.schema import Config
from jaxrl.errors import RunError, StorageError, first_line
from jaxrl.runs.files import replacing

Row = dict[str, Any]  # values by key; None where a number is missing or not finite


class Sink(Protocol):
    """A receiver of rows."""

    def write(self, row: Row) -> None:
        """Takes a row, to keep or to change."""

    def flush(self) -> None:
        """Returns when all rows so far are safe. Raises an error if they cannot be."""

    def close(self) -> None:
        """Flushes, and releases what the sink holds."""


class RowFile:
    """A file of one record a row; while the disk is full, records stay in memory."""

    def __init__(
        self,
        path: Path,
        rows: list[Row],
        encode: Callable[[Row], bytes],
        say: Callable[[str], None],
        head: bytes = b"",
    ) -> None:
        """Replaces the file by its head and the rows; `say` shows a line to the user."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.writelines([head, *map(encode, rows)])
            file.flush()
            os.fsync(file.fileno())
        self._path, self._encode, self._say = path, encode, say
        self._file = path.open("ab", buffering=0)
        self._pending: list[bytes] = []

    def write(self, row: Row) -> None:
        """Appends a row, or keeps it until that is possible, and warns of the first that waits."""
        waiting = bool(self._pending)
        self._pending.append(self._encode(row))
        try:
            self._append()
        except OSError as error:
            if not waiting:
                self._say(f"warning: metrics cannot be written to {self._path.name} "
                          f"({error.strerror}): lines stay in memory until they can")  # fmt: skip

    def flush(self) -> None:
        """Writes the rows that wait. Raises `StorageError`."""
        try:
            self._append()
        except OSError as error:
            raise StorageError(f"metrics could not be written: {error.strerror}") from error

    def close(self) -> None:
        """Writes the rows that wait, and closes the file. Raises `StorageError`."""
        self.flush()
        self._file.close()

    def _append(self) -> None:
        """Writes what waits, and waits until it is on the disk. Raises `OSError`."""
        while self._pending:
            size, record = self._file.seek(0, os.SEEK_END), self._pending[0]
            try:
                if self._file.write(record) != len(record):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                # Some file systems report only here that they are full.
                os.fsync(self._file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)
                raise
            del self._pending[0]


class CallbackSink:
    """A function that is called with every row; what it raises ends training."""

    def __init__(self, call: Callable[[Row], None]) -> None:
        self.write = call

    def flush(self) -> None:
        """Does nothing: the function keeps what it wants."""

    def close(self) -> None:
        """Does nothing."""


class PackageSink:
    """A sink of another package, whose errors end training with one line that names it."""

    def __init__(
        self, name: str, module: ModuleType, config: Config, run_dir: Path, rows: list[Row]
    ) -> None:
        """Makes the sink; its arguments are for it to keep. Raises `RunError`."""
        self._name = name
        with self._naming_errors():
            self._sink: Sink = module.make(config, run_dir, rows)

    def write(self, row: Row) -> None:
        """Hands the row over. Raises `RunError`."""
        with self._naming_errors():
            self._sink.write(row)

    def flush(self) -> None:
        """Flushes the sink. Raises `RunError`."""
        with self._naming_errors():
            self._sink.flush()

    def close(self) -> None:
        """Closes the sink. Raises `RunError`."""
        with self._naming_errors():
            self._sink.close()

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # anything that another package raises
            raise RunError(
                f"{SINKS}: '{self._name}' of the package {package_of(SINKS, self._name)} failed "
                f"({type(error).__name__}: {first_line(error)}): resume when it works again, or "
                "without it by --override log.sinks="
            ) from error
