"""`jaxrl watch`: the progress of a run in the terminal, its rates and losses, and a curve."""

import contextlib
import itertools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jaxrl.analysis.units import unit_of
from jaxrl.cli.parsing import RunDir, check_runs
from jaxrl.cli.streams import shows
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.formatting import count, duration
from jaxrl.runs import layout, metrics
from jaxrl.runs.directory import load_config
from jaxrl.runs.lock import is_locked

SECONDS = 1.0  # between two views
ROWS = 12  # rows of the curve
BRAILLE = "\N{BRAILLE PATTERN DOTS-12345678}"  # one of the characters of a fine curve
LINES = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")  # the frame of a curve, in ASCII
TICKS = 5  # intervals of an axis, at most


@dataclass(frozen=True)
class Watch:
    """Follow a run in the terminal until it ends: rates, losses and a small curve.

    Into a file or a pipe it is shown once.
    Example: jaxrl watch runs/x
    """

    run: RunDir
    """run directory, of a run that trains or has ended"""
    once: bool = False
    """show it once and return"""


def watch(arguments: Watch) -> int:
    """Shows a run until it ends, or once."""
    check_runs((arguments.run,), "watch")
    follow(arguments.run, once=arguments.once or not sys.stdout.isatty())
    return 0


def follow(run_dir: Path, once: bool = False, console: Console | None = None) -> None:
    """Shows the run until it ends or stops; with `once`, shows its present state."""
    console = console or Console(highlight=False)
    config = load_config(run_dir)
    if once:
        console.print(view(run_dir, config, console.width, console.encoding))
        return
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False) as live,
    ):
        while True:
            trains = is_locked(run_dir)  # comes first: the last line is written before the end
            live.update(view(run_dir, config, console.width, console.encoding), refresh=True)
            if not trains:
                return
            time.sleep(SECONDS)


def view(run_dir: Path, config: Config, width: int, encoding: str) -> Group:
    """Returns the present state of a run, in `width` columns of a stream of this encoding."""
    # A resume may have changed the configuration since the caller read it; it is shown anyway.
    rows = metrics.read(run_dir) if (run_dir / layout.METRICS).exists() else []
    head = Text(f"{config.algorithm} on {config.game}, {run_dir}", style="bold", overflow="fold")
    total = resolve(config).total_steps
    state = _state(run_dir, total, rows)
    if not rows:
        return Group(head, Text(f"no line of metrics yet, {state}"))
    curve = _curve(rows, width, fine=shows("".join(map(chr, LINES)) + BRAILLE, encoding))
    return Group(head, Text(_progress(rows[-1], total, state)), curve, _numbers(rows[-1]))


def _state(run_dir: Path, total: int, rows: list[dict[str, Any]]) -> str:
    """Returns the present state as a text; `total` are the agent steps of the whole run."""
    if is_locked(run_dir):
        if not rows:
            return "starting, or in its first interval"
        if rows[-1]["step"] >= total:
            return "saving and evaluating"
        quiet = _quiet(run_dir)
        return f"training; the last line is {duration(quiet)} old" if quiet > 120 else "training"
    return "ended" if rows and rows[-1]["step"] >= total else "stopped before its end"


def _quiet(run_dir: Path) -> float:
    """Returns the seconds since the last line of metrics."""
    with contextlib.suppress(OSError):
        return max(0.0, time.time() - os.stat(run_dir / layout.METRICS).st_mtime)
    return 0.0


def _progress(row: dict[str, Any], total: int, state: str) -> str:
    """Returns the line of progress, of `total` agent steps."""
    step, rate = row["step"], row.get("steps_per_second") or 0.0  # `metrics.read` checks the types
    parts = [
        f"{min(step / total, 1):.0%} of {count(total)} steps",
        f"{count(row['frames'])} frames",
        f"{rate:,.0f} steps/s",
    ]
    if state.startswith("training") and rate:
        parts.append(f"{duration(max(0.0, (total - step) / rate))} left")
    return "  ".join([*parts, state])


def _curve(rows: list[dict[str, Any]], width: int, fine: bool) -> Text:
    """Draws the mean return of the last 100 games; `fine` takes characters beyond ASCII."""
    import plotext

    drawn = [row for row in rows if row["return_mean"] is not None]
    if not drawn:
        return Text("no game over yet")
    unit = unit_of("frames", drawn[-1]["frames"])
    x, y = [row["frames"] / unit.size for row in drawn], [row["return_mean"] for row in drawn]
    margin = 1 if min(y) == max(y) else 0
    x_ticks, y_ticks = _ticks(0, max(x)), _ticks(min(y) - margin, max(y) + margin)
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(min(width, 100), ROWS + 4)
    plotext.plot(x, y, marker="braille" if fine else "*")
    plotext.xlim(x_ticks[0], x_ticks[-1])
    plotext.ylim(y_ticks[0], y_ticks[-1])
    plotext.xticks(x_ticks, [f"{tick:g}" for tick in x_ticks])
    plotext.yticks(y_ticks, [f"{tick:g}" for tick in y_ticks])
    plotext.title("return, mean of the last 100 games")
    plotext.xlabel(unit.label)
    text = plotext.build().rstrip("\n")
    return Text.from_ansi(text if fine else text.translate(LINES), no_wrap=True)


def _ticks(low: float, high: float) -> list[float]:
    """Returns round numbers, of which the first and the last enclose the range."""
    from matplotlib.ticker import MaxNLocator

    return [float(tick) for tick in MaxNLocator(TICKS, steps=[1, 2, 5, 10]).tick_values(low, high)]


def _numbers(row: dict[str, Any]) -> Table:
    """Returns the last line as a table: the learner's figures, then the run's."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    shown = ["episodes", "return_mean", "return_min", "return_max", "length_mean", "goodput",
             "memory_gb", "checkpoint_seconds", "updates", "seconds"]  # fmt: skip
    figures = [(name, row[name]) for name in shown if name in row]
    learned = [(name, value) for name, value in row.items() if "/" in name]
    for pairs in itertools.zip_longest(learned, figures, fillvalue=("", "")):
        cells = [cell for name, value in pairs for cell in (name, _number(value))]
        table.add_row(*(Text("".join(c for c in cell if c.isprintable())) for cell in cells))
    return table


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
