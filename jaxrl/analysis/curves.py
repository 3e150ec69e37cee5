"""Learning curves of single runs and of several seeds, for files and for notebooks.

Returns are the mean of the last 100 games, or of those so far, as metrics.jsonl has them; a circle
marks means of first games, which favor short ones. Curves are smoothed only if `smooth` gives a
number of lines, and the label of the axis then shows it.
"""

import contextlib
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from jaxrl.analysis.drawing import GREY, legend_below, legend_beside, line_style, save
from jaxrl.analysis.groups import RunGroup, groups_of_any, single_runs
from jaxrl.errors import UserError
from jaxrl.formatting import no_game
from jaxrl.runs import evaluation_record, metrics
from jaxrl.runs.directory import settings_by_key
from jaxrl.types import WINDOW

if TYPE_CHECKING:
    import matplotlib
    import pandas  # type: ignore[import-untyped]

Axis = Literal["frames", "step", "seconds"]
LABELS = {
    "frames": "emulator frames (millions)",
    "step": "agent steps (millions)",
    "seconds": "training time (minutes, compilation excluded)",
}
UNITS = {"frames": 1e6, "step": 1e6, "seconds": 60.0}
POINTS = 200  # of a mean over seeds
MOST_ROWS = 6  # games that have a row of panels each; of more each has one panel
COLUMNS = 4  # of the panels of many games
EARLY = "mean of first games only,\nwhich favors short ones"
UNKNOWN = f"{EARLY}\n(all, where num_envs is unknown)"


class Band(NamedTuple):
    """Mean and range of several seeds on P common points; P is 0 if their curves do not overlap."""

    x: np.ndarray  # f64[P], in the unit of LABELS
    mean: np.ndarray  # f64[P]
    lowest: np.ndarray  # f64[P]
    highest: np.ndarray  # f64[P]


# --- data of curves ------------------------------------------------------------------------------


def curve(run_dir: Path, axis: Axis = "frames", smooth: int = 1) -> tuple[list[float], list[float]]:
    """Returns x, in the unit of LABELS, and the mean return of each line that has a game.

    With `smooth` k > 1 each return is averaged with up to k - 1 returns before it.
    """
    if smooth < 1:
        raise UserError(f"smooth = {smooth}: must be at least 1, a number of lines")
    rows = [row for row in metrics.read(run_dir) if row["return_mean"] is not None]
    returns = [row["return_mean"] for row in rows]
    if smooth > 1:
        ends = range(1, len(returns) + 1)
        returns = [statistics.fmean(returns[max(0, end - smooth) : end]) for end in ends]
    return [row[axis] / UNITS[axis] for row in rows], returns


def of_first_games(run_dir: Path) -> list[bool]:
    """Returns whether each line's mean covers first games, which favor short ones.

    Every line does where the run's number of environments is unknown.
    """
    return metrics.of_first_games(metrics.read(run_dir), settings_by_key(run_dir))


def band(run_dirs: Iterable[Path], axis: Axis = "frames", smooth: int = 1) -> Band:
    """Returns mean, lowest and highest return of several seeds, interpolated on common points.

    The points are spaced evenly over the range that all runs cover: each is a mean of all seeds.
    """
    curves = [curve(run_dir, axis, smooth) for run_dir in run_dirs]
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

    found = []
    for run_dir in run_dirs:
        marked = zip(metrics.read(run_dir), of_first_games(run_dir), strict=True)
        rows = [row for row, first in marked if row["return_mean"] is not None and not first]
        for score in scores:
            reached = next((row for row in rows if row["return_mean"] >= score), None)
            when = (reached["step"], reached["frames"], reached["seconds"] / 60) if reached else ()
            found.append([run_dir.name, score, *(when or (None, None, None))])
    columns = ["run", "score", "step", "frames", "minutes"]
    return pandas.DataFrame(found, columns=columns, dtype=object)


# --- learning curves -----------------------------------------------------------------------------


def draw(
    axes: "matplotlib.axes.Axes", run_dirs: list[Path], axis: Axis = "frames", smooth: int = 1
) -> None:
    """Draws a curve for each run into matplotlib axes, with labels and a legend beside them."""
    draw_seeds(axes, single_runs(run_dirs), axis, smooth)


