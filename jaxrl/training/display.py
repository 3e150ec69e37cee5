"""Progress on standard error: a live line on a terminal, otherwise a line per log interval."""

import contextlib
import os
import sys
import time
from typing import NamedTuple, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from jaxrl.formatting import count, duration, no_game
from jaxrl.program.episode_statistics import EpisodeSummary

SECONDS_PER_LINE = 30.0  # between lines about an activity, off a terminal


class TrainingStatus(NamedTuple):
    """The figures of one status line."""

    step: int  # agent steps
    total_steps: int
    steps_per_second: float
    games: EpisodeSummary
    note: str = ""  # shown at the end of the line
    members: int = 1  # runs that train together, of which these are the figures of each, or means
    frame_skip: int = 4  # emulator frames of a step


def status_line(status: TrainingStatus) -> str:
    """Returns steps, frames, rate, time left and the mean return in about 80 columns."""
    left = (status.total_steps - status.step) / max(status.steps_per_second, 1e-9)
    mean = status.games.return_mean
    result = no_game(status.step >= status.total_steps) if mean is None else f"return {mean:.1f}"
    times = ""
    if status.members > 1:
        times = f"{status.members} x "
        if mean is not None:
            result += f" ({status.games.return_min:.1f} to {status.games.return_max:.1f})"
    return (
        f"{status.step / status.total_steps:4.0%}  {count(status.step)} steps  "
        f"{count(status.step * status.frame_skip)} frames  "
        f"{times}{status.steps_per_second:,.0f} steps/s  "
        f"{duration(max(left, 0))} left  {result}{status.note and f'  {status.note}'}"
    )


class _LossyStream:
    """A text stream whose failed writes are dropped, because training continues without a reader.

    A pipe may be broken, the log's disk full, the terminal or the stream closed, also in the thread
    that refreshes the live line.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # A program may have been started without a stream, or have set it to None.
        self._stream = stream = stream or open(os.devnull, "w")  # noqa: SIM115
        self.encoding, self.isatty, self.fileno = stream.encoding, stream.isatty, stream.fileno

    def write(self, text: str) -> int:
        """Writes, or drops what cannot be written."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes what can be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class Display:
    """Shows training on standard error; standard output stays free for results.

    Output that fails is dropped.
    """

    def __init__(self, console: Console | None = None, silent: bool = False) -> None:
        self._errors = cast(TextIO, _LossyStream(sys.stderr))
        self._console = console or Console(
            file=self._errors, highlight=False, soft_wrap=True, quiet=silent
        )
        self._silent = silent
        self._progress: Progress | None = None  # on a terminal

    def __enter__(self) -> "Display":
        if self._console.is_terminal and not self._silent:
            one_line = Column(no_wrap=True, overflow="ellipsis")
            # Transient, because the last status line is no result; results go to standard output.
            self._progress = Progress(
                BarColumn(bar_width=20),  # gives way to the text on a terminal of 80 columns
                TextColumn("{task.description}", markup=False, table_column=one_line),
                console=self._console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._task = self._progress.add_task("", total=None, visible=False)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, markup=False, highlight=False)

    def busy(self, activity: str, announced: bool = False) -> "_Activity":
        """Shows that an activity takes time: `with display.busy("compiling"): ...`.

        One that is `announced` has a line where it begins, too, off a terminal.
        """
        return _Activity(self, activity, announced)

    def update(self, status: TrainingStatus, interval_ended: bool) -> None:
        """Shows the status after a compiled call; off a terminal only at the end of an interval."""
        if self._progress is not None:
            self._progress.update(self._task, completed=status.step, total=status.total_steps)
            self.show(status_line(status))
        elif interval_ended and not self._silent:
            print(status_line(status), file=self._errors, flush=True)

    @property
    def is_live(self) -> bool:
        """Returns whether there is a line that is replaced, on a terminal."""
        return self._progress is not None

    def show(self, text: str) -> None:
        """Shows a line that the next one replaces; on a terminal only."""
        if self._progress is not None:
            self._progress.update(self._task, description=text, visible=bool(text), refresh=True)


class _Activity:
    """A context that shows an activity, and prints its duration at the end."""

    def __init__(self, display: Display, activity: str, announced: bool) -> None:
        self._display, self._activity, self._announced = display, activity, announced
        self.seconds = 0.0

    def __enter__(self) -> "_Activity":
        self._start = self._said = time.perf_counter()
        self._display.show(f"{self._activity} ...")
        if self._announced and not self._display.is_live:
            self._display.say(f"{self._activity} ...")
        return self

    def update(self, progress: str) -> None:
        """Shows how far it is; off a terminal every `SECONDS_PER_LINE`."""
        self._display.show(f"{self._activity}: {progress} ...")
        now = time.perf_counter()
        if now - self._said >= SECONDS_PER_LINE and not self._display.is_live:
            self._said = now
            self._display.say(f"{self._activity}: {progress} ...")

    def __exit__(self, kind: type | None, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self._display.show("")
        if kind is None:
            self._display.say(f"{self._activity}: {self.seconds:.1f} s")
