"""The colors, lines, legends and files of all pictures: plots, reports, notebooks and films."""

import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from jaxrl.runs.files import writing

# Distinct also with defective color vision (Okabe & Ito 2008), without the yellow, which white
# swallows, and the black, which a dark page swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", ":", "-.")  # a further round of the colors takes the next one
GOOD, BAD = COLORS[2], COLORS[1]  # rewards and their opposite
GRAY = "#808080"  # what curves are compared with: an ideal, a human, a frame around a screen
SHADES = "cividis_r"  # from pale to dark, of values; distinct also with defective color vision
CHARACTERS, LINE = 12.5, 0.18  # a legend's characters in an inch, and the inches of a line
PALE = "#9FB8C8"  # background curves and bars, behind those of interest


def new_figure(width: float, height: float, **options: Any) -> "matplotlib.figure.Figure":
    """Returns an empty figure of a size in inches, whose parts make room for each other."""
    import matplotlib.figure

    return matplotlib.figure.Figure(figsize=(width, height), layout="constrained", **options)


def palette(number: int) -> list[Any]:
    """Returns `number` colors that are distinct also with defective color vision."""
    if number <= len(COLORS):
        return list(COLORS[:number])
    return list(matplotlib.colormaps["cividis"](np.linspace(0, 1, number)))


def line_style(place: int) -> dict[str, Any]:
    """Returns the color and the line of the curve with this number."""
    line = LINES[place // len(COLORS) % len(LINES)]
    return {"color": COLORS[place % len(COLORS)], "linestyle": line}


def show_screen(axes: "matplotlib.axes.Axes", screen: np.ndarray, alpha: float = 1.0) -> Any:
    """Draws a screen with a border and without ticks; returns matplotlib's image."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(GRAY)
    return axes.imshow(screen, interpolation="nearest", alpha=alpha)


def explain(axes: "matplotlib.axes.Axes", text: str) -> None:
    """Writes a text into axes without a curve."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])


def legend_beside(axes: "matplotlib.axes.Axes", **options: Any) -> "matplotlib.legend.Legend":
    """Adds a legend to the right of the axes, where it covers no curve."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
    return _show_dollars(axes.legend(**({"fontsize": "small"} | place | options)))


def legend_below(
    figure: "matplotlib.figure.Figure", entries: dict[str, Any], title: str = ""
) -> "matplotlib.legend.Legend":
    """Adds a legend, of lines or markers by label, below all axes; the figure grows as much."""
    width, height = figure.get_size_inches()
    most = int(CHARACTERS * width) - 8  # characters of a line, beside the marker
    labels = [textwrap.fill(" ".join(label.split()), most) for label in entries]
    columns = max(1, min(len(labels), (most + 8) // (8 + max(map(len, labels), default=1))))
    lines = sum(label.count("\n") + 1 for label in labels) / columns + 2 * bool(title)
    figure.set_size_inches(width, height + LINE * (lines + 1))
    legend = figure.legend(
        list(entries.values()),
        labels,
        loc="outside lower center",
        ncols=columns,
        title=textwrap.fill(title, most) or None,
        fontsize="small",
        title_fontsize="small",
    )
    return _show_dollars(legend)


def _show_dollars(legend: "matplotlib.legend.Legend") -> "matplotlib.legend.Legend":
    """Returns the legend with dollar signs shown: a directory's name may have some."""
    for text in (*legend.get_texts(), legend.get_title()):
        text.set_parse_math(False)
    return legend


def save(figure: "matplotlib.figure.Figure", target: Path) -> None:
    """Writes a picture, whole or not at all. Raises as `files.writing` does."""
    with writing(target) as temporary:
        figure.savefig(temporary, dpi=120, format=target.suffix[1:] or "png")
