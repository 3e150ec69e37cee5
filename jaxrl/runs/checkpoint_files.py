"""The checkpoints in a run directory: which there are, what they say, whether they are good.

Needs neither JAX nor Orbax.
"""

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.errors import DamagedError, UserError
from jaxrl.runs import checksums, layout

FORMAT = 5
DAMAGED = "damaged"  # where checkpoints go that are not what was written
DELETED = "deleted"  # where those go that are not kept, for a moment: what has its name is whole


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for the host."""

    step: int  # agent steps over all devices
    updates: int
    seconds: float  # of training, compilation excluded
    episodes: int  # games that have ended


class Found(NamedTuple):
    """The checkpoints of a run directory."""

    good: list[int]  # agent steps, oldest first
    damaged: dict[int, str]  # agent step -> what is wrong


class Described(NamedTuple):
    """What a checkpoint says of itself."""

    progress: Progress
    devices: int  # that it was saved on
    config: dict[str, Any]  # of the run, as a table


def directory(run_dir: Path) -> Path:
    """Where the checkpoints of a run lie."""
    return (run_dir / layout.CHECKPOINTS).absolute()


def _is_number(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def steps(run_dir: Path) -> list[int]:
    """Agent steps of the checkpoints that are complete, good or not, oldest first."""
    if not directory(run_dir).is_dir():
        return []
    names = [path.name for path in directory(run_dir).iterdir() if path.is_dir()]
    return sorted(int(name) for name in names if name.isascii() and _is_number(name))


def describe(run_dir: Path, step: int) -> Described:
    """What a checkpoint says of itself. Raises `UserError` where it is of another format."""
    try:
        path = directory(run_dir) / str(step) / "progress" / "metadata"
        said = json.loads(path.read_text(encoding="utf-8"))
        form = int(said.pop("format"))
        if form == FORMAT:
            devices, config = int(said.pop("devices")), dict(said.pop("config"))
            seconds = float(said.pop("seconds"))
            progress = Progress(seconds=seconds, **{name: int(said[name]) for name in said})
            return Described(progress, devices, config)
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
        f"checkpoint {step} of '{run_dir}' is of format {form}, and this jaxrl reads {FORMAT}: "
        f"{advice}"
    )


def damage(run_dir: Path, step: int) -> str:
    """What is wrong with a checkpoint, in a few words; empty if nothing.

    Raises `UserError` where it is of another format.
    """
    found = checksums.damage(directory(run_dir) / str(step))
    if found == f"{layout.CHECKSUMS} is missing":  # older formats had none
        with contextlib.suppress(DamagedError):
            describe(run_dir, step)
    return found


def survey(run_dir: Path) -> Found:
    """Checks every checkpoint. Raises `DamagedError` where there are some and none is good."""
    states = {step: damage(run_dir, step) for step in steps(run_dir)}
    damaged = {step: wrong for step, wrong in states.items() if wrong}
    found = Found([step for step in states if step not in damaged], damaged)
    if damaged and not found.good:
        listed = "; ".join(f"{step}: {wrong}" for step, wrong in damaged.items())
        raise DamagedError(
            f"no checkpoint of '{run_dir}' is what was written ({listed}): nothing was changed; "
            "bring one back from a copy, or train anew in another directory"
        )
    return found


def set_aside(run_dir: Path, damaged: dict[int, str]) -> str:
    """Moves damaged checkpoints out of the way of those to come, and says so; returns where to."""
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
    """The step of the newest good checkpoint, or `step` itself."""
    present = steps(run_dir)
    if not present:
        raise UserError("no checkpoint yet: train longer, or lower checkpoint.interval")
    if step is not None and step not in present:
        raise UserError(f"no checkpoint {step}: there are {', '.join(map(str, present))}")
    wrongs = {}
    for candidate in reversed(present) if step is None else [step]:
        wrong = damage(run_dir, candidate)
        if not wrong:
            return candidate
        wrongs[candidate] = wrong
        print(f"warning: checkpoint {candidate} is damaged ({wrong})", file=sys.stderr)
    raise DamagedError(f"no good checkpoint in '{run_dir}': tried {', '.join(map(str, wrongs))}")
