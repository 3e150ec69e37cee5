"""Trains the members of a sweep, one after another, or as an array of SLURM jobs.

Each member is a separate process, `jaxrl train` or, where it has begun, `jaxrl resume`. Its output
goes to ROOT/CONFIG-GAME-seedSEED.log. One that fails does not stop the others. The same sweep again
leaves out what is done and goes on with the rest.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.config.toml import from_table
from jaxrl.errors import EngineError, UserError
from jaxrl.experiments import sweep_plan
from jaxrl.experiments.sweep_plan import Row, SweepMember
from jaxrl.formatting import duration, no_option
from jaxrl.runs import layout
from jaxrl.runs.files import replace_text
from jaxrl.runs.lock import is_locked
from jaxrl.runtime import parent

if TYPE_CHECKING:
    from jaxrl.training.display import Display

RETRIES = 2  # of a member whose emulators were lost
REPORT = "report.html"


class SignalRelay:
    """Passes signals on to the member in progress, which saves and ends; then the sweep ends.

    A member runs in a separate process group: a terminal's Ctrl-C would reach it twice, and the
    second signal ends at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first one
        self._process: subprocess.Popen[bytes] | None = None

    def handle(self, number: int, _: Any = None) -> None:
        """Passes a signal on; a handler of signals."""
        self.signal = self.signal or number
        if self._process is not None:
            self._process.send_signal(number)

    def end_member(self) -> None:
        """Lets the member in progress save and end; the sweep goes on."""
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
        """Passes signals to this process, also one that came while it started."""
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


def command(member: SweepMember) -> list[str]:
    """Returns the command that starts or resumes a member, alone even under a launcher."""
    python = [sys.executable, "-m", "jaxrl"]
    config = member.config
    devices, alone = config.parallel.num_devices, {"num-processes": 1}
    if (member.run_dir / layout.CONFIG).is_file():
        return [
            *python,
            "resume",
            no_option(member.run_dir),
            *_words({"num-devices": devices} | alone),
        ]
    options = {
        "config": no_option(member.recipe),
        "game": config.game,
        "seed": config.seed,
        "total-steps": config.total_steps,
        "run-dir": no_option(member.run_dir),
        "parallel.num-devices": devices,
    }
    return [*python, "train", *_words(options | alone)]


def _words(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def copy_recipes(members: list[SweepMember]) -> None:
    """Copies each configuration, for members that begin hours later."""
    for recipe, member in {member.recipe: member for member in members}.items():
        try:
            text = member.recipe_text()
            if recipe.exists() and not _same(recipe.read_text(encoding="utf-8"), text):
                raise UserError(f"'{recipe}' is there and differs from '{member.file}': choose "
                                "another --root")  # fmt: skip
            replace_text(recipe, text)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot copy '{member.file}' to '{recipe}': {error}") from None


def _same(first: str, second: str) -> bool:
    """Returns whether two recipes have the same values; an older version's has fewer keys."""
    if first == second:
        return True
    try:
        one, other = (from_table(tomllib.loads(text)) for text in (first, second))
    except UserError:  # a key that has gone
        return False
    return one == other


def train(member: SweepMember, stop: SignalRelay, shown: Callable[[], None] | None = None) -> int:
    """Trains a member to its end and returns its exit status, as a shell has it.

    Args:
      member: to train; tried again where its emulators were lost.
      stop: what passes signals on to its process.
      shown: called about once a second meanwhile.
    """
    for _ in range(1 + RETRIES):
        status = _process(member, stop, shown)
        if status != EngineError.status or stop.signal is not None:
            break
    return status


def _process(member: SweepMember, stop: SignalRelay, shown: Callable[[], None] | None) -> int:
    words = command(member)
    try:
        log = member.log.open("ab")
    except OSError as error:
        raise UserError(f"cannot write '{member.log}': {error.strerror}") from None
    with log:
        log.write(f"$ {shlex.join(words)}\n".encode())
        log.flush()
        # SLURM sends submitit's signal to all processes of a job: it would kill this one unsaved.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                env=os.environ | {parent.VARIABLE: str(os.getpid())},
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with process, stop.passing_to(process):
            while shown is not None and process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1.0)
                shown()
            status = process.wait()
    return status if status >= 0 else 128 - status


