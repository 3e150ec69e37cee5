"""Pictures of a trace, for notebooks: curves over time, single steps, and a film with controls."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import matplotlib
import numpy as np

from jaxrl.analysis.curves import COLORS, colors
from jaxrl.errors import UserError
from jaxrl.evaluation.trace import Trace
from jaxrl.evaluation.video import REAL_TIME, quiet_fork

WIDTH = 9.5  # inches
FRAMES_SHOWN = 8  # pictures above the curves
REWARDS = {1: ("reward", "^", COLORS[2]), -1: ("negative reward", "v", COLORS[1])}


def draw(trace: Trace) -> "matplotlib.figure.Figure":
    """Some of the frames, and under them over time: the policy, the value, and for C51 the rest.

    Of C51 these are each action's mean return, and the distribution of the chosen action's.
    """
    import matplotlib.figure

    curves = [_draw_policy, _draw_values]
    if trace.atoms.size:
        curves += [_draw_action_values, _draw_distribution]
    height, width = trace.frames.shape[1:3]
    heights = [0.4 + WIDTH / FRAMES_SHOWN * height / width, 1.5 * len(curves) + 0.3]
    figure = matplotlib.figure.Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
    _draw_frames(top.subplots(1, FRAMES_SHOWN), trace)
    panels = below.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for axes, curve in zip(panels, curves, strict=True):
        curve(axes, trace)
    panels[-1].set_xlabel("step")
    return figure


def draw_step(trace: Trace, step: int) -> "matplotlib.figure.Figure":
    """One frame, and of C51 the distribution of each action's return there, the chosen one's dark.

    Raises `UserError` where nothing was chosen, or the policy knows no distribution.
    """
    import matplotlib.figure

    _check_step(trace, step)
    columns = min(3, len(trace.action_names))
    rows = -(-len(trace.action_names) // columns)
    figure = matplotlib.figure.Figure(figsize=(WIDTH, 0.8 + 1.9 * rows), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1, 2.6]).flat
    screen = left.subplots()
    _show(screen, trace.frames[step])
    screen.set_title(f"step {step}", fontsize="medium")
    grid = right.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(trace.action_names) :]:
        axes.set_axis_off()
    width = trace.atoms[1] - trace.atoms[0]
    for action, axes in enumerate(grid.flat[: len(trace.action_names)]):
        chosen = bool(action == trace.actions[step])
        axes.bar(trace.atoms, trace.distributions[step, action], width,
                 color=COLORS[0] if chosen else "#9fb8c8")  # fmt: skip
        mean = trace.action_values[step, action]
        axes.axvline(mean, color=COLORS[1], linestyle=":")
        name = f"{trace.action_names[action]}{', chosen' * chosen}"
        axes.set_title(f"{name}\nmean {mean:.2f}", fontsize="small")
    right.supxlabel("return (atoms)", fontsize="medium")
    right.supylabel("probability", fontsize="medium")
    return figure


def film(trace: Trace, frames_per_second: float = REAL_TIME) -> bytes:
    """An mp4 of the game beside what the policy says, above the curves with the place in time.

    15 steps a second are the speed of Atari's console.
    """
    import matplotlib.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = matplotlib.figure.Figure(figsize=(7.2, 5.6), layout="constrained", dpi=80)
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplot_mosaic(
        [["screen", "now"], ["policy", "policy"], ["value", "value"]],
        height_ratios=[2.4, 1, 1],
    )
    _draw_policy(panels["policy"], trace)
    _draw_values(panels["value"], trace)
    panels["value"].set_xlabel("step")
    moving = [_screen(panels["screen"], trace), _now(panels["now"], trace)]
    moving += [_cursor(panels[name]) for name in ("policy", "value")]
    for artist in (artist for part in moving for artist in part.artists):
        artist.set_animated(True)
    canvas.draw()
    # Only what moves is drawn again, which is many times as fast.
    still = canvas.copy_from_bbox(figure.bbox)
    writer: Any
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "film.mp4"
        with (
            quiet_fork(),
            imageio.get_writer(
                target, format="FFMPEG", fps=frames_per_second, macro_block_size=2
            ) as writer,
        ):
            for step in range(len(trace.frames)):
                canvas.restore_region(still)
                for part in moving:
                    part.move(step)
                    for artist in part.artists:
                        artist.axes.draw_artist(artist)
                writer.append_data(np.asarray(canvas.buffer_rgba())[..., :3])
        return target.read_bytes()


def _check_step(trace: Trace, step: int) -> None:
    if not trace.atoms.size:
        raise UserError("only C51 learns the distribution of the return: take a run of it")
    if not 0 <= step < len(trace.actions) or trace.actions[step] < 0:
        raise UserError(f"step {step}: no action was chosen there, of {len(trace.actions)} rows")


def _edges(trace: Trace) -> np.ndarray:
    """Between which the row t is drawn: t to t + 1."""
    return np.arange(len(trace.actions) + 1)


def _colors(trace: Trace) -> list[Any]:
    """One for each action."""
    return colors(len(trace.action_names))


def _show(axes: Any, frame: np.ndarray) -> Any:
    """A frame with a border, but no ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("grey")
    return axes.imshow(frame, interpolation="nearest")


