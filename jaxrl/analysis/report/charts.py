"""The interactive curves of a report as Bokeh's JSON, which assets/page.js draws."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.analysis.curves import LABELS, UNITS
from jaxrl.analysis.drawing import COLORS, LINES
from jaxrl.analysis.report.reader import SKIPPED, ReportedRun, number, text
from jaxrl.runs.metrics import of_first_games

BOKEHS = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dotdash"}  # names of the lines
POINTS = 1000  # of a curve; more are not visible, and enlarge the page
LARGEST = 1e38  # about the largest float32
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


HOLLOW = "hollow"  # circles that the page fills with its own color
UNKNOWN_GAME = "unknown game"


@dataclass(frozen=True)
class Chart:
    """One plot with a curve for every run that has its key."""

    target: str  # id of the HTML element that holds the plot
    key: str  # of metrics.jsonl
    caption: str
    without: list[str]  # names of runs that should have a curve here, and have none
    item: dict[str, Any] = dataclasses.field(repr=False)  # Bokeh's JSON


def style(place: int) -> tuple[str, str]:
    """Returns color and dashes of the run at this place."""
    line = LINES[place // len(COLORS) % len(LINES)]
    return COLORS[place % len(COLORS)], BOKEHS[line]


def axes() -> dict[str, str]:
    """Returns the labels of the axes that a reader may choose from."""
    return dict(LABELS)


def loss_keys(runs: list[ReportedRun]) -> list[str]:
    """Returns the sorted keys of losses, policy and values that any run has."""
    keys = {key for run in runs for row in run.rows for key in row if key.startswith(LOSSES)}
    return sorted(keys)


def game(run: ReportedRun) -> str:
    """Returns the run's game."""
    return text(run.config.get("game")) or UNKNOWN_GAME


def return_charts(runs: list[ReportedRun]) -> list[Chart]:
    """Returns a chart of returns for each game in which any run has ended one.

    A run has the color of its place among all runs, as in the other charts.
    """
    found: list[Chart] = []
    for name in dict.fromkeys(map(game, runs)):
        of_game = [run for run in runs if game(run) == name]
        curves = {run.name: curve(run, RETURN) for run in of_game}
        without = [run for run, columns in curves.items() if not len(columns["y"])]
        if len(without) < len(curves):
            target, caption = f"return-{len(found)}", f"{name}: {CAPTIONS[RETURN]}"
            early = {run.name: _early(run) for run in of_game}
            item = _item(curves, early, _styles(runs), 380, target)
            found.append(Chart(target, RETURN, caption, without, item))
    return found


def without_return(runs: list[ReportedRun]) -> list[str]:
    """Returns the names of runs whose game has no chart of returns, because none has ended."""
    shown = {game(run) for run in runs if len(_rows(run, RETURN))}
    return [run.name for run in runs if game(run) not in shown]


def charts(runs: list[ReportedRun], keys: list[str] | tuple[str, ...], prefix: str) -> list[Chart]:
    """Returns a chart for each key with a number in any run; their ids begin with `prefix`."""
    found: list[Chart] = []
    for key in keys:
        curves = {run.name: curve(run, key) for run in runs}
        if any(len(columns["y"]) for columns in curves.values()):
            target = f"{prefix}-{len(found)}"
            item = _item(curves, {}, _styles(runs), 200, target)
            found.append(Chart(target, key, CAPTIONS.get(key, key), [], item))
    return found


def _styles(runs: list[ReportedRun]) -> dict[str, tuple[str, str]]:
    """Returns color and dashes of each run."""
    return {run.name: style(place) for place, run in enumerate(runs)}


def curve(run: ReportedRun, key: str) -> dict[str, np.ndarray]:
    """Returns f32[N] of each axis, in the unit of its label, and of y; N <= `POINTS` + 1."""
    rows = _rows(run, key)
    columns = {axis: [row[axis] / UNITS[axis] for row in rows] for axis in LABELS}
    columns["y"] = [row[key] for row in rows]
    return {name: np.asarray(values, np.float32) for name, values in columns.items()}


def _rows(run: ReportedRun, key: str) -> list[dict[str, Any]]:
    """Returns the lines of a run that are drawn: evenly thinned, always with the last."""
    rows = [row for row in run.rows if _drawable(row.get(key))]
    every = -(-len(rows) // POINTS) or 1
    # Counted from the end, because a run is judged by its last line.
    return rows[::-1][::every][::-1]


def _early(run: ReportedRun) -> list[bool]:
    """Returns whether each drawn return covers first games, which favor short ones."""
    first = of_first_games(run.rows, run.config)
    marked = {id(row): early for row, early in zip(run.rows, first, strict=True)}
    return [marked[id(row)] for row in _rows(run, RETURN)]


def _drawable(value: Any) -> bool:
    """Returns whether the value is a number that a float32 holds."""
    found = number(value)
    return found is not None and abs(found) < LARGEST


def _item(
    curves: dict[str, dict[str, np.ndarray]],
    early: dict[str, list[bool]],
    styles: dict[str, tuple[str, str]],
    height: int,
    target: str,
) -> dict[str, Any]:
    """Returns a plot of the curves as Bokeh's JSON.

    Args:
      curves: run -> axis or y -> f32[N].
      early: run -> whether each point covers first games; such points are circles.
      styles: run -> color and dashes.
      height: of the plot in pixels.
      target: id of the HTML element that holds the plot.
    """
    from bokeh.core.types import ID
    from bokeh.embed import json_item

    plot = _empty_plot(height)
    for name, columns in curves.items():
        if not len(columns["y"]):
            continue
        color, dash = styles[name]
        line = plot.line(
            "frames", "y", source=columns, name=name, color=color, line_dash=dash, line_width=2
        )
        if len(columns["y"]) <= FEW:
            plot.scatter("frames", "y", source=line.data_source, name=name, color=color, size=5)
        if any(early.get(name, [])):
            first = {axis: values[early[name]] for axis, values in columns.items()}
            circles = plot.scatter("frames", "y", source=first, name=name, size=6, line_color=color)
            circles.tags = [HOLLOW]
    return dict(json_item(plot, ID(target)))


def _empty_plot(height: int) -> Any:
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
        x_axis_label=LABELS["frames"],
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