def last_words(member: SweepMember) -> str:
    """Returns the last line of a member's log."""
    return last_line(member.log)


def last_line(log: Path) -> str:
    """Returns the last line of a file, without what would move a terminal's cursor."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = [line for line in lines if line.strip()] or [""]
    return "".join(c for c in said[-1] if c.isprintable()).strip()


def run(members: list[SweepMember], root: Path, display: "Display", stop: SignalRelay) -> list[Row]:
    """Trains what is not done, one after another; returns the rows of sweep.json.

    Args:
      members: in their order.
      root: directory of the sweep; sweep.json in it is rewritten after every member.
      display: shows each member.
      stop: what ends it early.
    """
    for member in members:
        if is_locked(member.run_dir):  # a killed sweep's member takes a moment to save
            raise UserError(
                f"'{member.run_dir}' is in training by another process: wait for it, or stop it"
            )
    copy_recipes(members)
    rows = [sweep_plan.describe(member, sweep_plan.state(member)) for member in members]
    sweep_plan.write(root, rows)
    if done := sum(row["status"] == "done" for row in rows):
        display.say(f"{done} of {len(rows)} done already")
    for place, member in enumerate(members):
        if stop.signal is not None:
            break
        if rows[place]["status"] == "done":
            continue
        label, began = f"[{place + 1}/{len(members)}] {member.name}", time.monotonic()
        display.say(f"{label}: {'goes on' if rows[place]['status'] == 'begun' else 'begins'}")
        rows[place] = _train_shown(member, label, display, stop)
        sweep_plan.write(root, rows)
        outcome = _outcome(rows[place], member, time.monotonic() - began)
        display.say(f"{label}: {outcome}{_rest(rows)}")
    return rows


def _train_shown(member: SweepMember, label: str, display: "Display", stop: SignalRelay) -> Row:
    def show() -> None:
        display.show(f"{label}  {last_words(member)}")

    status = train(member, stop, show)
    display.show("")
    ended = "done" if status == 0 else "failed" if stop.signal is None else "stopped"
    return sweep_plan.describe(member, ended, status)


def _rest(rows: list[Row]) -> str:
    """Returns how many members are left, and for how long, where that is known."""
    more, seconds = (
        sum(row["status"] in ("new", "begun") for row in rows),
        sweep_plan.seconds_left(rows),
    )
    about = f", about {duration(seconds)} of training" if seconds is not None else ""
    return f"; {more} more{about}" if more else ""


def _outcome(row: Row, member: SweepMember, seconds: float) -> str:
    """Returns how a member ended, in one line."""
    took = duration(seconds)
    if row["status"] == "failed":
        return (
            f"failed after {took} with status {row['exit_status']} "
            f"({last_words(member)}): see {member.log}"
        )
    if row["status"] == "stopped":
        return f"stopped after {took} at step {row['step']:,}"
    figures = {"return": row["return_mean"], "evaluation": row["evaluation_mean"]}
    found = [f", {name} {value:.1f}" for name, value in figures.items() if value is not None]
    return f"done in {took}{''.join(found)}"


def report(members: list[SweepMember], root: Path) -> Path | None:
    """Writes ROOT/report.html of the members with metrics; None where there are none."""
    from jaxrl.analysis.report import page

    run_dirs = [x.run_dir for x in members if (x.run_dir / layout.METRICS).is_file()]
    if not run_dirs:
        return None
    left_out = {x.run_dir: "not trained" for x in members if x.run_dir not in run_dirs}
    page.write(run_dirs, root / REPORT, left_out=left_out)
    return root / REPORT