def _draw_frames(panels: Any, trace: Trace) -> None:
    places = np.linspace(0, len(trace.frames) - 1, len(panels)).round().astype(int)
    for axes, step in zip(panels, places, strict=True):
        _show(axes, trace.frames[step])
        axes.set_title(f"{step}: {_said(trace, int(step))}", fontsize="small")


def _said(trace: Trace, step: int) -> str:
    """Returns the action of a row, or why there is none."""
    if trace.actions[step] >= 0:
        return trace.action_names[trace.actions[step]]
    return "over" if trace.ends[step] else "life lost"


def _draw_policy(axes: Any, trace: Trace) -> None:
    """The probabilities of the actions, one on top of the other."""
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
    axes.stairs(trace.values, _edges(trace), baseline=None, color="black", label="value")
    for sign, (label, marker, color) in REWARDS.items():
        steps = np.flatnonzero(np.sign(trace.rewards) == sign)
        if steps.size:
            axes.plot(steps + 0.5, trace.values[steps], marker, color=color, label=label)
    axes.set_ylabel("value")
    axes.grid(alpha=0.3)
    axes.set_xlim(0, len(trace.actions))
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1))


def _draw_action_values(axes: Any, trace: Trace) -> None:
    for action, color in enumerate(_colors(trace)):
        axes.stairs(trace.action_values[:, action], _edges(trace), baseline=None, color=color,
                    linewidth=1.3, label=trace.action_names[action])  # fmt: skip
    axes.set_ylabel("mean return\nof each action")
    axes.grid(alpha=0.3)
    _legend(axes, trace)


def _draw_distribution(axes: Any, trace: Trace) -> None:
    """The chosen action's distribution, as columns of shades."""
    chosen = trace.distributions[np.arange(len(trace.actions)), trace.actions]
    half = (trace.atoms[1] - trace.atoms[0]) / 2
    levels = np.append(trace.atoms - half, trace.atoms[-1] + half)
    shades = axes.pcolormesh(_edges(trace), levels, chosen.T, cmap="cividis", vmin=0)
    # Most returns that the atoms stand for never come near.
    used = trace.atoms[np.nanmax(chosen, axis=0) > 0.02 * np.nanmax(chosen)]
    axes.set_ylim(used.min() - 4 * half, used.max() + 4 * half)
    axes.set_ylabel("return of the\nchosen action")
    axes.figure.colorbar(shades, cax=axes.inset_axes([1.02, 0, 0.015, 1]), label="probability")


def _legend(axes: Any, trace: Trace) -> None:
    columns = 1 if len(trace.action_names) <= 6 else 2
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1), ncols=columns)


class _Moving(NamedTuple):
    """What a film draws anew for each step, and how it is put there."""

    artists: list[Any]
    move: Callable[[int], None]


def _screen(axes: Any, trace: Trace) -> _Moving:
    picture = _show(axes, trace.frames[0])
    caption = axes.text(0.5, 1.02, "", transform=axes.transAxes, ha="center", fontsize=10)
    axes.set_title(" ", fontsize=10)  # room for the caption

    def move(step: int) -> None:
        picture.set_data(trace.frames[step])
        began = max(np.flatnonzero(trace.ends[:step]), default=-1) + 1  # of this game
        score = trace.rewards[began:step].sum()
        caption.set_text(f"{trace.game}, step {step}, score {score:g}")

    return _Moving([picture, *axes.spines.values(), caption], move)


def _cursor(axes: Any) -> _Moving:
    line = axes.axvline(0, color="black")
    return _Moving([line], lambda step: line.set_xdata([step + 0.5] * 2))


def _now(axes: Any, trace: Trace) -> _Moving:
    """Bars of the policy at one step, or of C51 the distribution of each action's return."""
    if trace.atoms.size:
        return _now_c51(axes, trace)
    bars = list(axes.barh(trace.action_names, trace.probabilities[0], color=_colors(trace)))
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    axes.set_xlabel("probability")

    def move(step: int) -> None:
        for bar, probability in zip(bars, np.nan_to_num(trace.probabilities[step]), strict=True):
            bar.set_width(probability)

    return _Moving(bars, move)


def _now_c51(axes: Any, trace: Trace) -> _Moving:
    parts = zip(trace.distributions[0], _colors(trace), trace.action_names, strict=True)
    lines = [axes.plot(trace.atoms, y, color=color, label=name)[0] for y, color, name in parts]
    axes.set_ylim(0, 1.05 * np.nanmax(trace.distributions))
    axes.set_xlabel("return (atoms)")
    axes.set_ylabel("probability")
    axes.legend(fontsize="x-small", loc="upper left")

    def move(step: int) -> None:
        for line, y in zip(lines, trace.distributions[step], strict=True):
            line.set_ydata(y)

    return _Moving(lines, move)
