"""Trains the members of a sweep, one after another, or as an array of SLURM jobs.

Each is a run of its own: a process `jaxrl train`, or `jaxrl resume` where it has begun, whose words
go to ROOT/CONFIG-GAME-seedSEED.log. One that fails does not stop the others. The same sweep again
leaves out what is done and goes on with the rest.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl import members as plans
from jaxrl import runs
from jaxrl.errors import EngineError, UserError
from jaxrl.members import Member, Row
from jaxrl.progress import duration

if TYPE_CHECKING:
    from jaxrl.progress import Display

RETRIES = 2  # of a member whose emulators were lost
REPORT = "report.html"


class Stop:
    """Passes signals on to the member in progress, which saves and ends; then the sweep ends.

    A member has a process group of its own: a terminal's Ctrl-C would reach it twice, and the
    second signal ends at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first one
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, number: int, _: Any = None) -> None:
        """As a handler of signals does."""
        self.signal = self.signal or number
        if self._process is not None:
            # The terminal has gone: train knows no SIGHUP.
            self._process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    def wait_ended(self) -> None:
        """Waits until the member has ended; also within a handler that interrupts its parent."""
        if self._process is not None:
            # Popen.wait holds a lock that the interrupted code may hold already.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    @contextlib.contextmanager
    def passing_to(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Signals go to this process; one that came while it started does too."""
        self._process = process
        if self.signal is not None:
            process.send_signal(signal.SIGTERM)
        try:
            yield
        finally:
            self._process = None

    @contextlib.contextmanager
    def watching(self) -> Iterator["Stop"]:
        """Handlers are put back at the end; what is ignored (nohup) stays so, but for Ctrl-C."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            if number == signal.SIGINT or before[number] != signal.SIG_IGN:
                signal.signal(number, self.tell)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def command(member: Member) -> list[str]:
    """What trains a member from where it is; alone, whatever a launcher's environment says."""
    python = [sys.executable, "-m", "jaxrl"]
    config = member.config
    together = {"num-devices": config.num_devices, "num-processes": 1}
    if (member.run_dir / "config.toml").is_file():
        return [*python, "resume", str(member.run_dir), *_words(together)]
    options = {
        "config": member.recipe,
        "game": config.game,
        "seed": config.seed,
        "total-steps": config.total_steps,
        "run-dir": member.run_dir,
    }
    return [*python, "train", *_words(options | together)]


def _words(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def copy_recipes(members: list[Member]) -> None:
    """Keeps each configuration as it is now, for members that begin hours later."""
    for recipe, file in {member.recipe: member.file for member in members}.items():
        try:
            text = file.read_text(encoding="utf-8")
            if recipe.exists() and recipe.read_text(encoding="utf-8") != text:
                raise UserError(f"'{recipe}' is there and differs from '{file}': choose another "
                                "--root")  # fmt: skip
            runs.replace_text(recipe, text)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot copy '{file}' to '{recipe}': {error}") from None


def train(member: Member, stop: Stop, shown: Callable[[], None] | None = None) -> int:
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


def _process(member: Member, stop: Stop, shown: Callable[[], None] | None) -> int:
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
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with process, stop.passing_to(process):
            while shown is not None and process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1.0)
                shown()
            status = process.wait()
    return status if status >= 0 else 128 - status


def last_words(member: Member) -> str:
    """The last line of a member's log."""
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


@contextlib.contextmanager
def held(root: Path) -> Iterator[None]:
    """Makes the directory of a sweep, and keeps other sweeps out of it. Raises `UserError`."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = contextlib.ExitStack()
        lock.enter_context(runs.hold(root))
    except UserError as error:
        raise UserError(str(error).replace("--run-dir", "--root")) from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write '{root}' ({error}): choose another --root") from None
    with lock:
        yield


def run(members: list[Member], root: Path, display: "Display", stop: Stop) -> list[Row]:
    """Trains what is not done, one after another; returns the rows of sweep.json.

    Args:
      members: in their order.
      root: directory of the sweep; sweep.json in it is written anew after every member.
      display: where each is told.
      stop: what ends it early.
    """
    for member in members:
        if runs.is_held(member.run_dir):  # a sweep that is killed leaves its member training
            raise UserError(
                f"'{member.run_dir}' is in training by another process: wait for it, or stop it"
            )
    copy_recipes(members)
    rows = [plans.describe(member, plans.state(member)) for member in members]
    plans.write(root, rows)
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
        plans.write(root, rows)
        told = _outcome(rows[place], member, time.monotonic() - began)
        display.say(f"{label}: {told}{_rest(rows)}")
    return rows


def _train_shown(member: Member, label: str, display: "Display", stop: Stop) -> Row:
    def show() -> None:
        display.show(f"{label}  {last_words(member)}")

    status = train(member, stop, show)
    display.show("")
    ended = "done" if status == 0 else "failed" if stop.signal is None else "stopped"
    return plans.describe(member, ended, status)


def _rest(rows: list[Row]) -> str:
    """How many members are left, and for how long, where that can be told."""
    more, seconds = sum(row["status"] in ("new", "begun") for row in rows), plans.seconds_left(rows)
    about = f", about {duration(seconds)} of training" if seconds is not None else ""
    return f"; {more} more{about}" if more else ""


def _outcome(row: Row, member: Member, seconds: float) -> str:
    """How a member ended, in one line."""
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


def report(members: list[Member], root: Path) -> Path | None:
    """Writes ROOT/report.html of the members with metrics; None where there are none."""
    from jaxrl import metrics
    from jaxrl import report as reports

    run_dirs = [x.run_dir for x in members if (x.run_dir / metrics.FILE).is_file()]
    if not run_dirs:
        return None
    reports.write(run_dirs, root / REPORT)
    return root / REPORT


# --- as jobs of SLURM -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Slurm:
    """What each job of the array asks SLURM for; None leaves it to the cluster."""

    partition: str | None = None
    minutes: int = 1440
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    array_parallelism: int = 16


class Job:
    """One job of the array, called by submitit: trains a member from where it is.

    When SLURM says that the time is up, or that others come first, submitit calls `checkpoint` and
    queues the job again. That covers both cases, where `--requeue` alone covers only preemption;
    it is set too, for a node that is lost: whatever starts the job again, it resumes its member.
    """

    def __init__(self) -> None:
        self._stop = Stop()

    def __call__(self, member: Member) -> None:
        """Trains; raises `RuntimeError` where it fails, so that SLURM calls the job failed."""
        if plans.state(member) == "done":
            return
        status = train(member, self._stop)
        if status:
            raise RuntimeError(f"{member.name} ended with status {status}: see {member.log}")

    def checkpoint(self, member: Member) -> Any:
        """Lets the member save and end, and says what to queue: the same again."""
        import submitit

        self._stop.tell(signal.SIGTERM)
        self._stop.wait_ended()
        return submitit.helpers.DelayedSubmission(Job(), member)


def submit(members: list[Member], root: Path, slurm: Slurm, cluster: str = "slurm") -> list[Any]:
    """Submits one array of jobs, one for each member; returns submitit's jobs.

    submitit pickles the jobs into ROOT/slurm, and they are read there by submitit alone, within
    the jobs; no run directory holds or needs a pickle. `cluster` may be "local", to try it out.
    Raises `UserError` where submitit is missing or SLURM refuses.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--slurm needs submitit: pip install 'jaxrl[slurm]'") from None
    try:
        executor = submitit.AutoExecutor(
            folder=root / "slurm",
            cluster=cluster,
            slurm_max_num_timeout=100,  # it goes on each time, so time limits are no failures
        )
        executor.update_parameters(
            name="jaxrl-sweep",
            timeout_min=slurm.minutes,
            gpus_per_node=slurm.gpus_per_node,
            cpus_per_task=slurm.cpus_per_task,
            slurm_partition=slurm.partition,
            slurm_array_parallelism=slurm.array_parallelism,
            slurm_signal_delay_s=180,  # to end a compiled call, and save a replay of gigabytes
            slurm_additional_parameters={"requeue": True},
        )
        return executor.map_array(Job(), members)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"SLURM does not take the sweep: {reason}") from None
