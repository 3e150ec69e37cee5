"""Pictures of branches for notebooks: every action from one state, and where each leads."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from jaxrl.analysis.drawing import COLORS, GRAY, PALE, new_figure, palette, show_screen
from jaxrl.evaluation.branches import Branches

WIDTH = 9.5  # inches
TOP = 3.1  # inches of the screen and the curves above the pictures
MOST_ROWS = 6  # rows of pictures; with more outcomes those of the best and the worst


class _Outcome(NamedTuple):
    """Actions that lead to the same, by the same way."""

    actions: list[int]
    name: str
    color: Any


def draw(branches: Branches) -> "matplotlib.figure.Figure":
    """Draws the state with every action's value, return and values to come, and where each leads.

    Actions that the game does not tell apart share a row of pictures, the best return first.
    """
    outcomes = _outcomes(branches)
    rows = _rows(outcomes)
    columns = len(branches.picture_steps)
    height, width = branches.screen.shape[:2]
    row_height = (WIDTH - 1.3) / max(columns, 4) * height / width + 0.25
    heights = [TOP, row_height * len(rows) + 0.3]
    figure = new_figure(WIDTH, sum(heights))
    top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
    screen, returns, values = top.subplots(1, 3, width_ratios=[1.1, 1.6, 1.8])
    show_screen(screen, branches.screen)
    screen.set_title(f"step {branches.step:,}, score {branches.score:g}", fontsize="medium")
    _draw_returns(returns, branches, outcomes)
    _draw_values(values, branches, outcomes)
    grid = below.subplots(len(rows), columns, squeeze=False)
    for panels, outcome in zip(grid, rows, strict=True):
        _draw_row(panels, branches, outcome)
    for axes, step in zip(grid[0], branches.picture_steps, strict=True):
        axes.set_title(f"step {branches.step + step:,}", fontsize="small")
    return figure


def draw_choices(moments: Sequence[Branches]) -> "matplotlib.figure.Figure":
    """Draws the returns of all actions at several moments of a game, and the state's value there.

    Where the returns lie apart the choice matters.
    """
    figure = new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    steps = [moment.step for moment in moments]
    returns = np.stack([moment.returns for moment in moments])
    values = [moment.value for moment in moments]
    chosen = [moment.returns[moment.chosen] for moment in moments]
    axes.plot(steps, values, color="black", linewidth=1, label="value of the state")
    axes.vlines(steps, returns.min(axis=1), returns.max(axis=1), color=PALE)
    others = np.repeat(steps, returns.shape[1])
    axes.plot(others, returns.ravel(), "o", color=COLORS[1], label="return of an action")
    axes.plot(steps, chosen, "o", color=COLORS[0], label="of the policy's choice")
    axes.set_xlabel("agent step of the game")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
                frameon=False)  # fmt: skip
    return figure


def _outcomes(branches: Branches) -> list[_Outcome]:
    """Returns the actions by what they lead to, the best return first."""
    groups: list[list[int]] = []
    for action in np.argsort(-branches.returns, kind="stable"):
        same = (actions for actions in groups if _are_equal(branches, actions[0], int(action)))
        if actions := next(same, None):
            actions.append(int(action))
        else:
            groups.append([int(action)])
    names = [", ".join(branches.action_names[action] for action in sorted(a)) for a in groups]
    colors = palette(len(groups))
    return [_Outcome(*parts) for parts in zip(groups, names, colors, strict=True)]


def _are_equal(branches: Branches, first: int, second: int) -> bool:
    """Returns whether two actions lead to the same pictures, rewards and values."""
    parts = (branches.pictures, branches.rewards, branches.values)
    return all(np.array_equal(part[first], part[second], equal_nan=True) for part in parts)


def _rows(outcomes: list[_Outcome]) -> list[_Outcome]:
    """Returns the outcomes that have a row of pictures."""
    if len(outcomes) <= MOST_ROWS:
        return outcomes
    half = MOST_ROWS // 2
    return outcomes[:half] + outcomes[-half:]


def _draw_returns(axes: Any, branches: Branches, outcomes: list[_Outcome]) -> None:
    """Draws for each action its return, the value of the next state, and the policy."""
    rows = range(len(branches.action_names))
    for outcome in outcomes:
        for action in outcome.actions:
            next_value, final = branches.values[action, 0], branches.returns[action]
            axes.plot([next_value, final], [action] * 2, color=outcome.color, linewidth=1)
            axes.plot(next_value, action, "o", color=outcome.color, fillstyle="none")
            axes.plot(final, action, "o", color=outcome.color)
    axes.axvline(branches.value, color="black", linestyle=":", linewidth=1, label="value here")
    axes.plot([], [], "o", color=GRAY, fillstyle="none", label="value of the next state")
    axes.plot([], [], "o", color=GRAY, label="return")
    axes.set_yticks(rows, [_label(branches, action) for action in rows], fontsize="x-small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.12)
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize="x-small", loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=3,
                frameon=False, columnspacing=1, handletextpad=0.4)  # fmt: skip
    axes.tick_params(axis="x", labelsize="small")
    axes.set_xlabel("return", fontsize="small")


def _label(branches: Branches, action: int) -> str:
    """Returns an action's name with its probability; the policy's choice has a mark."""
    chosen = "▸ " * (action == branches.chosen)
    return f"{chosen}{branches.action_names[action]} {100 * branches.probabilities[action]:.0f} %"


def _draw_values(axes: Any, branches: Branches, outcomes: list[_Outcome]) -> None:
    """Draws the values along the branches, with a mark where a reward was received."""
    horizon = branches.values.shape[1]
    for outcome in outcomes:
        action = outcome.actions[0]
        values = np.append(branches.value, branches.values[action])
        length = branches.lengths[action]
        if branches.terminated[action]:
            values[length] = 0  # a terminal state's
        axes.plot(np.arange(horizon + 1), values, color=outcome.color, linewidth=1.3)
        for sign, marker in ((1, "^"), (-1, "v")):
            steps = np.flatnonzero(np.sign(branches.rewards[action]) == sign) + 1
            axes.plot(steps, values[steps], marker, color=outcome.color)
        if length < horizon:
            axes.plot(length, values[length], "x", color=outcome.color)
    axes.set_xlim(0, horizon)
    axes.tick_params(labelsize="small")
    axes.set_xlabel("steps later", fontsize="small")
    axes.set_title("value (▲ ▼ reward, × end)", fontsize="small")
    axes.grid(alpha=0.3)


def _draw_row(panels: Any, branches: Branches, outcome: _Outcome) -> None:
    """Draws the screens of a branch, each with the rewards since the one before.

    After the end of a branch its last screen is pale.
    """
    action = outcome.actions[0]
    before = 0
    for axes, screen, step in zip(
        panels, branches.pictures[action], branches.picture_steps, strict=True
    ):
        show_screen(axes, screen, alpha=1.0 if before < branches.lengths[action] else 0.3)
        reward = branches.rewards[action, before:step].sum()
        ended = before < branches.lengths[action] <= step
        notes = [f"reward {reward:+g}"] if reward else []
        if ended and branches.game_over[action]:
            notes.append("game over")
        elif ended and branches.terminated[action]:
            notes.append("life lost")
        axes.set_xlabel(", ".join(notes), fontsize="small")
        before = step
    names = outcome.name.replace(", ", "\n")
    panels[0].set_ylabel(f"{names}\n{branches.returns[action]:.2f}", rotation=0, ha="right",
                         va="center", fontsize="small", color=outcome.color)  # fmt: skip
