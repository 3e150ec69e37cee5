"""Pictures of a search for hyperparameters: its history, and how values and settings relate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrl.analysis.drawing import (
    COLORS,
    GRAY,
    PALE,
    SHADES,
    explain,
    legend_beside,
    new_figure,
    save,
)
from jaxrl.config.variations import Settings, shown

if TYPE_CHECKING:
    import matplotlib

PALEST = 0.12  # where the shades begin: paler ones vanish on white
NOTHING = "too few trials with a value"
TICKS = 5  # about as many on a vertical axis of numbers


class StudyTrial(NamedTuple):
    """One trial of a search."""

    number: int
    status: str  # done, repeated, pruned, diverged, refused, failed, stopped or begun
    value: float | None  # the objective; None unless it trained to its end
    settings: Settings  # the values that are searched, by dotted key
    scores: list[float]  # scores of the seeds that trained to their end
    curve: dict[int, float]  # mean return at points of the training, over all seeds
    note: str  # why it ended so
    ended: bool  # whether nothing of it is left to train


class Importance(NamedTuple):
    """Importance of a key for good values: its share of all keys', with a 95 % interval."""

    share: float
    low: float  # by the bootstrap over the trials
    high: float


class Axis(NamedTuple):
    """A key that is searched."""

    key: str
    name: str  # the key, or its last part
    numbers: bool  # a range of numbers; else a list of values
    log: bool


class Scale(NamedTuple):
    """Places of the values of one axis, from 0 to 1, and its labels."""

    places: list[float]
    ticks: list[tuple[float, str]]


def history(trials: Sequence[StudyTrial], maximize: bool, label: str, target: Path) -> None:
    """Draws the objective `label` of each trial, and the best so far; the first is the recipe."""
    figure = new_figure(8, 4)
    axes: Any = figure.subplots()
    valued = [(trial.number, trial.value) for trial in trials if trial.value is not None]
    if not valued:
        explain(axes, NOTHING)
        save(figure, target)
        return
    numbers, values = (np.array(column) for column in zip(*valued, strict=True))
    so_far = (np.maximum if maximize else np.minimum).accumulate(values)
    axes.step(numbers, so_far, where="post", color=COLORS[1], label="best so far")
    if trials[0].value is not None:
        axes.axhline(trials[0].value, color=GRAY, linestyle=":", label="the recipe (trial 0)")
    axes.scatter(numbers, values, color=COLORS[0], zorder=3, label="trained to its end")
    early = [(t.number, t.curve[max(t.curve)]) for t in trials if t.status == "pruned" and t.curve]
    if early:
        x, y = zip(*early, strict=True)
        axes.scatter(x, y, color=COLORS[0], marker="x", zorder=3, label="pruned: its last return")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial")
    axes.set_ylabel("value")
    axes.set_title(label, fontsize="medium", loc="left")
    axes.grid(alpha=0.3)
    legend_beside(axes)
    save(figure, target)


def importance(shares: dict[str, Importance], trials: int, label: str, target: Path) -> None:
    """Draws how much each key matters for good values, the most important on top.

    `trials` had a value, and gave the shares.
    """
    figure = new_figure(8, 1.7 + 0.4 * max(len(shares), 2))
    axes: Any = figure.subplots()
    if not shares:
        explain(axes, NOTHING)
        save(figure, target)
        return
    ordered = sorted(shares.items(), key=lambda item: item[1].share)
    names, intervals = zip(*ordered, strict=True)
    values = 100 * np.array(intervals)  # [keys, 3]
    # A resampled share may lie to one side of that of all trials, which then ends the bar.
    errors = [
        np.maximum(values[:, 0] - values[:, 1], 0),
        np.maximum(values[:, 2] - values[:, 0], 0),
    ]
    axes.barh(names, values[:, 0], color=PALE)
    axes.errorbar(
        values[:, 0], names, xerr=errors, fmt="o", color=COLORS[0], markersize=4, capsize=3
    )
    for place, (share, low, high) in enumerate(values):
        axes.text(103, place, f"{share:.0f} % ({low:.0f} to {high:.0f})", va="center")
    axes.set_xlim(0, 132)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(
        f"importance (%) by PED-ANOVA of {trials} trials; lines: 95 % bootstrap intervals"
    )
    axes.set_title(label, fontsize="medium", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, target)


