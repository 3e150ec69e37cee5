"""Files that are whole or absent: written under a temporary name beside the final one."""

import contextlib
import errno
import json
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl.errors import StorageError, UserError

LARGEST_OBJECT = 50_000_000  # bytes; a run's JSON files are far smaller
# Full, over quota, broken, larger than the file system or a limit allows: no mistake of the user.
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yields a temporary path beside a file, which takes the file's place where nothing is raised.

    Raises `OSError` that names the target, and leaves no temporary file.
    """
    # As short as can be: the target's name may be as long as a name may be.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from None
    finally:
        with contextlib.suppress(OSError):  # the file or its directory does not exist
            temporary.unlink()


@contextlib.contextmanager
def writing(target: Path) -> Iterator[Path]:
    """Does as `replacing`, for a file that a user names.

    Raises `UserError`, or `StorageError` where the disk is full or broken.
    """
    try:
        with replacing(target) as temporary:
            yield temporary
    except OSError as error:
        if error.filename not in (None, str(target)):
            raise
        kind = StorageError if error.errno in STORAGE_ERRORS else UserError
        raise kind(f"cannot write '{target}': {error.strerror or error}") from None


def read_object(path: Path) -> dict[str, Any] | None:
    """Returns a JSON object, None without a file. Raises `UserError` for anything else."""
    try:
        if not path.is_file():  # a pipe would block
            return None
        if path.stat().st_size > LARGEST_OBJECT:
            raise ValueError("it is too large")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path.name} cannot be read: it holds no object")
    return value


def check_writable(folder: Path) -> None:
    """Raises `OSError` if no file can be made in a folder."""
    with tempfile.TemporaryFile(dir=folder):  # it has no name, and leaves nothing
        pass


def check_is_directory(path: Path, option: str) -> None:
    """Raises `UserError` if something other than a directory is where an option wants one."""
    if path.exists() and not path.is_dir():
        raise UserError(f"'{path}' is not a directory: choose another {option}")


def replace_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all. Raises `OSError`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
