"""Pictures of a trace for notebooks: curves over time, single steps, and a film."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from jaxrl.analysis.drawing import (
    BAD,
    COLORS,
    GOOD,
    PALE,
    legend_beside,
    new_figure,
    palette,
    show_screen,
)
from jaxrl.errors import UserError
from jaxrl.evaluation.film import write as write_film
from jaxrl.evaluation.trace import Trace
from jaxrl.evaluation.video import pictures_per_second, real_time

WIDTH = 9.5  # inches
FRAMES_SHOWN = 8  # pictures above the curves
REWARDS = {1: ("reward", "^", GOOD), -1: ("negative reward", "v", BAD)}


def draw(trace: Trace) -> "matplotlib.figure.Figure":
    """Draws some frames, and below them the policy and the value over time.

    C51 has two more panels: each action's mean return, and the return distribution of the chosen
    action.
    """
    curves = [_draw_policy, _draw_values]
    if trace.atoms.size:
        curves += [_draw_action_values, _draw_distribution]
    height, width = trace.frames.shape[1:3]
    heights = [0.4 + WIDTH / FRAMES_SHOWN * height / width, 1.5 * len(curves) + 0.3]
    figure = new_figure(WIDTH, sum(heights))
    top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
    _draw_frames(top.subplots(1, FRAMES_SHOWN), trace)
    panels = below.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for axes, curve in zip(panels, curves, strict=True):
        curve(axes, trace)
    panels[-1].set_xlabel("step")
    return figure


def draw_step(trace: Trace, step: int) -> "matplotlib.figure.Figure":
    """Draws one frame beside C51's return distribution of each action, the chosen one's dark.

    Raises `UserError` if no action was chosen at this step, or the agent is not C51.
    """
    _check_step(trace, step)
    columns = min(3, len(trace.action_names))
    rows = -(-len(trace.action_names) // columns)
    figure = new_figure(WIDTH, 0.8 + 1.9 * rows)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1, 2.6]).flat
    screen = left.subplots()
    show_screen(screen, trace.frames[step])
    screen.set_title(f"step {step}", fontsize="medium")
    grid = right.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(trace.action_names) :]:
        axes.set_axis_off()
    width = trace.atoms[1] - trace.atoms[0]
    for action, axes in enumerate(grid.flat[: len(trace.action_names)]):
        chosen = bool(action == trace.actions[step])
        axes.bar(trace.atoms, trace.distributions[step, action], width,
                 color=COLORS[0] if chosen else PALE)  # fmt: skip
        mean = trace.action_values[step, action]
        axes.axvline(mean, color=COLORS[1], linestyle=":")
        name = f"{trace.action_names[action]}{', chosen' * chosen}"
        axes.set_title(f"{name}\nmean {mean:.2f}", fontsize="small")
    right.supxlabel("return (atoms)", fontsize="medium")
    right.supylabel("probability", fontsize="medium")
    return figure


def film(trace: Trace, frames_per_second: float | None = None) -> bytes:
    """Returns an mp4 of the game and the policy, above curves that a cursor follows.

    15 steps of 4 frames per second are the speed of Atari's console, and the default, but for games
    of few steps.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if frames_per_second is None:
        games = max(1, int(trace.ends.sum()))
        fastest = real_time(trace.frame_skip)
        frames_per_second = pictures_per_second(len(trace.frames) / games, fastest)
    figure = new_figure(7.2, 5.6, dpi=80)
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplot_mosaic(
        [["screen", "now"], ["policy", "policy"], ["value", "value"]],
        height_ratios=[2.4, 1, 1],
    )
    _draw_policy(panels["policy"], trace)
    _draw_values(panels["value"], trace)
    panels["value"].set_xlabel("step")
    moving = [_screen(panels["screen"], trace), _policy_now(panels["now"], trace)]
    moving += [_cursor(panels[name]) for name in ("policy", "value")]
    for artist in (artist for part in moving for artist in part.artists):
        artist.set_animated(True)
    canvas.draw()
    # Only the moving artists are drawn again, which is many times as fast.
    still = canvas.copy_from_bbox(figure.bbox)

    def draw(step: int) -> np.ndarray:
        canvas.restore_region(still)
        for part in moving:
            part.move(step)
            for artist in part.artists:
                artist.axes.draw_artist(artist)
        return np.asarray(canvas.buffer_rgba())[..., :3]

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "film.mp4"
        pictures = (draw(step) for step in range(len(trace.frames)))
        write_film(target, pictures, frames_per_second)
        return target.read_bytes()


def _check_step(trace: Trace, step: int) -> None:
    """Raises `UserError` if there is no return distribution or no action at this step."""
    if not trace.atoms.size:
        raise UserError("only C51 learns the distribution of returns: take one of its runs")
    if not 0 <= step < len(trace.actions) or trace.actions[step] < 0:
        raise UserError(
            f"step {step}: no action was chosen at this one of {len(trace.actions)} rows"
        )


def _edges(trace: Trace) -> np.ndarray:
    """Returns the edges on the time axis: row t is drawn from t to t + 1."""
    return np.arange(len(trace.actions) + 1)


def _colors(trace: Trace) -> list[Any]:
    """Returns a color for each action."""
    return palette(len(trace.action_names))


def _draw_frames(panels: Any, trace: Trace) -> None:
    """Draws frames at equal distances in time, titled with their actions."""
    places = np.linspace(0, len(trace.frames) - 1, len(panels)).round().astype(int)
    for axes, step in zip(panels, places, strict=True):
        show_screen(axes, trace.frames[step])
        axes.set_title(f"{step}: {_action_name(trace, int(step))}", fontsize="small")