def parallel_coordinates(
    trials: Sequence[StudyTrial], keys: Sequence[Axis], maximize: bool, label: str, target: Path
) -> None:
    """Draws each trial with a value as a line through its settings, the better the darker."""
    import matplotlib

    valued = [trial for trial in trials if trial.value is not None]
    # The best last: it is on top.
    valued.sort(key=lambda trial: (trial.value or 0.0) * (1 if maximize else -1))
    figure = new_figure(2.6 + 1.7 * len(keys), 4.4)
    axes: Any = figure.subplots()
    if len(valued) < 2:
        explain(axes, NOTHING)
        save(figure, target)
        return
    columns = [_numbers([trial.value or 0.0 for trial in valued], log=False)]
    for axis in keys:
        settings = [trial.settings[axis.key] for trial in valued]
        columns.append(_numbers(settings, axis.log) if axis.numbers else _words(settings))
    shades = np.linspace(PALEST, 1, len(valued))  # by rank: one bad trial would leave no contrast
    for place, color in enumerate(matplotlib.colormaps[SHADES](shades)):
        width = 3 if place == len(valued) - 1 else 1.3
        axes.plot([column.places[place] for column in columns], color=color, linewidth=width)
    _label_axes(axes, columns, ["value", *(axis.name for axis in keys)])
    axes.set_title(f"{label}: the better the darker", fontsize="medium", loc="left", pad=16)
    save(figure, target)


def _numbers(values: Sequence[float], log: bool) -> Scale:
    """Returns the places of numbers between the least and the largest of them."""
    low, high = min(values), max(values)
    log = log and low > 0

    def place(value: float) -> float:
        if low == high:
            return 0.5
        if log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    ticks = [(place(tick), shown(tick)) for tick in _ticks(values, log)]
    return Scale([place(value) for value in values], ticks)


def _ticks(values: Sequence[float], log: bool) -> list[float]:
    """Returns round numbers within the range of the values, or the ends of a narrow one."""
    import matplotlib.ticker

    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values) and len(set(values)) <= TICKS:
        return sorted(set(values))
    locator: Any = matplotlib.ticker.LogLocator() if log else matplotlib.ticker.MaxNLocator(TICKS)
    round_ones = [float(f"{tick:.6g}") for tick in locator.tick_values(low, high)]
    within = [tick for tick in round_ones if low <= tick <= high]
    return within if len(within) > 1 else [float(f"{value:.3g}") for value in (low, high)]


def _words(values: Sequence[Any]) -> Scale:
    """Returns the places of listed values: numbers in their order, others as they occur."""
    kinds = list(dict.fromkeys(values))
    if all(isinstance(kind, int | float) for kind in kinds):
        kinds.sort()
    if len(kinds) == 1:
        return Scale([0.5] * len(values), [(0.5, shown(kinds[0]))])
    steps = len(kinds) - 1
    ticks = [(place / steps, shown(kind)) for place, kind in enumerate(kinds)]
    return Scale([kinds.index(value) / steps for value in values], ticks)


def _label_axes(axes: "matplotlib.axes.Axes", columns: list[Scale], names: list[str]) -> None:
    """Draws the vertical axes with their labels."""
    behind = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
    for x, column in enumerate(columns):
        axes.axvline(x, color="black", linewidth=0.8, zorder=0)
        for height, word in column.ticks:
            axes.text(x + 0.03, height, word, va="center", fontsize="small", bbox=behind, zorder=4)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks([])
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlim(-0.05, len(names) - 1 + 0.35)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
