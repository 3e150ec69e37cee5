"""The checkpoints in a run directory: listed, described and checked, without JAX or Orbax."""

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.errors import DamagedError, UserError
from jaxrl.runs import checksums, layout

FORMAT = 7
READABLE = (6, 7)  # format 6 did not name the engine of its games
RANKED_BY = "return_mean"  # the metric of Orbax by which the best checkpoint is chosen
EVALUATED = "evaluated"  # whether it is an evaluation's mean; the two kinds are never compared
DAMAGED = "damaged"  # directory of checkpoints that have changed since they were written
# A checkpoint is moved here before its files are deleted, so a step's directory is always whole.
DELETED = "deleted"
TABLES = ("actor", "learner", "local")  # items of a checkpoint that hold arrays
MANIFEST = "manifest.ocdbt"  # a table's file without which none of its arrays can be read


@dataclass(frozen=True)
class Progress:
    """The progress of a run, for the host."""

    step: int  # agent steps over all devices
    updates: int
    seconds: float  # training time, compilation excluded
    episodes: int  # games that have ended
    ended_before: int = 0  # those that ended before the games in progress began together
    new_games: int = 0  # 1 where they began together, and no line of the log has recorded it yet


class Survey(NamedTuple):
    """The checkpoints of a run directory."""

    good: list[int]  # agent steps, oldest first
    damaged: dict[int, str]  # agent step -> damage


class Description(NamedTuple):
    """The description in a checkpoint."""

    progress: Progress
    devices: int  # number it was saved on
    config: dict[str, Any]  # the run's, as a table
    games: str  # their `EnvEngine.state_format`; "" if it holds none
    members: int  # runs that trained together, each with a checkpoint of this step


def directory(run_dir: Path) -> Path:
    """Returns the directory of a run's checkpoints."""
    return (run_dir / layout.CHECKPOINTS).absolute()


