"""Runs the members of a suite, one after another, and writes each result at once.

A member is a process group with a time limit: one that hangs is ended with its children, one that
dies is named with its last line, and the others go on. The same suite again skips members that are
done and tries last those that failed (`records`).
"""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from jaxrl.errors import RunError
from jaxrl.experiments.doctor.machine import describe_apart
from jaxrl.experiments.runner import SignalRelay, Turn, last_line, turns
from jaxrl.experiments.suite import table
from jaxrl.experiments.suite.plan import SuiteMember
from jaxrl.experiments.suite.records import (
    LOGS,
    PARTS,
    RECORDS,
    RUNS,
    Record,
    counted,
    expected,
    queue,
    read,
    write,
)
from jaxrl.experiments.suite.result import (
    End,
    last_error,
    named_status,
    record_rates,
    record_score,
    score_of,
)
from jaxrl.formatting import duration, no_option
from jaxrl.runs.lock import hold_directory

if TYPE_CHECKING:
    from jaxrl.training.display import Display

PROGRAM = (sys.executable, "-m", "jaxrl")
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
UNKILLABLE = 10.0  # seconds after which a killed process is left: a driver holds it
LOOKS = 0.2  # seconds between two looks at a member
# JAX would end its tracebacks with a note about them, instead of the error.
ENVIRONMENT = {"JAX_TRACEBACK_FILTERING": "off"}


@dataclass(frozen=True)
class SuiteCall:
    """One call of the suite."""

    output: Path
    size: str
    machine: dict[str, Any]  # as `machine.Machine` has it
    deadline: float  # value of time.monotonic by which all has ended
    stop: SignalRelay
    grace: float = GRACE


def probe() -> dict[str, Any]:
    """Returns the machine, as a short-lived process sees it. Raises `RunError` without devices."""
    machine = dataclasses.asdict(describe_apart())
    if machine["platform"] is None:
        raise RunError(f"JAX has no devices ({machine['device_error']}): see `jaxrl doctor`")
    return machine


def run(
    members: list[SuiteMember],
    call: SuiteCall,
    display: "Display",
    only: list[SuiteMember] | None = None,
) -> dict[str, Record]:
    """Measures until all is done, the time is up or a signal comes; returns the records by name.

    The table lists all members; only those of `only` are tried, if it is given.
    """
    output, records = call.output, read(call.output)
    table.write(output, members, records, call.machine, call.size)
    waiting = {member.name: member for member in queue(only or members, records, only is not None)}
    skipped = 0
    for turn, member in turns(waiting, display, call.stop):
        left = call.deadline - call.grace - time.monotonic()
        if expected(member, members, records) > left:
            skipped += 1
            continue
        turn.begin(member.command)
        before = counted(member, records)
        record = _measure(member, call, before, turn)
        if record.state == "stopped" and before is not None and before.state == "done":
            records[member.name] = before
        else:
            records[member.name] = record
        write(output, records[member.name])
        table.write(output, members, records, call.machine, call.size)
        turn.end(f"{table.outcome(record)} ({duration(record.seconds)})")
    if skipped:
        display.say(f"{skipped} not begun: they would not have ended in time")
    return records


# --- a member -------------------------------------------------------------------------------------