def draw_seeds(
    axes: "matplotlib.axes.Axes",
    groups: Sequence[RunGroup],
    axis: Axis = "frames",
    smooth: int = 1,
    order: Sequence[str] = (),
) -> None:
    """Draws each group's mean over seeds, its band from lowest to highest, and thin single seeds.

    `order` lists labels in the order of their colors; pictures side by side then agree.
    """
    order = list(dict.fromkeys([*order, *(one.label for one in groups)]))
    for one in groups:
        _draw_group(axes, one, axis, smooth, line_style(order.index(one.label)))
    colors = {
        run_dir: line_style(order.index(one.label))["color"]
        for one in groups
        for run_dir in one.run_dirs
    }
    _mark_early(axes, colors, axis, smooth)
    _finish(axes, list(colors), axis, smooth)


def comparison(
    run_dirs: Iterable[Path],
    columns: Sequence[Axis] = ("frames", "seconds"),
    smooth: int = 1,
    each: bool = False,
) -> "matplotlib.figure.Figure":
    """Draws algorithms side by side with `draw_seeds`: a row per game, a column per axis.

    A configuration has the same color in all panels, and legends stand beside them. Of more than
    `MOST_ROWS` games each has one panel, against the first axis. `each` draws a curve for each run
    in place of means over seeds.
    """
    import matplotlib.figure

    run_dirs = list(run_dirs)
    alone = len(run_dirs) == 1
    found = single_runs(run_dirs) if each or alone else groups_of_any(run_dirs)
    games = list(dict.fromkeys(one.game for one in found))
    order = list(dict.fromkeys(one.label for one in found))
    if len(games) > MOST_ROWS:
        return _many_games(found, games, columns[0], smooth)
    size = (3.6 * len(columns) + 2.6, 0.4 + max(3.4, 2.7 * len(games)))
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(games), len(columns), squeeze=False, sharey="row")
    for row, game in zip(grid, games, strict=True):
        of_game = [one for one in found if one.game == game]
        for axes, axis in zip(row, columns, strict=True):
            draw_seeds(axes, of_game, axis, smooth, order)
        for axes in row[:-1]:
            if axes.legend_:
                axes.legend_.remove()
        for axes in row[1:]:
            axes.set_ylabel("")
        row[0].set_title(game, loc="left", fontweight="bold", parse_math=False)
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    if alone:
        _name_run(grid[0, 0], run_dirs[0])
    return figure


