"""Learning curves of single runs and of several seeds, for files and for notebooks.

Returns are the mean of the last 100 games, or of those so far, as metrics.jsonl has them; a circle
marks means of first games, which favor short ones. Curves are smoothed only if `smooth` gives a
number of lines, and the label of the axis then shows it.
"""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrl.analysis.curve_data import band, curve
from jaxrl.analysis.curve_data import time_to_score as time_to_score
from jaxrl.analysis.drawing import (
    GRAY,
    explain,
    legend_below,
    legend_beside,
    line_style,
    new_figure,
    save,
)
from jaxrl.analysis.groups import RunGroup, group_any_runs, short_labels, single_runs
from jaxrl.analysis.units import LABELS as LABELS
from jaxrl.analysis.units import Axis, Unit, unit_of
from jaxrl.errors import UserError
from jaxrl.formatting import no_game
from jaxrl.runs import evaluation_record, metrics
from jaxrl.runs.directory import settings_by_key
from jaxrl.types import WINDOW

if TYPE_CHECKING:
    import matplotlib

MOST_ROWS = 6  # games that have a row of panels each; of more each has one panel
COLUMNS = 4  # panels side by side where there are many games
EARLY = "mean of first games only,\nwhich favors short ones"
UNKNOWN = f"{EARLY}\n(all, where num_envs is unknown)"
BAND = "band from lowest to highest"
BANDS = "bands from lowest to highest"  # in a legend that all panels share
CIRCLES = {label: f"circle: {' '.join(label.split())}" for label in (EARLY, UNKNOWN)}


class View(NamedTuple):
    """The axis that curves are drawn against, and their smoothness."""

    axis: Axis
    smooth: int  # lines that are averaged
    unit: Unit

    @property
    def returns_label(self) -> str:
        """The label of the axis of returns."""
        smoothed = f",\ntrailing mean of {self.smooth} lines" if self.smooth > 1 else ""
        return f"return, mean of the last {WINDOW} games{smoothed}"


def _view(run_dirs: Iterable[Path], axis: Axis, smooth: int) -> View:
    """Returns the view whose unit fits the longest of the runs."""
    ends = [row[axis] for run_dir in run_dirs for row in metrics.read(run_dir)[-1:]]
    return View(axis, smooth, unit_of(axis, max(ends, default=0.0)))


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
    view = _view([run_dir for group in groups for run_dir in group.run_dirs], axis, smooth)
    if _draw(axes, groups, view, order):
        legend_beside(axes)


def comparison(
    run_dirs: Iterable[Path],
    columns: Sequence[Axis] = ("frames", "seconds"),
    smooth: int = 1,
    each: bool = False,
) -> "matplotlib.figure.Figure":
    """Draws algorithms side by side with `draw_seeds`: a row per game, a column per axis.

    A configuration has the same color in all panels, and one legend is below them, with what
    differs between the names. Of more than `MOST_ROWS` games each has one panel, against the first
    axis. `each` draws a curve for each run in place of means over seeds.
    """
    run_dirs = list(run_dirs)
    alone = len(run_dirs) == 1
    groups = single_runs(run_dirs) if each or alone else group_any_runs(run_dirs)
    common, short = short_labels(list(dict.fromkeys(group.label for group in groups)))
    groups = [group._replace(label=short[group.label]) for group in groups]
    games, order = list(dict.fromkeys(group.game for group in groups)), list(short.values())
    if len(games) > MOST_ROWS:
        return _many_games(groups, games, columns[0], smooth)
    figure = new_figure(0.8 + 4.4 * len(columns), 0.4 + max(3.4, 2.7 * len(games)))
    grid = figure.subplots(len(games), len(columns), squeeze=False, sharey="row")
    views = [_view(run_dirs, axis, smooth) for axis in columns]
    for row, game in zip(grid, games, strict=True):
        game_groups = [group for group in groups if group.game == game]
        for axes, view in zip(row, views, strict=True):
            _draw(axes, game_groups, view, order)
        for axes in row[1 if len(games) == 1 else 0 :]:
            axes.set_ylabel("")
        row[0].set_title(game, loc="left", fontweight="bold", parse_math=False)
    for axes in grid[:-1].flat:
        axes.set_xlabel("")
    if len(games) > 1:
        figure.supylabel(views[0].returns_label, fontsize="medium")
    if alone:
        _name_run(grid[0, 0], run_dirs[0])
    _legend_of_games(figure, dict(zip(games, grid[:, 0], strict=True)), common)
    return figure


def _legend_of_games(
    figure: "matplotlib.figure.Figure", panels: dict[str, "matplotlib.axes.Axes"], title: str
) -> None:
    """Adds one legend of all panels; an entry that not all of them have names its games."""
    handles: dict[str, Any] = {}
    games: dict[str, list[str]] = {}
    notes = [title] if title else []
    drawn = {game: axes for game, axes in panels.items() if _has_curve(axes)}
    for game, axes in drawn.items():
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entry, note = _split_note(label)
            notes += [note] if note and note not in notes else []
            handles |= {entry: handle} if entry else {}
            games.setdefault(entry, []).append(game)
    entries = {
        entry if len(games[entry]) == len(drawn) else f"{entry} ({', '.join(games[entry])})": handle
        for entry, handle in handles.items()
    }
    if entries:
        legend_below(figure, entries, "; ".join(notes))


def _split_note(label: str) -> tuple[str, str]:
    """Splits a label into its entry and the note that many entries share."""
    if label in CIRCLES:
        return "", CIRCLES[label]
    entry, is_band, _ = label.partition(f",\n{BAND}")
    return entry, BANDS if is_band else ""


