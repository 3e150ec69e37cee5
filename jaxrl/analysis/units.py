"""The axes that learning curves are drawn against, and the unit that fits a run's length."""

from typing import Literal, NamedTuple, get_args

Axis = Literal["frames", "step", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)


class Unit(NamedTuple):
    """The unit of an axis."""

    size: float  # in what metrics.jsonl counts: frames, steps or seconds
    label: str
    least: float  # end of the shortest run that is drawn in it


# The largest first. Ticks of a short run in millions would be 0.0005, 0.0010, ...
_UNITS: dict[Axis, tuple[Unit, ...]] = {
    "frames": (
        Unit(1e6, "emulator frames (millions)", 2e5),
        Unit(1e3, "emulator frames (thousands)", 2e3),
        Unit(1.0, "emulator frames", 0.0),
    ),
    "step": (
        Unit(1e6, "agent steps (millions)", 2e5),
        Unit(1e3, "agent steps (thousands)", 2e3),
        Unit(1.0, "agent steps", 0.0),
    ),
    "seconds": (
        Unit(60.0, "training time (minutes, compilation excluded)", 120.0),
        Unit(1.0, "training time (seconds, compilation excluded)", 0.0),
    ),
}
LONGEST = {axis: units[0] for axis, units in _UNITS.items()}
LABELS = {axis: unit.label for axis, unit in LONGEST.items()}


def unit_of(axis: Axis, last: float) -> Unit:
    """Returns the unit in which curves that end at `last` are drawn."""
    return next(unit for unit in _UNITS[axis] if last >= unit.least)
