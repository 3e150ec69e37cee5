"""The interactive curves of a report, as Bokeh's JSON; assets/page.js draws them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.analysis.curves import LABELS, UNITS
from jaxrl.analysis.drawing import COLORS as ALL_COLORS
from jaxrl.analysis.report.reader import SKIPPED, ReportedRun, number
from jaxrl.atari.games import CATCH
from jaxrl.runs.metrics import of_first_games

# Those that show on white and on black; a second round is dashed.
COLORS = tuple(color for color in ALL_COLORS if color != "#000000")
DASHES = ("solid", "dashed", "dotted", "dotdash")
POINTS = 1000  # of a curve; more would not be seen, and make the page large
LARGEST = 1e38
FEW = 40  # points that are marked one by one
RETURN = "return_mean"
LOSSES = ("loss/", "policy/", "value/")
CAPTIONS = {
    RETURN: "Return, mean of the last 100 games of training; circles: of the first games, which "
    "favor short ones",
    "steps_per_second": "Throughput, agent steps per second",
    "goodput": "Goodput, share of all time that was training",
    "memory_gb": "Resident memory, GB",
    SKIPPED: "loss/skipped_updates, per line of the log",
}
DARK_TOOLBAR = "@media (prefers-color-scheme: dark) { :host { filter: invert(0.85); } }"
PROGRESS = ("steps_per_second", "goodput", "memory_gb")


@dataclass(frozen=True)
class Chart:
    """One plot: a curve for every run that has its key."""

    target: str  # id of the element to draw it in
    key: str  # of metrics.jsonl
    caption: str
    item: dict[str, Any] = dataclasses.field(repr=False)  # Bokeh's JSON


def style(place: int) -> tuple[str, str]:
    """Color and dashes of the run at this place."""
    return COLORS[place % len(COLORS)], DASHES[place // len(COLORS) % len(DASHES)]


def axes() -> dict[str, str]:
    """Label by axis, of those that a reader may choose from."""
    return dict(LABELS)


def loss_keys(runs: list[ReportedRun]) -> list[str]:
    """The losses and their like that any run has, in order."""
    keys = {key for run in runs for row in run.rows for key in row if key.startswith(LOSSES)}
    return sorted(keys)


def charts(runs: list[ReportedRun], keys: list[str] | tuple[str, ...], prefix: str) -> list[Chart]:
    """A chart for each key that any run has a number for; their ids begin with `prefix`."""
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
    """f32[N] of each axis, in the unit of its label, and of y; N is at most `POINTS` + 1."""
    rows = _rows(run, key)
    columns = {axis: [row[axis] / UNITS[axis] for row in rows] for axis in LABELS}
    columns["y"] = [row[key] for row in rows]
    return {name: np.asarray(values, np.float32) for name, values in columns.items()}


def _rows(run: ReportedRun, key: str) -> list[dict[str, Any]]:
    """Returns the lines that are drawn of a run."""
    rows = [row for row in run.rows if _drawable(row.get(key))]
    every = -(-len(rows) // POINTS) or 1
    # Counted from the end, which is what a run is judged by.
    return rows[::-1][::every][::-1]


def _early(run: ReportedRun) -> list[bool]:
    """Returns for each return drawn whether it is of first games, which favor short ones."""
    num_envs, game = run.config.get("num_envs"), run.config.get("game")
    first = of_first_games(run.rows, int(number(num_envs) or 0), game == CATCH)
    marked = {id(row): early for row, early in zip(run.rows, first, strict=True)}
    return [marked[id(row)] for row in _rows(run, RETURN)]


def _drawable(value: Any) -> bool:
    """Whether it is a number that 32 bits hold."""
    found = number(value)
    return found is not None and abs(found) < LARGEST


def _item(
    curves: dict[str, dict[str, np.ndarray]], early: dict[str, list[bool]], height: int, target: str
) -> dict[str, Any]:
    from bokeh.core.types import ID
    from bokeh.embed import json_item
    from bokeh.models import (
        BoxZoomTool,
        InlineStyleSheet,
        PanTool,
        ResetTool,
        SaveTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    # With Ctrl, so that the wheel alone goes on scrolling the page.
    wheel = WheelZoomTool(modifiers={"ctrl": True})
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[BoxZoomTool(), PanTool(), wheel, ResetTool(), SaveTool()],
        x_axis_label=LABELS["frames"],
        toolbar_location="above",
        active_drag=None,
        # The page shows through, light or dark.
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
    )
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = [InlineStyleSheet(css=DARK_TOOLBAR)]
    plot.toolbar.autohide = height < 300  # on small ones it would take more room than it earns
    plot.toolbar.active_scroll = wheel
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
