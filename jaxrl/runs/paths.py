"""What a path on the command line stands for: a run directory, a folder of them, or a policy."""

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from jaxrl.errors import UserError
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs import checkpoint_files, layout


def policy_path(path: Path) -> Path | None:
    """Returns a policy's file, given by its path or the name of one that comes with jaxrl."""
    if path.suffix == SUFFIX and not os.path.isdir(path):
        return path
    if len(path.parts) == 1 and not os.path.exists(path):
        return policies().get(path.name)
    return None


def as_run_dir(path: Path) -> Path:
    """Returns a run directory: of a policy, one that lasts until this process ends."""
    found = policy_path(path)
    return path if found is None else _unpacked(found.absolute(), _state(found))


def _state(path: Path) -> tuple[int, ...]:
    """Returns numbers that change with a file's content; none of a file that is not there."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # who reads it says so
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


@functools.cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    """Returns a directory that is deleted when this process ends."""
    return tempfile.TemporaryDirectory(prefix="jaxrl-")


@functools.cache
def _unpacked(path: Path, state: tuple[int, ...]) -> Path:
    """Unpacks a policy's file, once for each state of it."""
    from jaxrl.runs import policy_file  # imports JAX

    run_dir = Path(tempfile.mkdtemp(dir=_temporary().name)) / path.stem
    policy_file.unpack(path, run_dir)
    return run_dir


def is_policy(run_dir: Path) -> bool:
    """Returns whether a run directory was unpacked from a policy's file."""
    return (run_dir / layout.POLICY).is_file()


def lacks_lines(run_dir: Path) -> str:
    """Returns what a run lacks that is still compiling, for `expand`; empty if nothing."""
    return "" if os.path.lexists(run_dir / layout.METRICS) else f"no {layout.METRICS}"


def lacks_checkpoints(run_dir: Path) -> str:
    """Returns what a run lacks that cannot be played yet, for `expand`; empty if nothing."""
    return "" if checkpoint_files.steps(run_dir) else "no checkpoint"


def expand(paths: Iterable[Path], lacks: Callable[[Path], str] | None = None) -> tuple[Path, ...]:
    """Returns the run directories that are meant: of a folder of runs or sweeps, those within.

    Policies are unpacked. The logs of a sweep's members, which a shell's `*` gives too, are left
    out. So are, with a line, runs of a folder that are too young: those of which `lacks` names
    what is missing. Raises `UserError` if a sweep has begun no member, or all runs are too young.
    """
    found: list[Path] = []
    for path in map(as_run_dir, paths):
        if path.suffix == ".log" and os.path.isfile(path):
            continue
        # `os.path` answers no for a name that no file system takes; who reads the run says so.
        if os.path.isfile(path / layout.CONFIG) or not os.path.isdir(path):
            found.append(path)
            continue
        configs = (*path.glob(f"*/{layout.CONFIG}"), *path.glob(f"*/*/{layout.CONFIG}"))
        members = sorted({config.parent for config in configs})
        if not members and os.path.isfile(path / layout.SWEEP):
            raise UserError(f"the sweep in '{path}' has no run yet: wait for its first member")
        if lacks is not None:
            members = _old_enough(path, members, lacks)
        found += members or [path]
    return tuple(found)


def _old_enough(folder: Path, members: list[Path], lacks: Callable[[Path], str]) -> list[Path]:
    """Returns the members of a folder that lack nothing. Raises `UserError` if all lack it."""
    young = {member: lacking for member in members if (lacking := lacks(member))}
    if members and len(young) == len(members):
        raise UserError(f"no run in '{folder}' is old enough: '{members[0]}' has "
                        f"{young[members[0]]} yet")  # fmt: skip
    for member, lacking in young.items():
        print(f"left out: '{member}' has {lacking} yet", file=sys.stderr)
    return [member for member in members if member not in young]
