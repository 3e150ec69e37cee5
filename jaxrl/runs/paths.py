"""What a path on the command line stands for: a run directory, a folder of them, or a policy."""

import functools
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jaxrl.errors import UserError
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs import layout


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
    return path if found is None else _unpacked(found.absolute())


@functools.cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    """Returns a directory that is deleted when this process ends."""
    return tempfile.TemporaryDirectory(prefix="jaxrl-")


@functools.cache
def _unpacked(path: Path) -> Path:
    from jaxrl.runs import policy_file  # imports JAX

    run_dir = Path(tempfile.mkdtemp(dir=_temporary().name)) / path.stem
    policy_file.unpack(path, run_dir)
    return run_dir


def is_policy(run_dir: Path) -> bool:
    """Returns whether a run directory was unpacked from a policy's file."""
    return (run_dir / layout.POLICY).is_file()


class Expanded(NamedTuple):
    """The runs that paths stand for."""

    run_dirs: tuple[Path, ...]
    left_out: dict[Path, str]  # runs of folders that cannot be drawn, with the reason


def expand_to_drawn(paths: Iterable[Path]) -> Expanded:
    """Returns the runs that are meant, without those within folders that have no metrics to draw.

    A run that is named itself is never left out. Raises `UserError` if all of them are.
    """
    from jaxrl.runs import metrics

    paths = tuple(paths)
    named = {as_run_dir(path) for path in paths}
    run_dirs = expand(paths)
    left_out: dict[Path, str] = {}
    for run_dir in run_dirs:
        if run_dir in named:
            continue
        try:
            rows = metrics.read(run_dir)
        except UserError as error:
            has_file = os.path.exists(run_dir / layout.METRICS)
            left_out[run_dir] = str(error) if has_file else f"no {layout.METRICS} yet"
            continue
        if not rows:
            left_out[run_dir] = f"no line in {layout.METRICS} yet"
    if run_dirs and len(left_out) == len(run_dirs):
        run_dir, reason = next(iter(left_out.items()))
        raise UserError(f"no run can be drawn; '{run_dir.name}': {reason}")
    return Expanded(tuple(path for path in run_dirs if path not in left_out), left_out)


def expand(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Returns the run directories that are meant: of a folder of runs or sweeps, those within.

    Policies are unpacked. The logs of a sweep's members, which a shell's `*` gives too, are left
    out. Raises `UserError` if a sweep has begun no member.
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
        found += members or [path]
    return tuple(found)
