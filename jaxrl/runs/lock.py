"""The lock of a directory: one process group trains, sweeps or measures there at a time."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrl.errors import UserError
from jaxrl.runs import layout

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def _lock(file: Any) -> None:
    """Locks an open file. Raises `BlockingIOError` if another process holds the lock."""
    if fcntl is None:
        return
    for patience in (0.05, 0.2, 0.5, 0.0):  # `is_locked` may hold it for a moment
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not patience:
                raise
            time.sleep(patience)


def is_locked(run_dir: Path) -> bool:
    """Returns whether a process trains in the directory, as far as this machine knows."""
    path = run_dir / layout.LOCK
    try:
        if fcntl is None or not path.is_file():  # a pipe would block
            return False
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock file, or a file system without locks
        return False
    return False


@contextlib.contextmanager
def hold_lock(run_dir: Path, option: str = "--run-dir") -> Iterator[None]:
    """Holds the lock of the directory; the system releases it when this process ends.

    Raises `UserError` if another process trains there; `option` chooses another directory.
    """
    with (run_dir / layout.LOCK).open("a+", encoding="utf-8") as file:
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            holder = " ".join(file.read(200).split()) or "another process"
            raise UserError(
                f"'{run_dir}' is in use by {holder}: wait for it, stop it, or choose another "
                f"{option}"
            ) from None
        except OSError as error:
            print(f"warning: '{run_dir}' cannot be locked ({error.strerror}): train there only "
                  "once at a time", file=sys.stderr)  # fmt: skip
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        yield


@contextlib.contextmanager
def hold_directory(directory: Path, option: str, parts: Sequence[str] = ()) -> Iterator[None]:
    """Makes the directory of a sweep, a search or a suite with its parts, and holds its lock.

    Raises `UserError`; `option` chooses another directory.
    """
    with contextlib.ExitStack() as lock:
        try:
            for part in (".", *parts):
                (directory / part).mkdir(parents=True, exist_ok=True)
            lock.enter_context(hold_lock(directory, option))
        except (OSError, ValueError) as error:
            reason = f"cannot write '{directory}' ({error})"
            raise UserError(f"{reason}: choose another {option}") from None
        yield
