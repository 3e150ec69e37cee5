"""What a path on the command line stands for: a run directory, a folder of them, or a policy."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxrl.atari.games import game_name, known_games
from jaxrl.errors import RunError, UserError, nearest
from jaxrl.policies import SUFFIX, policies
from jaxrl.runs import checkpoint_files, layout

NEWEST = ("latest", "newest", "last")  # words for a run; the path must be named

_GIVEN: dict[str, str] = {}  # directory of an unpacked policy -> path or name that the user gave


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


def remedy(path: Path) -> str:
    """Returns what a path probably means that is no run directory, for messages; empty if unknown.

    It offers runs inside the path, a run of its folder or of runs/, or a policy.
    """
    if os.path.isdir(path):
        return _did_you_mean(_runs_in(path)[:2])
    if policy_path(path):
        return "a policy is taken by play, evaluate, plot, report and compare; this needs a run"
    bare, name = len(path.parts) == 1, path.name
    if bare and name in NEWEST:
        return _did_you_mean(_runs_in(Path("runs"))[:1])
    beside = _runs_in(path.parent) + (_runs_in(Path("runs")) if bare else [])
    if near := nearest(name, [run.name for run in beside], 1):
        return _did_you_mean([run for run in beside if run.name == near[0]][:1])
    if not bare:
        return ""
    game = game_name(name)
    if game in policies():
        return f"did you mean the policy '{game}'?"
    if game in known_games():
        return (
            f"no policy of {game} comes with jaxrl, train one: jaxrl train --config vtrace_cpu "
            f"--game {game}"
        )
    near = nearest(name.lower(), policies(), 1)
    offer = f"did you mean the policy '{near[0]}'? " if near else ""
    return f"{offer}`jaxrl policies` lists the policies that come with jaxrl"


def _runs_in(folder: Path) -> list[Path]:
    """Returns the runs in a folder, the newest first."""
    found = folder.glob(f"*/{layout.CONFIG}") if os.path.isdir(folder) else ()
    configs = [config for config in found if os.path.isfile(config)]
    return [config.parent for config in sorted(configs, key=os.path.getmtime, reverse=True)]


def _did_you_mean(run_dirs: list[Path]) -> str:
    """Returns the question with the runs; empty if there is none."""
    offered = " or ".join(f"'{run_dir}'" for run_dir in run_dirs)
    return f"did you mean {offered}?" if offered else ""


class Selected(NamedTuple):
    """The runs that paths stand for."""

    run_dirs: tuple[Path, ...]
    left_out: dict[Path, str]  # runs of folders that are not ready, with the reason


Lacks = Callable[[Path], str]  # what a run lacks; empty if nothing


def lacks_lines(run_dir: Path) -> str:
    """Returns why a run cannot be drawn yet, as one that still compiles; empty if it can."""
    from jaxrl.runs import metrics

    try:
        return "" if metrics.read(run_dir) else f"no line in {layout.METRICS} yet"
    except UserError as error:
        return str(error) if (run_dir / layout.METRICS).exists() else f"no {layout.METRICS} yet"


def lacks_checkpoints(run_dir: Path) -> str:
    """Returns why a run cannot be played yet; empty if it can."""
    return "" if checkpoint_files.steps(run_dir) else "no checkpoint yet"


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