def _action_name(trace: Trace, step: int) -> str:
    """Returns the action of a row, or why there is none."""
    if trace.actions[step] >= 0:
        return trace.action_names[trace.actions[step]]
    return "over" if trace.ends[step] else "life lost"


def _draw_policy(axes: Any, trace: Trace) -> None:
    """Draws the probabilities of the actions as stacked areas."""
    below = np.zeros(len(trace.actions))
    for action, color in enumerate(_colors(trace)):
        above = below + trace.probabilities[:, action]
        axes.stairs(above, _edges(trace), baseline=below, fill=True, color=color,
                    label=trace.action_names[action])  # fmt: skip
        below = above
    axes.set_ylim(0, 1)
    axes.set_xlim(0, len(trace.actions))
    axes.set_ylabel("policy")
    _legend(axes, trace)


def _draw_values(axes: Any, trace: Trace) -> None:
    """Draws the value, with a mark where a reward was received."""
    axes.stairs(trace.values, _edges(trace), baseline=None, color="black", label="value")
    for sign, (label, marker, color) in REWARDS.items():
        steps = np.flatnonzero(np.sign(trace.rewards) == sign)
        if steps.size:
            axes.plot(steps + 0.5, trace.values[steps], marker, color=color, label=label)
    axes.set_ylabel("value")
    axes.grid(alpha=0.3)
    axes.set_xlim(0, len(trace.actions))
    legend_beside(axes, fontsize="x-small")


def _draw_action_values(axes: Any, trace: Trace) -> None:
    """Draws C51's mean return of each action."""
    for action, color in enumerate(_colors(trace)):
        axes.stairs(trace.action_values[:, action], _edges(trace), baseline=None, color=color,
                    linewidth=1.3, label=trace.action_names[action])  # fmt: skip
    axes.set_ylabel("mean return\nof each action")
    axes.grid(alpha=0.3)
    _legend(axes, trace)


def _draw_distribution(axes: Any, trace: Trace) -> None:
    """Draws the return distribution of the chosen action as columns of shades."""
    chosen = trace.distributions[np.arange(len(trace.actions)), trace.actions]
    half = (trace.atoms[1] - trace.atoms[0]) / 2
    levels = np.append(trace.atoms - half, trace.atoms[-1] + half)
    shades = axes.pcolormesh(_edges(trace), levels, chosen.T, cmap="cividis", vmin=0)
    # Most atoms never have a visible probability.
    used = trace.atoms[np.nanmax(chosen, axis=0) > 0.02 * np.nanmax(chosen)]
    axes.set_ylim(used.min() - 4 * half, used.max() + 4 * half)
    axes.set_ylabel("return of the\nchosen action")
    axes.figure.colorbar(shades, cax=axes.inset_axes([1.02, 0, 0.015, 1]), label="probability")


def _legend(axes: Any, trace: Trace) -> None:
    columns = 1 if len(trace.action_names) <= 6 else 2
    legend_beside(axes, fontsize="x-small", ncols=columns)


class _MovingPart(NamedTuple):
    """The artists of a panel that change in a film, and the function that draws a step."""

    artists: list[Any]
    move: Callable[[int], None]


def _screen(axes: Any, trace: Trace) -> _MovingPart:
    """Draws the game's frame under a caption with the score."""
    picture = show_screen(axes, trace.frames[0])
    caption = axes.text(0.5, 1.02, "", transform=axes.transAxes, ha="center", fontsize=10)
    axes.set_title(" ", fontsize=10)  # room for the caption

    def move(step: int) -> None:
        picture.set_data(trace.frames[step])
        began = max(np.flatnonzero(trace.ends[:step]), default=-1) + 1  # first row of this game
        score = trace.rewards[began:step].sum()
        caption.set_text(f"{trace.game}, step {step}, score {score:g}")

    return _MovingPart([picture, *axes.spines.values(), caption], move)


def _cursor(axes: Any) -> _MovingPart:
    """Draws a vertical line at the current step."""
    line = axes.axvline(0, color="black")
    return _MovingPart([line], lambda step: line.set_xdata([step + 0.5] * 2))


def _policy_now(axes: Any, trace: Trace) -> _MovingPart:
    """Draws the policy at one step as bars, or C51's return distribution of each action."""
    if trace.atoms.size:
        return _return_distributions(axes, trace)
    bars = list(axes.barh(trace.action_names, trace.probabilities[0], color=_colors(trace)))
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    axes.set_xlabel("probability")

    def move(step: int) -> None:
        for bar, probability in zip(bars, np.nan_to_num(trace.probabilities[step]), strict=True):
            bar.set_width(probability)

    return _MovingPart(bars, move)


def _return_distributions(axes: Any, trace: Trace) -> _MovingPart:
    """Draws C51's return distribution of each action at one step."""
    parts = zip(trace.distributions[0], _colors(trace), trace.action_names, strict=True)
    lines = [axes.plot(trace.atoms, y, color=color, label=name)[0] for y, color, name in parts]
    axes.set_ylim(0, 1.05 * np.nanmax(trace.distributions))
    axes.set_xlabel("return (atoms)")
    axes.set_ylabel("probability")
    _legend(axes, trace)

    def move(step: int) -> None:
        for line, y in zip(lines, trace.distributions[step], strict=True):
            line.set_ydata(y)

    return _MovingPart(lines, move)
