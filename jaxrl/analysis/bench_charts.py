"""Charts of benchmarks: throughput, shares of time and scaling."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from jaxrl.analysis.drawing import COLORS, GRAY, legend_beside, line_style, new_figure, save


def draw_throughput(
    axes: Sequence["matplotlib.axes.Axes"], rates: dict[int, dict[str, float]]
) -> None:
    """Draws steps per second into two axes: of all environments, and of each.

    `rates` maps numbers of environments to loads to agent steps per second.
    """
    import matplotlib.ticker

    numbers = sorted(rates)
    for place, load in enumerate(rates[numbers[0]]):
        values = [rates[number][load] for number in numbers]
        line: dict[str, Any] = {"linestyle": "--", "color": GRAY}
        if load != "loop":
            line = line_style(place) | {"marker": "o"}
        axes[0].plot(numbers, values, label=load, **line)
        each = [value / number for value, number in zip(values, numbers, strict=True)]
        axes[1].plot(numbers, each, label=load, **line)
    for axis, unit in zip(axes, ("all environments", "each environment"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.set_yscale("log")  # loads may lie a hundred times apart
        axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.minorticks_off()
        axis.set_xlabel("environments")
        axis.set_ylabel(f"agent steps per second, {unit}")
        axis.grid(alpha=0.3)
    legend_beside(axes[1])


def throughput(rates: dict[int, dict[str, float]], target: Path, title: str) -> None:
    """Writes a PNG of `draw_throughput` (CuLE, figure 2). Raises as `files.writing` does."""
    figure = new_figure(10, 4)
    draw_throughput(figure.subplots(1, 2), rates)
    figure.suptitle(title, fontsize="medium")
    save(figure, target)


def draw_shares(axes: "matplotlib.axes.Axes", shares: dict[int, dict[str, float]]) -> None:
    """Draws how the time of a training step divides: number of environments -> part -> share."""
    numbers = sorted(shares)
    bottom = np.zeros(len(numbers))
    for place, part in enumerate(shares[numbers[0]]):
        heights = 100 * np.array([shares[number][part] for number in numbers])
        names = [str(number) for number in numbers]
        axes.bar(names, heights, 0.7, bottom, label=part, color=COLORS[place % len(COLORS)])
        for x, (height, below) in enumerate(zip(heights, bottom, strict=True)):
            if height >= 5:
                middle = below + height / 2
                axes.text(x, middle, f"{height:.0f}", ha="center", va="center", color="white")
        bottom += heights
    axes.set_xlabel("environments")
    axes.set_ylabel("share of a step of training (%)")
    legend_beside(axes)


def draw_scaling(
    axes: Sequence["matplotlib.axes.Axes"], rates: dict[str, dict[int, float]]
) -> None:
    """Draws steps per second against devices into two axes: in total, and as a share of the ideal.

    `rates` maps labels to numbers of devices to agent steps per second. Each label needs a rate of
    1 device: the ideal is its multiple.
    """
    for number, (label, by_devices) in enumerate(rates.items()):
        devices = sorted(by_devices)
        line = line_style(number) | {"marker": "."}
        ideal = [by_devices[1] * count for count in devices]
        axes[0].plot(devices, ideal, color=GRAY, linestyle=":", label="_" if number else "ideal")
        axes[0].plot(devices, [by_devices[count] for count in devices], label=label, **line)
        share = [by_devices[count] / best for count, best in zip(devices, ideal, strict=True)]
        axes[1].plot(devices, share, label=label, **line)
    axes[0].set_yscale("log")
    axes[0].yaxis.set_major_formatter("{x:,.0f}")
    axes[0].set_ylabel("agent steps per second")
    axes[1].set_ylim(0, 1.05)
    axes[1].set_ylabel("share of devices x one device")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.set_xlabel("devices")
        axis.grid(alpha=0.3)
    legend_beside(axes[1], handles=axes[0].get_legend_handles_labels()[0])
