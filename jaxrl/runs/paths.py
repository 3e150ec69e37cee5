"""Paths of the command line: each is a run directory, a folder of them, or a policy."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxrl.config.bounds import check_local
from jaxrl.errors import RunError, UserError
from jaxrl.runs import layout
from jaxrl.runs.hints import policy_path

_USER_NAMES: dict[str, str] = {}  # directory of an unpacked policy -> the user's path or name


def run_dir_of(path: Path) -> Path:
    """Returns a run directory: a policy's is temporary, and lasts until this process ends."""
    check_local(path)
    policy = policy_path(path)
    if policy is None:
        return path
    run_dir = _unpacked(policy.absolute(), _state(policy))
    _USER_NAMES[str(run_dir)] = str(path)
    return run_dir


def name_policies(text: object) -> str:
    """Returns a path or a message with policies named as the user did, not by where they lie."""
    message = str(text)
    for run_dir, name in _USER_NAMES.items():
        message = message.replace(f"{run_dir}/{layout.POLICY}", name).replace(run_dir, name)
    return message


@contextlib.contextmanager
def naming_policies() -> Iterator[None]:
    """Lets the errors of a block name policies as the user did."""
    try:
        yield
    except (UserError, RunError) as error:
        message = name_policies(error)
        if message == str(error):
            raise
        raise type(error)(message) from error


def _state(path: Path) -> tuple[int, ...]:
    """Returns numbers that change with a file's content; none for a missing file."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # its reader reports this
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


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
    return os.path.isfile(run_dir / layout.POLICY)


class Selection(NamedTuple):
    """The runs that paths stand for."""

    run_dirs: tuple[Path, ...]
    left_out: dict[Path, str]  # runs of folders that are not ready, with the reason


ReadyCheck = Callable[[Path], str]  # what a run lacks; empty if nothing


def expand(paths: Iterable[Path], lacks: ReadyCheck | None = None) -> tuple[Path, ...]:
    """Returns the run directories that are meant, as `select` does, without those left out."""
    return select(paths, lacks).run_dirs


def select(paths: Iterable[Path], lacks: ReadyCheck | None = None) -> Selection:
    """Returns the run directories that are meant: a folder of runs or sweeps means those within.

    Policies are unpacked. The logs of a sweep's members, which a shell's `*` gives too, are left
    out. So are, with a line, runs of a folder that are not ready: those of which `lacks` says why.
    A run that is named itself is never left out. Raises `UserError` if a sweep has begun no member,
    or no run of a folder is ready.
    """
    run_dirs: list[Path] = []
    left_out: dict[Path, str] = {}
    for path in map(run_dir_of, paths):
        if path.suffix == ".log" and os.path.isfile(path):
            continue
        # `os.path` returns false for a name that no file system takes; the run's reader reports it.
        if os.path.isfile(path / layout.CONFIG) or not os.path.isdir(path):
            run_dirs.append(path)
            continue
        configs = (*path.glob(f"*/{layout.CONFIG}"), *path.glob(f"*/*/{layout.CONFIG}"))
        members = sorted({config.parent for config in configs})
        if not members and os.path.isfile(path / layout.SWEEP):
            raise UserError(f"the sweep in '{path}' has no run yet: wait for its first member")
        unready = _not_ready(path, members, lacks) if lacks else {}
        left_out |= unready
        run_dirs += [member for member in members if member not in unready] or [path]
    return Selection(tuple(run_dirs), left_out)


def _not_ready(folder: Path, members: list[Path], lacks: ReadyCheck) -> dict[Path, str]:
    """Returns the members that lack something, with a line each. Raises `UserError` if all do."""
    unready = {member: lacking for member in members if (lacking := lacks(member))}
    if members and len(unready) == len(members):
        name, reason = members[0].name, unready[members[0]]
        raise UserError(f"no run in '{folder}' is ready; '{name}': {reason}")
    for member, reason in unready.items():
        print(f"jaxrl: left out '{member.name}': {reason}", file=sys.stderr)
    return unready
