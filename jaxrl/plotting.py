"""Learning curves and throughput, for files and for notebooks."""

from pathlib import Path
from typing import Literal

import matplotlib

from jaxrl import metrics
from jaxrl.config import UserError

FILE = "learning_curve.png"
Axis = Literal["frames", "step", "seconds"]
LABELS = {
    "frames": "emulator frames (millions)",
    "step": "agent steps (millions)",
    "seconds": "training time (minutes, compilation excluded)",
}
UNITS = {"frames": 1e6, "step": 1e6, "seconds": 60.0}


def curve(run_dir: Path, axis: Axis = "frames") -> tuple[list[float], list[float]]:
    """(x, mean return of the last 100 games) of every line with a game; x in the unit of LABELS."""
    rows = [row for row in metrics.read(run_dir) if row["return_mean"] is not None]
    return [row[axis] / UNITS[axis] for row in rows], [row["return_mean"] for row in rows]


def draw(axes: "matplotlib.axes.Axes", run_dirs: list[Path], axis: Axis = "frames") -> None:
    """Draws the runs' curves into matplotlib axes, with labels and a legend."""
    empty = True
    for run_dir in run_dirs:
        x, y = curve(run_dir, axis)
        axes.plot(x, y, label=run_dir.name)
        empty &= not x
    axes.set_xlabel(LABELS[axis])
    axes.set_ylabel("return, mean of the last 100 games")
    axes.grid(alpha=0.3)
    if empty:
        axes.text(0.5, 0.5, "no game over yet", transform=axes.transAxes, ha="center")
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.legend(fontsize="small", loc="best")


def throughput(rates: dict[int, dict[str, float]], target: Path, title: str) -> None:
    """Writes a PNG: steps per second of each load, and of each environment (CuLE, figure 2).

    Args:
      rates: number of environments -> load -> agent steps per second.
      target: the PNG. Raises `UserError` where it cannot be written.
      title: what was measured.
    """
    import matplotlib.figure
    import matplotlib.ticker

    figure = matplotlib.figure.Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    numbers = sorted(rates)
    for load in rates[numbers[0]]:
        values = [rates[number][load] for number in numbers]
        style = {"linestyle": "--", "color": "grey"} if load == "loop" else {"marker": "o"}
        axes[0].plot(numbers, values, label=load, **style)
        each = [value / number for value, number in zip(values, numbers, strict=True)]
        axes[1].plot(numbers, each, label=load, **style)
    for axis, what in zip(axes, ("all environments", "each environment"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.set_yscale("log")  # loads may lie a hundred times apart
        axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.minorticks_off()
        axis.set_xlabel("environments")
        axis.set_ylabel(f"agent steps per second, {what}")
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize="small", loc="upper right")  # curves fall, so it is empty there
    figure.suptitle(title, fontsize="medium")
    _save(figure, target)


def learning_curve(run_dirs: list[Path], target: Path) -> None:
    """Writes a PNG: return against frames, and against time. Raises `UserError` without metrics."""
    import matplotlib.figure

    for run_dir in run_dirs:
        if not (run_dir / metrics.FILE).is_file():
            raise UserError(f"'{run_dir}' is no run directory: it has no {metrics.FILE}")
    figure = matplotlib.figure.Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    draw(left, run_dirs, "frames")
    draw(right, run_dirs, "seconds")
    right.set_ylabel("")
    _save(figure, target)


def _save(figure: "matplotlib.figure.Figure", target: Path) -> None:
    try:
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write '{target}': {error}") from None