def _many_games(
    groups: Sequence[RunGroup], games: Sequence[str], axis: Axis, smooth: int
) -> "matplotlib.figure.Figure":
    """Draws a panel for each of many games, with one legend below all of them."""
    from matplotlib.lines import Line2D

    order = list(dict.fromkeys(group.label for group in groups))
    rows = -(-len(games) // COLUMNS)
    figure = new_figure(3 * COLUMNS, 0.6 + 2.1 * rows)
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    view = _view([run_dir for group in groups for run_dir in group.run_dirs], axis, smooth)
    for axes, game in zip(panels, games, strict=False):
        _draw(axes, [group for group in groups if group.game == game], view, order)
        axes.set_title(game, parse_math=False)
        axes.set(xlabel="", ylabel="")
    for axes in panels[len(games) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(games) - COLUMNS) : len(games)]:  # a legend is below the figure
        axes.set_xlabel(view.unit.label)
    figure.supylabel(view.returns_label, fontsize="medium")
    lines = {label: Line2D([], [], **line_style(n)) for n, label in enumerate(order)}
    seeds = any(len(group.run_dirs) > 1 for group in groups)
    legend_below(figure, lines, f"means of seeds, {BANDS}; " * seeds + CIRCLES[EARLY])
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


def _draw(
    axes: "matplotlib.axes.Axes", groups: Sequence[RunGroup], view: View, order: Sequence[str]
) -> bool:
    """Draws groups into axes with labels, without a legend; returns whether there is a curve."""
    order = list(dict.fromkeys([*order, *(group.label for group in groups)]))
    lines = {group.label: line_style(order.index(group.label)) for group in groups}
    for group in groups:
        _draw_group(axes, group, view, lines[group.label])
    colors = {path: lines[group.label]["color"] for group in groups for path in group.run_dirs}
    _mark_early(axes, colors, view)
    axes.set_xlabel(view.unit.label)
    axes.set_ylabel(view.returns_label)
    axes.grid(alpha=0.3)
    if not _has_curve(axes):
        explain(axes, _no_curve_text(list(colors)))
        return False
    return True


def _draw_group(
    axes: "matplotlib.axes.Axes", group: RunGroup, view: View, line: dict[str, Any]
) -> None:
    """Draws one curve, or the seeds that have one, their mean and their band."""
    points = {run_dir: curve(run_dir, *view) for run_dir in group.run_dirs}
    drawn = [run_dir for run_dir, (x, _) in points.items() if x]
    label = _label(group, len(drawn))
    if len(drawn) < 2:
        x, y = points[drawn[0]] if drawn else ([], [])
        axes.plot(x, y, label=label, marker="o" if len(x) == 1 else None, **line)
        return
    for run_dir in drawn:  # also beyond the range that all seeds cover
        x, y = points[run_dir]
        marker = "." if len(x) == 1 else None
        axes.plot(x, y, **line, marker=marker, linewidth=0.7, alpha=0.45)
    seeds = band(drawn, *view)
    if not seeds.x.size:
        axes.plot([], [], label=f"{label},\nwhich have no range in common", **line)
        return
    label = f"{label},\n{BAND}"
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
        return group.label if group.is_run else f"{group.label}: 1 seed"
    seeds = {settings_by_key(run_dir).get("seed") for run_dir in group.run_dirs}
    noun = "seeds" if len(seeds) == number else "runs"
    share = f"{drawn} of {number}" if drawn < number else str(number)
    return f"{group.label}: {'mean of ' * (drawn > 1)}{share} {noun}"


def _mark_early(axes: "matplotlib.axes.Axes", colors: dict[Path, Any], view: View) -> None:
    """Draws a circle at each mean of first games, with one entry in the legend."""
    marks: dict[str, Any] = {"s": 14, "facecolors": "white", "linewidths": 0.8, "zorder": 3}
    any_early, all_known = False, True
    for run_dir, color in colors.items():
        rows, settings = metrics.read(run_dir), settings_by_key(run_dir)
        lines = zip(rows, metrics.covers_first_games(rows, settings), strict=True)
        early = [first for row, first in lines if row["return_mean"] is not None]
        x, y = (np.asarray(values)[early] for values in curve(run_dir, *view))
        if any(early):
            axes.scatter(x, y, edgecolors=color, **marks)
            any_early = True
            all_known &= metrics.num_envs_in(settings) is not None
    if any_early:
        label = EARLY if all_known else UNKNOWN
        axes.scatter([], [], edgecolors=GRAY, label=label, **marks)


def _has_ended(run_dir: Path) -> bool:
    """Returns whether a run has trained all its steps."""
    rows, goal = metrics.read(run_dir), settings_by_key(run_dir).get("total_steps")
    return bool(rows) and type(goal) is int and rows[-1]["step"] >= goal


def _no_curve_text(run_dirs: list[Path]) -> str:
    """Returns why no run has a curve, and the mean scores of their evaluations."""
    lines = [no_game(bool(run_dirs) and all(map(_has_ended, run_dirs)))]
    for run_dir in run_dirs:
        with contextlib.suppress(UserError):
            mean = evaluation_record.read(run_dir).mean
            owner = f" of {run_dir.name}" * (len(run_dirs) > 1)
            lines.append(f"evaluation{owner}: mean score {mean:.1f}")
    return "\n".join(lines)


def _has_curve(axes: "matplotlib.axes.Axes") -> bool:
    """Returns whether any line has a point."""
    return any(np.size(line.get_xdata()) for line in axes.lines)
