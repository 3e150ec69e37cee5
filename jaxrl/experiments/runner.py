"""Runs the members of a plan one after another, each in a process, until a signal comes.

A process is `jaxrl train` or, where the member has begun, `jaxrl resume`. Its output goes to the
member's log.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jaxrl.errors import EngineError, UserError
from jaxrl.experiments.members import Member
from jaxrl.formatting import no_option
from jaxrl.runs import layout
from jaxrl.runtime import parent

if TYPE_CHECKING:
    from jaxrl.training.display import Display

RETRIES = 2  # further attempts at a member whose emulators were lost

T = TypeVar("T")


class SignalRelay:
    """The signals to a command, passed on to the member in progress, which saves and ends.

    A member runs in a separate process group: a terminal's Ctrl-C would reach it twice, and the
    second signal ends at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first that came
        self._process: subprocess.Popen[bytes] | None = None

    def handle(self, number: int, _: Any = None) -> None:
        """Passes a signal on; a handler of signals."""
        self.signal = self.signal or number
        if self._process is not None:
            self._process.send_signal(number)

    def end_member(self) -> None:
        """Lets the member in progress save and end; the command continues."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait_ended(self) -> None:
        """Waits until the member has ended; also within a handler that interrupts its parent."""
        if self._process is not None:
            # Popen.wait holds a lock that the interrupted code may hold already.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    @contextlib.contextmanager
    def passing_to(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Passes signals to this process, also a signal that came while it started."""
        self._process = process
        if self.signal is not None:
            process.send_signal(signal.SIGTERM)
        try:
            yield
        finally:
            self._process = None

    @contextlib.contextmanager
    def watching(self) -> Iterator["SignalRelay"]:
        """Handles signals until the end; ignored ones (nohup) stay ignored, except Ctrl-C."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            if number == signal.SIGINT or before[number] != signal.SIG_IGN:
                signal.signal(number, self.handle)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# --- one after another ----------------------------------------------------------------------------


class Turn(NamedTuple):
    """The lines of a display about one entry of a plan."""

    label: str
    display: "Display"
    start: float  # by time.monotonic

    @property
    def seconds(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self.start

    def begin(self, text: str) -> None:
        """Prints the line of the beginning."""
        self.display.say(f"{self.label}: {text}")

    def show(self, log: Path) -> None:
        """Shows the last line of a log until the next line is shown or printed."""
        self.display.show(f"{self.label}  {last_line(log)}")

    def end(self, text: str) -> None:
        """Prints the line of the end."""
        self.display.show("")
        self.display.say(f"{self.label}: {text}")


def turns(
    entries: Mapping[str, T], display: "Display", stop: SignalRelay
) -> Iterator[tuple[Turn, T]]:
    """Yields each entry of a plan with its turn, in order, until a signal comes."""
    for number, (name, entry) in enumerate(entries.items(), start=1):
        if stop.signal is not None:
            return
        yield Turn(f"[{number}/{len(entries)}] {name}", display, time.monotonic()), entry


# --- a member -------------------------------------------------------------------------------------


def command(member: Member) -> list[str]:
    """Returns the command that starts or resumes a member, alone even under a launcher."""
    config = member.config
    devices, alone = config.parallel.num_devices, {"num-processes": 1}
    if (member.run_dir / layout.CONFIG).is_file():
        words = ["resume", no_option(member.run_dir)]
        options: dict[str, Any] = {"num-devices": devices}
    else:
        words = ["train"]
        options = {
            "config": no_option(member.recipe),
            "game": config.game,
            "seed": config.seed,
            "total-steps": config.total_steps,
            "run-dir": no_option(member.run_dir),
            "parallel.num-devices": devices,
        }
    words += [word for key, value in (options | alone).items() for word in (f"--{key}", f"{value}")]
    return [sys.executable, "-m", "jaxrl", *words]


def train(member: Member, stop: SignalRelay, look: Callable[[], None] | None = None) -> int:
    """Trains a member to its end and returns its exit status, as a shell has it.

    It is tried again where its emulators were lost; `look` is called about once a second.
    """
    for _ in range(1 + RETRIES):
        status = _process(member, stop, look)
        if status != EngineError.status or stop.signal is not None:
            break
    return status


def _process(member: Member, stop: SignalRelay, look: Callable[[], None] | None) -> int:
    words = command(member)
    try:
        log = member.log.open("ab")
    except OSError as error:
        raise UserError(f"cannot write '{member.log}': {error.strerror}") from None
    with log:
        log.write(f"$ {shlex.join(words)}\n".encode())
        log.flush()
        # SLURM sends submitit's signal to all processes of a job: this one would end unsaved.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                env=os.environ | {parent.VARIABLE: str(os.getpid())},
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with process, stop.passing_to(process):
            while look is not None and process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1.0)
                look()
            status = process.wait()
    return status if status >= 0 else 128 - status


# --- logs -----------------------------------------------------------------------------------------


def last_line(log: Path) -> str:
    """Returns the last line of a log that has text, as `printable` makes it."""
    return printable((log_tail(log, 1000) or [""])[-1])


def log_tail(log: Path, size: int) -> list[str]:
    """Returns the lines with text among the last `size` bytes of a log; none if it is missing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return []
    return [line for line in lines if line.strip()]


def printable(line: str) -> str:
    """Returns a line without what would move a terminal's cursor."""
    return "".join(c for c in line if c.isprintable()).strip()
