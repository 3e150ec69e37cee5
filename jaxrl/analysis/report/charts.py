"""The interactive curves of a report as Bokeh's JSON, which assets/page.js draws."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.analysis.curves import LABELS, UNITS
from jaxrl.analysis.drawing import COLORS as ALL_COLORS
from jaxrl.analysis.report.reader import SKIPPED, ReportedRun, number
from jaxrl.runs.metrics import of_first_games

# Colors that are visible on white and on black; a second round is dashed.
COLORS = tuple(color for color in ALL_COLORS if color != "#000000")
DASHES = ("solid", "dashed", "dotted", "dotdash")
POINTS = 1000  # of a curve; more are not visible, and enlarge the page
LARGEST = 1e38  # about the largest float32
FEW = 40  # curves of at most this many points mark each point
RETURN = "return_mean"
LOSSES = ("loss/", "policy/", "value/")
CAPTIONS = {
    RETURN: "Return, mean of the last 100 games of training; circles: means of first games, which "
    "favor short ones",
    "steps_per_second": "Throughput, agent steps per second",
    "goodput": "Goodput, share of all time that was training",
    "memory_gb": "Resident memory, GB",
    SKIPPED: "loss/skipped_updates, per log line",
}
DARK_TOOLBAR = "@media (prefers-color-scheme: dark) { :host { filter: invert(0.85); } }"
PROGRESS = ("steps_per_second", "goodput", "memory_gb")


@dataclass(frozen=True)
class Chart:
    """One plot with a curve for every run that has its key."""

    target: str  # id of the HTML element that holds the plot
    key: str  # of metrics.jsonl
    caption: str
    item: dict[str, Any] = dataclasses.field(repr=False)  # Bokeh's JSON


def style(place: int) -> tuple[str, str]:
    """Returns color and dashes of the run at this place."""
    return COLORS[place % len(COLORS)], DASHES[place // len(COLORS) % len(DASHES)]


def axes() -> dict[str, str]:
    """Returns the labels of the axes that a reader may choose from."""
    return dict(LABELS)


def loss_keys(runs: list[ReportedRun]) -> list[str]:
    """Returns the sorted keys of losses, policy and values that any run has."""
    keys = {key for run in runs for row in run.rows for key in row if key.startswith(LOSSES)}
    return sorted(keys)


def charts(runs: list[ReportedRun], keys: list[str] | tuple[str, ...], prefix: str) -> list[Chart]:
    """Returns a chart for each key with a number in any run; their ids begin with `prefix`."""
    found: list[Chart] = []
    for key in keys:
        curves = {run.name: curve(run, key) for run in runs}
        early = {run.name: _early(run) if key == RETURN else [] for run in runs}
        if any(len(columns["y"]) for columns in curves.values()):
            target = f"{prefix}-{len(found)}"
            caption = CAPTIONS.get(key, key)
            height = 380 if key == RETURN else 200
            found.append(Chart(target, key, caption, _item(curves, early, height, target)))
    return found


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
    curves: dict[str, dict[str, np.ndarray]], early: dict[str, list[bool]], height: int, target: str
) -> dict[str, Any]:
    """Returns a plot of the curves as Bokeh's JSON.

    Args:
      curves: run -> axis or y -> f32[N].
      early: run -> whether each point covers first games; such points are circles.
      height: of the plot in pixels.
      target: id of the HTML element that holds the plot.
    """
    from bokeh.core.types import ID
    from bokeh.embed import json_item

    plot = _empty_plot(height)
    for place, (name, columns) in enumerate(curves.items()):
        if not len(columns["y"]):
            continue
        color, dash = style(place)
        line = plot.line(
            "frames", "y", source=columns, name=name, color=color, line_dash=dash, line_width=2
        )
        if len(columns["y"]) <= FEW:
            plot.scatter("frames", "y", source=line.data_source, name=name, color=color, size=5)
        if any(early[name]):
            first = {axis: values[early[name]] for axis, values in columns.items()}
            plot.scatter(
                "frames", "y", source=first, name=name, size=6, line_color=color,
                fill_color="white",
            )  # fmt: skip
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
