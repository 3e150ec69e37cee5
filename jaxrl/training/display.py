"""What a person sees while it trains: a live line on a terminal, else a line per interval."""

import contextlib
import sys
import time
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jaxrl.formatting import count, duration
from jaxrl.program.episode_statistics import EpisodeSummary
from jaxrl.types import FRAME_SKIP


class Moment(NamedTuple):
    """Where training stands."""

    step: int  # agent steps
    total_steps: int
    steps_per_second: float
    games: EpisodeSummary
    note: str = ""  # what else is to be said


def line(moment: Moment) -> str:
    """Steps, frames, rate, time left and mean return of the last 100 games, in 80 columns."""
    left = (moment.total_steps - moment.step) / max(moment.steps_per_second, 1e-9)
    mean = moment.games.return_mean
    result = "no game over yet" if mean is None else f"return {mean:.1f}"
    return (
        f"{moment.step / moment.total_steps:4.0%}  {count(moment.step)} steps  "
        f"{count(moment.step * FRAME_SKIP)} frames  {moment.steps_per_second:,.0f} steps/s  "
        f"{duration(max(left, 0))} left  {result}{moment.note and f'  {moment.note}'}"
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Training goes on though nobody reads what it says."""
        self.quiet = True


class Display:
    """Shows training on standard error; standard output stays free for results.

    What cannot be shown, because a pipe is broken or the log's disk is full, is left out.
    """

    def __init__(self, console: Console | None = None, silent: bool = False) -> None:
        self._console = console or _Console(
            stderr=True, highlight=False, soft_wrap=True, quiet=silent
        )
        self._silent = silent
        self._live: Live | None = None

    def __enter__(self) -> "Display":
        if self._console.is_terminal and not self._silent:
            # Results go to standard output as they are; the last line shown is not one of them.
            self._live = Live(
                console=self._console, refresh_per_second=4, transient=True, redirect_stdout=False
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """A line that stays."""
        with contextlib.suppress(OSError):
            self._console.print(text, markup=False, highlight=False)

    def busy(self, what: str) -> "_Busy":
        """Shows that something takes its time: `with display.busy("compiling"): ...`."""
        return _Busy(self, what)

    def update(self, moment: Moment, interval_ended: bool) -> None:
        """After every compiled call; off a terminal only the ends of intervals are printed."""
        if self._live is not None:
            self.show(line(moment))
        elif interval_ended and not self._silent:
            with contextlib.suppress(OSError):
                print(line(moment), file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """A line that the next one replaces; on a terminal only."""
        if self._live is not None:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


class _Busy:
    def __init__(self, display: Display, what: str) -> None:
        self._display, self._what = display, what
        self.seconds = 0.0

    def __enter__(self) -> "_Busy":
        self._start = time.perf_counter()
        self._display.show(f"{self._what} ...")
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self._display.show("")
        if kind is None:
            self._display.say(f"{self._what}: {self.seconds:.1f} s")
