"""What a path on the command line stands for: a run directory, a folder of them, or a policy."""

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

_GIVEN: dict[str, str] = {}  # directory of an unpacked policy -> path or name that the user gave


def as_run_dir(path: Path) -> Path:
    """Returns a run directory: of a policy, one that lasts until this process ends."""
    check_local(path)
    found = policy_path(path)
    if found is None:
        return path
    run_dir = _unpacked(found.absolute(), _state(found))
    _GIVEN[str(run_dir)] = str(path)
    return run_dir


def as_given(text: object) -> str:
    """Returns a path or a message with policies as the user named them, not where they lie."""
    said = str(text)
    for run_dir, given in _GIVEN.items():
        said = said.replace(f"{run_dir}/{layout.POLICY}", given).replace(run_dir, given)
    return said


@contextlib.contextmanager
def naming_as_given() -> Iterator[None]:
    """Lets the errors of a block name policies as the user did."""
    try:
        yield
    except (UserError, RunError) as error:
        said = as_given(error)
        if said == str(error):
            raise
        raise type(error)(said) from error


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
    return os.path.isfile(run_dir / layout.POLICY)


class Selected(NamedTuple):
    """The runs that paths stand for."""

    run_dirs: tuple[Path, ...]
    left_out: dict[Path, str]  # runs of folders that are not ready, with the reason


Lacks = Callable[[Path], str]  # what a run lacks; empty if nothing


def expand(paths: Iterable[Path], lacks: Lacks | None = None) -> tuple[Path, ...]:
    """Returns the run directories that are meant, as `select` does, without those left out."""
    return select(paths, lacks).run_dirs


def select(paths: Iterable[Path], lacks: Lacks | None = None) -> Selected:
    """Returns the run directories that are meant: of a folder of runs or sweeps, those within.

    Policies are unpacked. The logs of a sweep's members, which a shell's `*` gives too, are left
    out. So are, with a line, runs of a folder that are not ready: those of which `lacks` says why.
    A run that is named itself is never left out. Raises `UserError` if a sweep has begun no member,
    or no run of a folder is ready.
    """
    found: list[Path] = []
    left_out: dict[Path, str] = {}
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
        young = _not_ready(path, members, lacks) if lacks else {}
        left_out |= young
        found += [member for member in members if member not in young] or [path]
    return Selected(tuple(found), left_out)


def _not_ready(folder: Path, members: list[Path], lacks: Lacks) -> dict[Path, str]:
    """Returns the members that lack something, with a line each. Raises `UserError` if all do."""
    young = {member: lacking for member in members if (lacking := lacks(member))}
    if members and len(young) == len(members):
        name, reason = members[0].name, young[members[0]]
        raise UserError(f"no run in '{folder}' is ready; '{name}': {reason}")
    for member, reason in young.items():
        print(f"jaxrl: left out '{member.name}': {reason}", file=sys.stderr)
    return young
