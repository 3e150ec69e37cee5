"""Checksums of a directory's files, as `sha256sum --check SHA256SUMS` reads them."""

import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from jaxrl.runs import layout

SIZE = "# bytes: "  # opens a comment with a file's size, which sha256sum skips
# Other errors may be temporary.
DAMAGE_ERRORS = (None, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP)


def _files(directory: Path) -> dict[str, Path]:
    """Returns every file below the directory, by its relative path."""
    files = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise OSError(f"{path.relative_to(directory)} is a link")
        if path.is_file() and path != directory / layout.CHECKSUMS:
            files[path.relative_to(directory).as_posix()] = path
    return files


def _sum(path: Path, sync: bool = False) -> str:
    """Returns the checksum of a file, after writing it to the disk if `sync`."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
    return digest


def write(directory: Path) -> None:
    """Writes the checksums of all files to SHA256SUMS; all are on the disk when it returns.

    The sizes stand before them as comments, for the message about a file that was cut short.
    """
    files = _files(directory)
    lines = [f"{SIZE}{path.stat().st_size}  {name}\n" for name, path in files.items()]
    lines += [f"{_sum(path, sync=True)}  {name}\n" for name, path in files.items()]
    with (directory / layout.CHECKSUMS).open("w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    for folder in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
        sync_directory(folder)


def sync_directory(path: Path) -> None:
    """Waits until the names of a directory's files are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _parse_lines(lines: Iterable[str]) -> dict[str, str]:
    """Returns the first column of lines by their second one, a file's name."""
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


def _change(path: Path, size: str) -> str:
    """Returns how a file differs from what was written; `size` is empty in older checkpoints."""
    now = path.stat().st_size
    if size.isdecimal() and now < int(size):
        return f"is cut short: {now:,} of {int(size):,} bytes"
    return "is not what was written"


def damage(directory: Path) -> str:
    """Returns the damage of a directory that `write` has summed, in a few words; empty if none."""
    try:
        lines = (directory / layout.CHECKSUMS).read_text(encoding="utf-8").splitlines()
        files = _files(directory)
        # Only files that are there are opened: no name in SHA256SUMS leads anywhere else.
        expected = _parse_lines(line for line in lines if not line.startswith(SIZE))
        sizes = _parse_lines(line.removeprefix(SIZE) for line in lines if line.startswith(SIZE))
        if missing := expected.keys() - files.keys():
            return f"{min(missing)} is missing"
        if unknown := files.keys() - expected.keys():
            return f"{min(unknown)} is not in {layout.CHECKSUMS}"
        for name, path in files.items():
            if _sum(path) != expected[name]:
                return f"{name} {_change(path, sizes.get(name, ''))}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) not in DAMAGE_ERRORS:
            raise
        return " ".join(str(error).split())
    return ""
