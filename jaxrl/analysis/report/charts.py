"""The interactive curves of a report as Bokeh's JSON, which assets/page.js draws."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.analysis.report.entries import Entry
from jaxrl.analysis.report.reader import SKIPPED, ReportedRun, number
from jaxrl.analysis.units import AXES, LONGEST, Axis, Unit, unit_of
from jaxrl.runs.metrics import covers_first_games

POINTS = 1000  # most points of a curve; more are not visible, and enlarge the page
LARGEST = 1e38  # about the largest float32
MEAN_POINTS = 200  # points of a mean over seeds
FEW = 40  # curves of at most this many points mark each point
RETURN = "return_mean"
LOSSES = ("loss/", "policy/", "value/")
CAPTIONS = {
    RETURN: "return, mean of the last 100 games of training; circles: means of first games, which "
    "favor short ones",
    "steps_per_second": "Throughput, agent steps per second",
    "goodput": "Goodput, share of all time that was training",
    "memory_gb": "Resident memory, GB",
    SKIPPED: "loss/skipped_updates, per log line",
}
DARK_TOOLBAR = "@media (prefers-color-scheme: dark) { :host { filter: invert(0.85); } }"
PROGRESS = ("steps_per_second", "goodput", "memory_gb")


HOLLOW = "hollow"  # circles that the page fills with its background
SEEDS_NOTE = "; thick: means over seeds, with bands from lowest to highest"
Units = dict[Axis, Unit]


@dataclass(frozen=True)
class Chart:
    """One plot with a curve for every run that has its key."""

    target: str  # id of the HTML element that holds the plot
    key: str  # a key of metrics.jsonl
    caption: str
    without: list[str]  # names of runs that should have a curve here, and have none
    item: dict[str, Any] = dataclasses.field(repr=False)  # Bokeh's JSON


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str  # beside the pointer
    entry: Entry  # whose button hides it
    columns: dict[str, np.ndarray]  # axis or y, of a mean also low and high -> f32[N]
    early: list[bool] = dataclasses.field(default_factory=list)  # points that cover first games
    thin: bool = False  # a seed behind the mean of several


def units_of(runs: list[ReportedRun]) -> Units:
    """Returns the unit of each axis that fits the longest run."""
    ends = {axis: [row[axis] for run in runs for row in run.rows] for axis in AXES}
    return {axis: unit_of(axis, max(values, default=0.0)) for axis, values in ends.items()}


def loss_keys(runs: list[ReportedRun]) -> list[str]:
    """Returns the sorted keys of losses, policy and values that any run has."""
    keys = {key for run in runs for row in run.rows for key in row if key.startswith(LOSSES)}
    return sorted(keys)


def return_charts(entries: list[Entry], units: Units) -> list[Chart]:
    """Returns a chart of returns for each game in which any run has ended one.

    Of several seeds of an entry their mean stands out.
    """
    charts: list[Chart] = []
    for name in dict.fromkeys(run.game for entry in entries for run in entry.runs):
        curves, without, several = [], [], False
        for entry in entries:
            game_runs = [run for run in entry.runs if run.game == name]
            columns = {run.name: curve(run, RETURN, units) for run in game_runs}
            without += [run.name for run in game_runs if not len(columns[run.name]["y"])]
            drawn = [run for run in game_runs if run.name not in without]
            mean = mean_curve([columns[run.name] for run in drawn])
            curves += [
                Curve(run.name, entry, columns[run.name], _early(run), thin=mean is not None)
                for run in drawn
            ]
            if mean is not None:
                curves.append(Curve(f"{entry.name}: mean of {len(drawn)} seeds", entry, mean))
            several |= mean is not None
        if curves:
            target, caption = f"return-{len(charts)}", f"{name}: {CAPTIONS[RETURN]}"
            item = _item(curves, 380, target, units)
            charts.append(Chart(target, RETURN, caption + SEEDS_NOTE * several, without, item))
    return charts


def runs_without_return(runs: list[ReportedRun]) -> list[str]:
    """Returns the names of runs whose game has no chart of returns, because none has ended."""
    shown = {run.game for run in runs if len(_rows(run, RETURN))}
    return [run.name for run in runs if run.game not in shown]


def line_charts(
    entries: list[Entry], keys: list[str] | tuple[str, ...], prefix: str, units: Units
) -> list[Chart]:
    """Returns a chart for each key with a number in any run; their ids begin with `prefix`."""
    drawn: list[Chart] = []
    for key in keys:
        every = [
            Curve(run.name, entry, curve(run, key, units))
            for entry in entries
            for run in entry.runs
        ]
        curves = [line for line in every if len(line.columns["y"])]
        if curves:
            target = f"{prefix}-{len(drawn)}"
            item = _item(curves, 200, target, units)
            drawn.append(Chart(target, key, CAPTIONS.get(key, key), [], item))
    return drawn


def curve(run: ReportedRun, key: str, units: Units = LONGEST) -> dict[str, np.ndarray]:
    """Returns f32[N] of each axis, in its unit, and of y; N <= `POINTS` + 1."""
    rows = _rows(run, key)
    columns: dict[str, list[float]] = {"y": [row[key] for row in rows]}
    for axis in AXES:
        columns[axis] = [row[axis] / units[axis].size for row in rows]
    return {name: np.asarray(values, np.float32) for name, values in columns.items()}


def mean_curve(seeds: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray] | None:
    """Returns the mean of several seeds, and the lowest and highest of them, at equal steps.

    Frames and seconds are means too. None for a single seed, and if the seeds share no range.
    """
    if len(seeds) < 2:
        return None
    first = max(columns["step"][0] for columns in seeds)
    last = min(columns["step"][-1] for columns in seeds)
    if first > last:
        return None
    steps = np.linspace(first, last, MEAN_POINTS if first < last else 1)
    at_steps = {
        name: np.stack([np.interp(steps, columns["step"], columns[name]) for columns in seeds])
        for name in (*AXES, "y")
    }
    columns = {name: values.mean(0) for name, values in at_steps.items()}
    columns |= {"low": at_steps["y"].min(0), "high": at_steps["y"].max(0)}
    return {name: values.astype(np.float32) for name, values in columns.items()}


def _rows(run: ReportedRun, key: str) -> list[dict[str, Any]]:
    """Returns the rows of a run that are drawn: evenly thinned, always with the last."""
    rows = [row for row in run.rows if _drawable(row.get(key))]
    every = -(-len(rows) // POINTS) or 1
    # Counted from the end, because a run is judged by its last line.
    return rows[::-1][::every][::-1]


def _early(run: ReportedRun) -> list[bool]:
    """Returns whether each drawn return covers first games, which favor short ones."""
    first = covers_first_games(run.rows, run.config)
    marked = {id(row): early for row, early in zip(run.rows, first, strict=True)}
    return [marked[id(row)] for row in _rows(run, RETURN)]


def _drawable(value: Any) -> bool:
    """Returns whether the value is a number that a float32 holds."""
    figure = number(value)
    return figure is not None and abs(figure) < LARGEST


def _item(curves: list[Curve], height: int, target: str, units: Units) -> dict[str, Any]:
    """Returns a plot as Bokeh's JSON, `height` pixels high, for the HTML element `target`."""
    from bokeh.core.types import ID
    from bokeh.embed import json_item

    plot = _empty_plot(height, units)
    for line in curves:
        _add(plot, line)
    return dict(json_item(plot, ID(target)))


