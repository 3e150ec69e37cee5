"""The points of learning curves: single runs, means over seeds, and when a score was reached."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxrl.analysis.units import LONGEST, Axis, Unit
from jaxrl.errors import UserError
from jaxrl.runs import metrics
from jaxrl.runs.directory import settings_by_key

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

POINTS = 200  # x values of a mean over seeds


class Band(NamedTuple):
    """Mean and range of several seeds on P common points; P is 0 if their curves do not overlap."""

    x: np.ndarray  # f64[P], by default in the unit of LABELS
    mean: np.ndarray  # f64[P]
    lowest: np.ndarray  # f64[P]
    highest: np.ndarray  # f64[P]


def curve(
    run_dir: Path, axis: Axis = "frames", smooth: int = 1, unit: Unit | None = None
) -> tuple[list[float], list[float]]:
    """Returns x, by default in the unit of LABELS, and the mean return of each line with a game.

    With `smooth` k > 1 each return is averaged with up to k - 1 returns before it.
    """
    if smooth < 1:
        raise UserError(f"smooth = {smooth}: must be at least 1, a number of lines")
    rows = [row for row in metrics.read(run_dir) if row["return_mean"] is not None]
    returns = [row["return_mean"] for row in rows]
    if smooth > 1:
        ends = range(1, len(returns) + 1)
        returns = [statistics.fmean(returns[max(0, end - smooth) : end]) for end in ends]
    size = (unit or LONGEST[axis]).size
    return [row[axis] / size for row in rows], returns


def band(
    run_dirs: Iterable[Path], axis: Axis = "frames", smooth: int = 1, unit: Unit | None = None
) -> Band:
    """Returns mean, lowest and highest return of several seeds, interpolated on common points.

    The points are spaced evenly over the range that all runs cover: each is a mean of all seeds.
    """
    curves = [curve(run_dir, axis, smooth, unit) for run_dir in run_dirs]
    none = np.zeros(0)
    if not all(x for x, _ in curves):
        return Band(none, none, none, none)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if first > last:
        return Band(none, none, none, none)
    points = np.linspace(first, last, POINTS)
    values = np.stack([np.interp(points, x, y) for x, y in curves])
    return Band(points, values.mean(0), values.min(0), values.max(0))


def time_to_score(run_dirs: Iterable[Path], scores: Sequence[float]) -> "pandas.DataFrame":
    """Returns when each run's mean of the last 100 games first reached each score; needs pandas.

    Columns: `run`, `score`, and `step`, `frames` and `minutes` of training of the first line at or
    above the score, None if there is none. Means of first games do not count.
    """
    import pandas

    table = []
    for run_dir in run_dirs:
        rows = metrics.read(run_dir)
        means = metrics.fair_means(rows, settings_by_key(run_dir))
        for score in scores:
            reached = metrics.first_reaching(rows, means, score)
            when = (reached["step"], reached["frames"], reached["seconds"] / 60) if reached else ()
            table.append([run_dir.name, score, *(when or (None, None, None))])
    columns = ["run", "score", "step", "frames", "minutes"]
    return pandas.DataFrame(table, columns=columns, dtype=object)