def _is_number(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def steps(run_dir: Path) -> list[int]:
    """Returns the agent steps of the complete checkpoints, good or damaged, oldest first."""
    if not directory(run_dir).is_dir():
        return []
    names = [path.name for path in directory(run_dir).iterdir() if path.is_dir()]
    return sorted(int(name) for name in names if name.isascii() and _is_number(name))


def lacks_checkpoints(run_dir: Path) -> str:
    """Returns why a run cannot be played yet; empty if it can."""
    return "" if steps(run_dir) else "no checkpoint yet"


def best(run_dir: Path) -> int:
    """Returns the step of the checkpoint with the highest mean. Raises `UserError`.

    Where evaluations were turned on or off, only those of the newest checkpoint's kind count.
    """
    ranked: list[tuple[float, int]] = []
    kind: bool | None = None
    for step in reversed(steps(run_dir)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            path = directory(run_dir) / str(step) / "metrics" / "metrics"
            metrics = json.loads(path.read_text(encoding="utf-8"))
            evaluated = bool(metrics.get(EVALUATED))
            kind = evaluated if kind is None else kind
            if evaluated == kind:
                # None where too few games had ended.
                ranked.append((float(metrics[RANKED_BY]), step))
    if not ranked:
        raise UserError(
            f"no checkpoint of '{run_dir}' can be called the best: until enough games have ended "
            "none is ranked; take --checkpoint latest"
        )
    return max(ranked)[1]


def named(run_dir: Path, checkpoint: int | str | None) -> int | None:
    """Returns the agent step of a checkpoint: a step, "latest" or "best"; None for the newest.

    Raises `UserError`.
    """
    if checkpoint in (None, "latest"):
        return None
    if checkpoint == "best":
        return best(run_dir)
    if not str(checkpoint).replace("_", "").isdecimal():
        raise UserError(f"checkpoint = {checkpoint}: must be an agent step, latest or best")
    return int(checkpoint)


def describe(run_dir: Path, step: int) -> Description:
    """Reads a checkpoint's description. Raises `UserError` if it has another format."""
    try:
        path = directory(run_dir) / str(step) / "progress" / "metadata"
        table = json.loads(path.read_text(encoding="utf-8"))
        form = int(table.pop("format"))
        if form in READABLE:
            devices, config = int(table.pop("devices")), dict(table.pop("config"))
            seconds = float(table.pop("seconds"))
            only_catch = "catch 1" if config.get("game") == "catch" else ""
            games, members = str(table.pop("games", only_catch)), int(table.pop("members", 1))
            progress = Progress(seconds=seconds, **{name: int(table[name]) for name in table})
            return Description(progress, devices, config, games, members)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())
        raise DamagedError(f"checkpoint {step} of '{run_dir}' cannot be read: {reason}") from None
    advice = "install a newer jaxrl" if form > FORMAT else "use the jaxrl that wrote it"
    raise UserError(
        f"checkpoint {step} of '{run_dir}' has format {form}, and this jaxrl reads "
        f"{' and '.join(map(str, READABLE))}: {advice}"
    )


def unreadable(checkpoint: Path) -> str:
    """Returns why the arrays in a checkpoint's directory cannot be read; empty if they can.

    Sums cover the files that were written, not one that is missing. A policy that was kept alone
    has no table but the actor's.
    """
    for name in (name for name in TABLES if name == "actor" or (checkpoint / name).is_dir()):
        manifest = checkpoint / name / MANIFEST
        if not manifest.is_file() or not manifest.stat().st_size:
            return f"{name}/{MANIFEST} is missing"
    return ""


def damage(run_dir: Path, step: int) -> str:
    """Returns the damage of a checkpoint, in a few words; empty if none.

    Raises `UserError` if it has another format.
    """
    checkpoint = directory(run_dir) / str(step)
    reason = checksums.damage(checkpoint) or unreadable(checkpoint)
    if reason == f"{layout.CHECKSUMS} is missing":  # older formats had none
        with contextlib.suppress(DamagedError):
            describe(run_dir, step)
    return reason


def survey(run_dir: Path) -> Survey:
    """Checks every checkpoint. Raises `DamagedError` if there are some and none is good."""
    states = {step: damage(run_dir, step) for step in steps(run_dir)}
    damaged = {step: wrong for step, wrong in states.items() if wrong}
    good = [step for step in states if step not in damaged]
    if damaged and not good:
        raise _all_damaged(run_dir, damaged)
    return Survey(good, damaged)


def _all_damaged(run_dir: Path, damaged: dict[int, str]) -> DamagedError:
    """Returns the error of a run without a good checkpoint."""
    listed = "; ".join(f"{step}: {wrong}" for step, wrong in sorted(damaged.items()))
    return DamagedError(
        f"every checkpoint of '{run_dir}' is damaged, and nothing was changed ({listed}): "
        "restore one from a copy, or train again in another directory"
    )


def drop_newer(run_dir: Path, step: int) -> None:
    """Deletes the checkpoints after a step, from which all members of a population go on.

    A member may be one ahead of the others where the process was killed, and saves it again.
    """
    for newer in (number for number in steps(run_dir) if number > step):
        print(f"'{run_dir}' is ahead with checkpoint {newer}: it goes back to {step}",
              file=sys.stderr)  # fmt: skip
        target = directory(run_dir) / DELETED / str(newer)  # as `DELETED` says
        target.parent.mkdir(exist_ok=True)
        (directory(run_dir) / str(newer)).replace(target)
        shutil.rmtree(target.parent)


def set_aside(run_dir: Path, damaged: dict[int, str]) -> str:
    """Moves damaged checkpoints out of the way, with a warning; returns the new directory."""
    for step, wrong in damaged.items():
        target = run_dir / DAMAGED / str(step)
        number = 1
        while target.exists():
            target, number = target.with_name(f"{step}-{number}"), number + 1
        target.parent.mkdir(exist_ok=True)
        (directory(run_dir) / str(step)).replace(target)
        print(f"warning: checkpoint {step} is damaged ({wrong}): moved to '{target}'",
              file=sys.stderr)  # fmt: skip
    return str(run_dir / DAMAGED)


def newest_good(run_dir: Path, step: int | None) -> int:
    """Returns the step of the newest good checkpoint, or `step`, if that one is good."""
    present = steps(run_dir)
    if not present:
        raise UserError(
            f"'{run_dir}' has no checkpoint yet: train longer, or lower checkpoint.interval"
        )
    if step is not None and step not in present:
        raise UserError(
            f"'{run_dir}' has no checkpoint {step}: there are {', '.join(map(str, present))}"
        )
    if step is not None:
        if wrong := damage(run_dir, step):
            raise DamagedError(
                f"checkpoint {step} of '{run_dir}' is damaged ({wrong}): name another "
                "--checkpoint, or none for the newest"
            )
        return step
    damaged: dict[int, str] = {}
    for candidate in reversed(present):
        wrong = damage(run_dir, candidate)
        if not wrong:
            for number, reason in damaged.items():
                print(f"warning: checkpoint {number} is damaged ({reason})", file=sys.stderr)
            return candidate
        damaged[candidate] = wrong
    raise _all_damaged(run_dir, damaged)