def _add(plot: Any, line: Curve) -> None:
    """Draws a curve into a Bokeh figure; its first tag is the button that hides it."""
    color, name, is_mean = line.entry.color, line.name, "low" in line.columns
    width, alpha = (1, 0.45) if line.thin else (3 if is_mean else 2, 1)
    glyph = plot.line(
        "frames", "y", source=line.columns, name=name, color=color, line_dash=line.entry.dash,
        line_width=width, line_alpha=alpha,
    )  # fmt: skip
    drawn, data = [glyph], glyph.data_source
    if is_mean:
        drawn.append(
            plot.varea("frames", "low", "high", source=data, name=name, color=color, alpha=0.15)
        )
    if len(line.columns["y"]) <= FEW:
        size = 3 if line.thin else 5
        drawn.append(plot.scatter("frames", "y", source=data, name=name, color=color, size=size))
    for renderer in drawn:
        renderer.tags = [line.entry.name]
    if any(line.early):
        first = {axis: values[line.early] for axis, values in line.columns.items()}
        circles = plot.scatter("frames", "y", source=first, name=name, size=6, line_color=color)
        circles.tags = [line.entry.name, HOLLOW]


def _empty_plot(height: int, units: Units) -> Any:
    """Returns a Bokeh figure with its tools and without curves."""
    from bokeh.models import (
        BoxZoomTool,
        InlineStyleSheet,
        PanTool,
        ResetTool,
        SaveTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    # Zooms with Ctrl only: the wheel alone scrolls the page.
    wheel = WheelZoomTool(modifiers={"ctrl": True})
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[BoxZoomTool(), PanTool(), wheel, ResetTool(), SaveTool()],
        x_axis_label=units["frames"].label,
        toolbar_location="above",
        active_drag=None,
        # Transparent, for the light and the dark page.
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
    )
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = [InlineStyleSheet(css=DARK_TOOLBAR)]
    plot.toolbar.autohide = height < 300  # it takes too much room on small plots
    plot.toolbar.active_scroll = wheel
    return plot
