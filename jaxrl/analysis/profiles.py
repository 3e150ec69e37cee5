"""The picture of aggregates: estimates with their intervals, and performance profiles."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.analysis import statistics
from jaxrl.analysis.drawing import GRAY, legend_beside, new_figure, palette, save
from jaxrl.analysis.groups import short_labels
from jaxrl.analysis.statistics import GameScores
from jaxrl.errors import UserError

THRESHOLDS = 200  # points of a profile


def draw(scores: dict[str, GameScores], protocol: str, target: Path) -> None:
    """Writes a PNG of the aggregates of each configuration and their performance profiles.

    `scores` are human-normalized, by configuration and game; `protocol` names the evaluations' and
    its conditions. Raises `UserError` if there are none, and as `files.writing` does.
    """
    if not scores:
        raise UserError("no game has a published human score: there is nothing to draw")
    common, short = short_labels(list(scores))
    scores = {short[label]: by_game for label, by_game in scores.items()}
    height = 3.4 + 0.3 * len(scores)
    figure = new_figure(11, height + 2.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=[1 + 0.3 * len(scores), 3])
    above, below = parts
    panels = above.subplots(1, len(statistics.AGGREGATES), sharey=True)
    colors = dict(zip(scores, palette(len(scores)), strict=True))
    for place, (label, by_game) in enumerate(scores.items()):
        for panel, (name, estimate) in zip(
            panels, statistics.aggregate(by_game).items(), strict=True
        ):
            _interval(panel, place, estimate, colors[label])
            panel.set_title(name, fontsize="medium")
    panels[0].set_yticks(range(len(scores)), list(scores))
    panels[0].set_ylim(len(scores) - 0.5, -0.5)
    above.supxlabel("human-normalized score, 95 % stratified bootstrap intervals", fontsize="small")
    _profiles(below.subplots(), scores, colors)
    games = sorted({game for by_game in scores.values() for game in by_game})
    shown = ", ".join(games) if len(games) <= 6 else f"{len(games)} games"
    figure.suptitle(f"{f'{common}: ' * bool(common)}{shown}, protocol {protocol}", parse_math=False)
    save(figure, target)


def _interval(panel: Any, place: int, estimate: statistics.Estimate, color: Any) -> None:
    """Draws one configuration's estimate as a line, and its interval as a bar."""
    if estimate.low is not None and estimate.high is not None:
        panel.barh(place, estimate.high - estimate.low, left=estimate.low, height=0.6,
                   color=color, alpha=0.5)  # fmt: skip
    panel.plot([estimate.value] * 2, [place - 0.3, place + 0.3], color=color, linewidth=2)
    panel.grid(axis="x", alpha=0.3)
    panel.use_sticky_edges = False
    panel.margins(x=0.15)


def _profiles(axes: Any, scores: dict[str, GameScores], colors: dict[str, Any]) -> None:
    """Draws the performance profile of each configuration with its 95 % band."""
    values = np.concatenate([x for by_game in scores.values() for x in by_game.values()])
    low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
    thresholds = np.linspace(low, high + 0.02 * (high - low), THRESHOLDS)
    for label, by_game in scores.items():
        shares, band = statistics.profile(by_game, thresholds)
        axes.plot(thresholds, shares, label=label, color=colors[label], drawstyle="steps-pre")
        if band is not None:
            axes.fill_between(thresholds, *band, color=colors[label], alpha=0.2, linewidth=0)
    axes.axvline(1, color=GRAY, linestyle=":", linewidth=1)
    axes.text(1, 1.02, "human", color=GRAY, fontsize="small", ha="center",
              transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_xlabel("threshold of the human-normalized score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    legend_beside(axes)
