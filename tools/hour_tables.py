"""The tables and the picture of an hour: `python -m tools.hour_tables`.

    python -m tools.hour_tables CURVE...    # print those of curves
    python -m tools.hour_tables             # write those of docs/results/hour.md anew

A curve is a file LIBRARY-GAME-seedSEED.csv of docs/examples/hour.py; the picture is hour.png beside
the first. The page's are in docs/results/hour.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.analysis.drawing import legend_below, line_style, new_figure, save
from jaxrl.atari.scores import human_normalized
from jaxrl.runs.files import replace_text
from tools.pages import marked_section, title

FOLDER = Path("docs/results/hour")
PAGE = FOLDER.with_suffix(".md")
PICTURE = Path("docs/images/hour.png")

MINUTES = 60.0
GAMES = ("breakout", "name_this_game", "pong", "qbert")  # the page's, whose median is told
OURS = "jaxrl"
LIBRARIES = {
    OURS: "jaxrl, `vtrace_fast`",
    "sb3_ppo": "Stable-Baselines3, PPO",
    "sb3_a2c": "Stable-Baselines3, A2C",
    "sample_factory": "Sample Factory, APPO",
}


class Curve(NamedTuple):
    """The mean score of the last hundred games, by minutes since the start."""

    library: str
    game: str
    minutes: list[float]
    steps: list[int]  # agent steps so far
    scores: list[float]


def read(path: Path) -> Curve:
    """Reads the curve LIBRARY-GAME-seedSEED.csv."""
    library, game, _ = path.stem.split("-")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    minutes, steps, scores = ([row[key] for row in rows] for key in ("minutes", "steps", "score"))
    return Curve(library, game, [*map(float, minutes)], [*map(int, steps)], [*map(float, scores)])


def by_library(curves: Sequence[Curve]) -> dict[str, dict[str, Curve]]:
    """Returns the curves of each library that has any, by game."""
    found = {library: [x for x in curves if x.library == library] for library in LIBRARIES}
    return {library: {curve.game: curve for curve in of} for library, of in found.items() if of}


def games_of(curves: Sequence[Curve]) -> list[str]:
    """Returns the games that have curves, by name."""
    return sorted({curve.game for curve in curves})


def scores(curves: Sequence[Curve]) -> str:
    """Returns the table of the scores after an hour, with a median of the page's games."""
    games = games_of(curves)
    all_there = tuple(games) == GAMES
    head = [
        "",
        "agent steps (others: of finished games)",
        *map(title, games),
        *["median"] * all_there,
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for library, of in by_library(curves).items():
        steps = sorted(curve.steps[-1] for curve in of.values())
        span = " to ".join(f"{count:,}" for count in sorted({steps[0], steps[-1]}))
        normalized = {game: human_normalized(game, curve.scores[-1]) for game, curve in of.items()}
        cells = [
            f"**{of[game].scores[-1]:,.1f}** ({normalized[game]:.2f})" if game in of else ""
            for game in games
        ]
        if all_there:
            whole = len(of) == len(GAMES)
            cells.append(f"**{statistics.median(normalized.values()):.2f}**" if whole else "")
        lines.append(f"| {' | '.join([LIBRARIES[library], span, *cells])} |")
    return "\n".join(lines) + "\n"


def passed(curves: Sequence[Curve]) -> str:
    """Returns the table of the minutes until our score is above another library's of an hour."""
    games, libraries = games_of(curves), by_library(curves)
    lines = [f"|  | {' | '.join(map(title, games))} |", "|---" * (len(games) + 1) + "|"]
    for library, of in libraries.items():
        if library == OURS:
            continue
        cells = []
        for game in games:
            ours = libraries.get(OURS, {}).get(game)
            cells.append(_minutes(ours, of[game].scores[-1]) if ours and game in of else "")
        lines.append(f"| {LIBRARIES[library]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _minutes(curve: Curve, score: float) -> str:
    """Returns the minutes until a curve is above a score, from then on to its end, or "never"."""
    above = ""
    for minute, own in zip(curve.minutes, curve.scores, strict=True):
        if own <= score:
            above = ""
        elif not above:
            above = f"{minute:g}"
    return above or "never"


def draw(curves: Sequence[Curve], target: Path) -> None:
    """Draws the curves of each game, one panel for a game, two in a row."""
    games = games_of(curves)
    rows, columns = (len(games) + 1) // 2, min(len(games), 2)
    figure = new_figure(10, 1.5 + 2.5 * rows)
    panels: Any = figure.subplots(rows, columns, sharex=True, squeeze=False)
    found, lines = by_library(curves), {}
    for game, axes in zip(games, panels.flat, strict=False):
        for place, (library, name) in enumerate(LIBRARIES.items()):
            if curve := found.get(library, {}).get(game):
                [line] = axes.plot(curve.minutes, curve.scores, **line_style(place))
                lines[name.replace("`", "")] = line
        axes.set_title(title(game))
        axes.set_xlim(0, MINUTES)
        axes.grid(alpha=0.3)
    for axes in panels.flat[len(games) :]:
        axes.set_axis_off()
    for axes in panels.flat[len(games) - columns : len(games)]:  # the lowest of each column
        axes.set_xlabel("minutes of one core")
        axes.tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("mean score, last 100 games")
    legend_below(figure, lines)
    save(figure, target)


def written(page: str, curves: Sequence[Curve]) -> str:
    """Returns the page with its tables from the curves."""
    page = marked_section(page, "scores", scores(curves))
    return marked_section(page, "passed", passed(curves))


def main(arguments: Sequence[str]) -> int:
    """Writes or prints the tables, and draws the picture; returns the exit status."""
    curves = [read(Path(path)) for path in sorted(arguments or FOLDER.glob("*.csv"))]
    if len({(curve.library, curve.game) for curve in curves}) < len(curves):
        sys.exit("a library has two curves of one game: name those of one seed")
    if not arguments:
        replace_text(PAGE, written(PAGE.read_text(encoding="utf-8"), curves))
        draw(curves, PICTURE)
        return 0
    print(scores(curves))
    print("Minutes until jaxrl stays above their last scores:\n")
    print(passed(curves))
    target = Path(arguments[0]).with_name("hour.png")
    draw(curves, target)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