def _measure(member: SuiteMember, call: SuiteCall, before: Record | None, turn: Turn) -> Record:
    attempts = 0 if before is None or before.state == "done" else before.attempts
    log = call.output / LOGS / f"{member.name}.log"
    printed = log.with_suffix(".out")
    run_dir = _new_run_dir(call.output / RUNS, member.name)
    command = [*PROGRAM, *member.arguments, *_unseen(member, run_dir)]
    record = Record(
        name=member.name,
        kind=member.kind,
        size=call.size,
        command=member.command,
        state="begun",
        attempts=attempts + 1,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=call.machine.get("commit"),
        machine=call.machine,
    )
    began = time.monotonic()
    with log.open("wb") as errors, printed.open("wb") as results:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=results, stderr=errors,
            start_new_session=True, env=os.environ | ENVIRONMENT,
        )  # fmt: skip
    try:
        write(call.output, dataclasses.replace(record, process=_identity(process.pid)))
        how = _watch(process, member, call, run_dir, lambda: turn.show(log))
        last = last_line(log)  # before SIGTERM adds to it
        if how != "ended":
            _terminate(process, call.grace)
    finally:
        status = _kill(process)
    seconds = round(time.monotonic() - began, 1)
    record = dataclasses.replace(record, exit_status=status, seconds=seconds)
    if how == "limit":
        record = dataclasses.replace(record, reason=f"no end within {member.limit:.0f} s: {last}")
    elif how == "ended":
        record = dataclasses.replace(
            record, reason=f"{named_status(status)}: {last_error(log) or 'no word'}"
        )
    if member.kind == "rates":
        return record_rates(record, how, printed)
    return record_score(record, how, run_dir)


def _unseen(member: SuiteMember, run_dir: Path) -> list[str]:
    """Returns the options that no person needs to repeat the member."""
    if member.kind == "rates":
        return ["--json"]
    return ["--run-dir", no_option(run_dir), "--num-processes", "1"]


def _new_run_dir(root: Path, name: str) -> Path:
    """Returns a directory that is not there: a member that is tried again trains from nothing.

    The directory of the earlier attempt is removed.
    """
    number, path = 1, root / name
    shutil.rmtree(path, ignore_errors=True)
    while path.exists():
        number += 1
        path = root / f"{name}-{number}"
    return path


def _watch(
    process: subprocess.Popen[bytes],
    member: SuiteMember,
    call: SuiteCall,
    run_dir: Path,
    show: Callable[[], None],
) -> End:
    """Waits until the process ends, or until it is to be ended."""
    limit, shown = time.monotonic() + member.limit, 0.0
    while not _has_ended(process):
        now = time.monotonic()
        if call.stop.signal is not None:
            return "signal"
        if now >= call.deadline - call.grace:
            return "deadline"
        if now >= limit:
            return "limit"
        if now >= shown + 1.0:
            show()
            shown = now
            if member.kind == "score" and score_of(run_dir)["step"] is not None:
                return "reached"
        time.sleep(LOOKS)
    return "ended"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether it has ended, and leaves it unreaped: no other group takes its number."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def _terminate(process: subprocess.Popen[bytes], grace: float) -> None:
    """Asks the group to end, and waits for its first process."""
    _signal_group(process.pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while not _has_ended(process) and time.monotonic() < until:
        time.sleep(LOOKS / 4)


def _kill(process: subprocess.Popen[bytes]) -> int | None:
    """Kills what is left of the group; returns the exit status, None where it cannot be killed."""
    _signal_group(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=UNKILLABLE)
    return None


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _identity(pid: int) -> dict[str, float]:
    with contextlib.suppress(psutil.Error):
        return {"pid": pid, "created": psutil.Process(pid).create_time()}
    return {}


def settle(output: Path) -> None:
    """Kills what a killed suite left running, and counts it as failed.

    Comes before JAX starts here: such a member holds the memory of the devices. Raises `UserError`
    where another suite runs.
    """
    if not (output / RECORDS).is_dir():
        return
    with hold_directory(output, "--output", PARTS):
        for record in read(output).values():
            if record.state == "begun":
                end_orphan(record)
                reason = "its suite was killed while it ran"
                write(output, dataclasses.replace(record, state="failed", reason=reason))


def end_orphan(record: Record) -> None:
    """Kills the member that a suite left running, and waits for its end."""
    if not record.process:
        return
    pid, created = int(record.process["pid"]), record.process["created"]
    until = time.monotonic() + UNKILLABLE
    with contextlib.suppress(psutil.Error):
        orphan = psutil.Process(pid)
        if abs(orphan.create_time() - created) >= 1.0:
            return
        _signal_group(pid, signal.SIGKILL)
        while orphan.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(LOOKS / 4)