def _many_games(
    groups: Sequence[RunGroup], games: Sequence[str], axis: Axis, smooth: int
) -> "matplotlib.figure.Figure":
    """Draws a panel for each of many games, with one legend below all of them."""
    import matplotlib.figure
    from matplotlib.lines import Line2D

    order = list(dict.fromkeys(one.label for one in groups))
    rows = -(-len(games) // COLUMNS)
    height = 0.6 + 2.1 * rows + 0.25 * -(-len(order) // COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(3 * COLUMNS, height), layout="constrained")
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for axes, game in zip(panels, games, strict=False):
        draw_seeds(axes, [one for one in groups if one.game == game], axis, smooth, order)
        if axes.legend_:
            axes.legend_.remove()
        axes.set_title(game, parse_math=False)
        axes.set(xlabel="", ylabel="")
    for axes in panels[len(games) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(games) - COLUMNS) : len(games)]:  # a legend is below the figure
        axes.set_xlabel(LABELS[axis])
    figure.supylabel(_of_returns(smooth), fontsize="medium")
    lines = [Line2D([], [], label=label, **line_style(n)) for n, label in enumerate(order)]
    seeds = any(len(one.run_dirs) > 1 for one in groups)
    title = "means of seeds, bands from lowest to highest; " * seeds + f"circle: {EARLY}"
    legend_below(figure, handles=lines, ncols=COLUMNS, title=title.replace("\n", " "))
    return figure


def learning_curve(run_dirs: list[Path], target: Path, each: bool = False) -> None:
    """Writes a PNG of return against frames and time. Raises `UserError` without metrics."""
    save(comparison(run_dirs, each=each), target)


def _name_run(axes: "matplotlib.axes.Axes", run_dir: Path) -> None:
    """Writes a run's algorithm and seed above the axes, and its number of games if they are few."""
    settings = settings_by_key(run_dir)
    names = [axes.get_title(loc="left")]
    names += [str(settings["algorithm"])] if "algorithm" in settings else []
    names += [f"seed {settings['seed']}"] if "seed" in settings else []
    rows = [row for row in metrics.read(run_dir) if row["return_mean"] is not None]
    games = int(rows[-1].get("episodes") or 0) if rows else 0
    few = 0 < games < WINDOW
    so_far = f": {games} {'game' if games == 1 else 'games'} so far" if few else ""
    axes.set_title(", ".join(names) + so_far, loc="left", fontweight="bold", parse_math=False)
    if few:
        axes.set_ylabel("return, mean of the games so far")


def _draw_group(
    axes: "matplotlib.axes.Axes", group: RunGroup, axis: Axis, smooth: int, line: dict[str, Any]
) -> None:
    """Draws one curve, or the seeds that have one, their mean and their band."""
    found = {run_dir: curve(run_dir, axis, smooth) for run_dir in group.run_dirs}
    drawn = [run_dir for run_dir, (x, _) in found.items() if x]
    label = _label(group, len(drawn))
    if len(drawn) < 2:
        x, y = found[drawn[0]] if drawn else ([], [])
        axes.plot(x, y, label=label, marker="o" if len(x) == 1 else None, **line)
        return
    for run_dir in drawn:  # also beyond the range that all seeds cover
        x, y = found[run_dir]
        marker = "." if len(x) == 1 else None
        axes.plot(x, y, **line, marker=marker, linewidth=0.7, alpha=0.45)
    seeds = band(drawn, axis, smooth)
    if not seeds.x.size:
        axes.plot([], [], label=f"{label},\nwhich have no range in common", **line)
        return
    label = f"{label},\nband from lowest to highest"
    marker = "o" if seeds.x[0] == seeds.x[-1] else None
    axes.plot(seeds.x, seeds.mean, label=label, marker=marker, markevery=[0], **line)
    axes.fill_between(
        seeds.x, seeds.lowest, seeds.highest, color=line["color"], alpha=0.2, linewidth=0
    )


def _label(group: RunGroup, drawn: int) -> str:
    """Returns a group's entry in the legend, of which `drawn` runs have a curve."""
    number = len(group.run_dirs)
    if not drawn:
        return f"{group.label}: {no_game(all(map(_has_ended, group.run_dirs))).split(':')[0]}"
    if number == 1:
        is_name = str(group.run_dirs[0]).endswith(group.label)
        return group.label if is_name else f"{group.label}: 1 seed"
    seeds = {settings_by_key(run_dir).get("seed") for run_dir in group.run_dirs}
    noun = "seeds" if len(seeds) == number else "runs"
    share = f"{drawn} of {number}" if drawn < number else str(number)
    return f"{group.label}: {'mean of ' * (drawn > 1)}{share} {noun}"


def _mark_early(
    axes: "matplotlib.axes.Axes", colors: dict[Path, Any], axis: Axis, smooth: int
) -> None:
    """Draws a circle at each mean of first games, with one entry in the legend."""
    marks: dict[str, Any] = {"s": 14, "facecolors": "white", "linewidths": 0.8, "zorder": 3}
    any_early, all_known = False, True
    for run_dir, color in colors.items():
        lines = zip(metrics.read(run_dir), of_first_games(run_dir), strict=True)
        early = [first for row, first in lines if row["return_mean"] is not None]
        x, y = (np.asarray(values)[early] for values in curve(run_dir, axis, smooth))
        if any(early):
            axes.scatter(x, y, edgecolors=color, **marks)
            any_early = True
            all_known &= metrics.num_envs_in(settings_by_key(run_dir)) is not None
    if any_early:
        label = EARLY if all_known else UNKNOWN
        axes.scatter([], [], edgecolors=GREY, label=label, **marks)


def _has_ended(run_dir: Path) -> bool:
    """Returns whether a run has trained all its steps."""
    rows, goal = metrics.read(run_dir), settings_by_key(run_dir).get("total_steps")
    return bool(rows) and type(goal) is int and rows[-1]["step"] >= goal


def _without_curve(run_dirs: list[Path]) -> str:
    """Returns why no run has a curve, and the mean scores of their evaluations."""
    lines = [no_game(bool(run_dirs) and all(map(_has_ended, run_dirs)))]
    for run_dir in run_dirs:
        with contextlib.suppress(UserError):
            mean = evaluation_record.read(run_dir).mean
            of_run = f" of {run_dir.name}" * (len(run_dirs) > 1)
            lines.append(f"evaluation{of_run}: mean score {mean:.1f}")
    return "\n".join(lines)


def _of_returns(smooth: int) -> str:
    """Returns the label of the axis of returns."""
    smoothed = f",\ntrailing mean of {smooth} lines" if smooth > 1 else ""
    return f"return, mean of the last {WINDOW} games{smoothed}"


def _finish(axes: "matplotlib.axes.Axes", run_dirs: list[Path], axis: Axis, smooth: int) -> None:
    """Adds labels, grid and legend, or a text if nothing has been drawn."""
    axes.set_xlabel(LABELS[axis])
    axes.set_ylabel(_of_returns(smooth))
    axes.grid(alpha=0.3)
    if any(np.size(line.get_xdata()) for line in axes.lines):
        legend_beside(axes)
        return
    words = _without_curve(run_dirs)
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
