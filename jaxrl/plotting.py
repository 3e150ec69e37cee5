"""Learning curves, for files and for notebooks."""

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
    axes.legend(fontsize="small", loc="best")


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
    try:
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write '{target}': {error}") from None
