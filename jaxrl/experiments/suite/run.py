"""Runs the members of a suite, one after another, and keeps each result as soon as it is there.

A member is a process group with a time limit: one that hangs is ended with its children, one that
dies is named with its last line, and the others go on. The same suite again leaves out what is done
and tries last what failed (`records`).
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from jaxrl.errors import RunError, UserError
from jaxrl.experiments.doctor.machine import describe_apart
from jaxrl.experiments.suite import table
from jaxrl.experiments.suite.plan import SCORE, Measurement
from jaxrl.experiments.suite.records import (
    LOGS,
    RECORDS,
    RUNS,
    counted,
    expected,
    held,
    queue,
    read,
    write,
)
from jaxrl.experiments.suite.table import Record
from jaxrl.experiments.sweep import SignalRelay, last_line
from jaxrl.formatting import duration
from jaxrl.runs import metrics
from jaxrl.runs.directory import load_config

if TYPE_CHECKING:
    from jaxrl.training.display import Display

PROGRAM = (sys.executable, "-m", "jaxrl")
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
UNKILLABLE = 10.0  # seconds after which a killed process is left: a driver holds it
LOOKS = 0.2  # seconds between two looks at a member
# JAX would end its tracebacks with a note about them, instead of the error.
ENVIRONMENT = {"JAX_TRACEBACK_FILTERING": "off"}
TOLD = 100_000  # bytes at the end of a log in which an error is looked for
ERROR = re.compile(r"RESOURCE_EXHAUSTED|^jaxrl: (?!warning)|^\S*(Error|Exception)\b")

End = Literal["ended", "limit", "deadline", "signal", "reached"]


@dataclass(frozen=True)
class Session:
    """One call of the suite."""

    output: Path
    size: str
    machine: dict[str, Any]  # as `machine.Machine` has it
    deadline: float  # of time.monotonic, by which all has ended
    stop: SignalRelay
    grace: float = GRACE


def probe() -> dict[str, Any]:
    """Returns the machine, as a short-lived process sees it. Raises `RunError` without devices."""
    found = dataclasses.asdict(describe_apart())
    if found["platform"] is None:
        raise RunError(f"JAX has no devices ({found['device_error']}): see `jaxrl doctor`")
    return found


def run(
    members: list[Measurement],
    session: Session,
    display: "Display",
    only: list[Measurement] | None = None,
) -> dict[str, Record]:
    """Measures until all is done, the time is up or a signal comes; returns the records by name.

    Args:
      members: the whole suite, which the table lists.
      session: where, and until when.
      display: shows each member.
      only: those to try; all without.
    """
    output, records = session.output, read(session.output)
    table.write(output, members, records, session.machine, session.size)
    waiting = queue(only or members, records, named=only is not None)
    passed = 0
    for place, member in enumerate(waiting, start=1):
        label = f"[{place}/{len(waiting)}] {member.name}"
        left = session.deadline - session.grace - time.monotonic()
        seconds = expected(member, members, records)
        if session.stop.signal is not None:
            break
        if seconds > left:
            passed += 1
            continue
        display.say(f"{label}: {member.command}")
        before = counted(member, records)
        record = _measure(member, session, before, _shower(display, label))
        display.show("")
        stopped = record.state == "stopped"
        kept = before if before and before.state == "done" and stopped else record
        records[member.name] = kept
        write(output, kept)
        table.write(output, members, records, session.machine, session.size)
        display.say(f"{label}: {table.outcome(record)} ({duration(record.seconds)})")
    if passed:
        display.say(f"{passed} not begun: they would not have ended in time")
    return records


def _shower(display: "Display", label: str) -> Callable[[Path], None]:
    def show(log: Path) -> None:
        display.show(f"{label}  {last_line(log)}")

    return show


# --- one member -----------------------------------------------------------------------------------


def _measure(
    member: Measurement, session: Session, before: Record | None, show: Callable[[Path], None]
) -> Record:
    attempts = 0 if before is None or before.state == "done" else before.attempts
    log = session.output / LOGS / f"{member.name}.log"
    printed = log.with_suffix(".out")
    run_dir = _new_run_dir(session.output / RUNS, member.name)
    words = [*PROGRAM, *member.arguments, *_unseen(member, run_dir)]
    record = Record(
        name=member.name,
        kind=member.kind,
        size=session.size,
        command=member.command,
        state="begun",
        attempts=attempts + 1,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=session.machine.get("commit"),
        machine=session.machine,
    )
    began = time.monotonic()
    with log.open("wb") as errors, printed.open("wb") as results:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=results, stderr=errors,
            start_new_session=True, env=os.environ | ENVIRONMENT,
        )  # fmt: skip
    try:
        write(session.output, dataclasses.replace(record, process=_identity(process.pid)))
        how = _watch(process, member, session, run_dir, lambda: show(log))
        said = last_line(log)  # before it is asked to end, and says so
        if how != "ended":
            _terminate(process, session.grace)
    finally:
        status = _kill(process)
    seconds = round(time.monotonic() - began, 1)
    record = dataclasses.replace(record, exit_status=status, seconds=seconds)
    if how == "limit":
        record = dataclasses.replace(record, reason=f"no end within {member.limit:.0f} s: {said}")
    elif how == "ended":
        record = dataclasses.replace(record, reason=f"{_named(status)}: {_error(log) or 'no word'}")
    if member.kind == "rates":
        return _rates(record, how, printed)
    return _score(record, how, run_dir)


def _unseen(member: Measurement, run_dir: Path) -> list[str]:
    """Returns the options that no person needs to repeat the member."""
    if member.kind == "rates":
        return ["--json"]
    return ["--run-dir", str(run_dir), "--num-processes", "1"]


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
    member: Measurement,
    session: Session,
    run_dir: Path,
    show: Callable[[], None],
) -> End:
    """Waits until the process ends, or until it is to be ended."""
    limit, shown = time.monotonic() + member.limit, 0.0
    while not _has_ended(process):
        now = time.monotonic()
        if session.stop.signal is not None:
            return "signal"
        if now >= session.deadline - session.grace:
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
    """Returns whether it has ended; unreaped, so that no other group takes its number."""
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
    with held(output):
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


# --- its result -----------------------------------------------------------------------------------


def _named(status: int | None) -> str:
    """Returns how a process ended."""
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"status {status}"


def _error(log: Path) -> str:
    """Returns the line of a log that names its last error, or else its last line."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TOLD))
        lines = file.read().decode(errors="replace").split("\n")
    told = next((line for line in reversed(lines) if ERROR.search(line)), None)
    return last_line(log) if told is None else "".join(c for c in told if c.isprintable()).strip()


def _rates(record: Record, how: End, printed: Path) -> Record:
    """Returns the record with the object that `bench --json` has printed."""
    if how != "ended" or record.exit_status != 0:
        return _without_result(record, how)
    for line in reversed(printed.read_text(encoding="utf-8", errors="replace").splitlines()):
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            if isinstance(result, dict):
                return _done(record, result)
    return dataclasses.replace(record, state="failed", reason="printed no result")


def _score(record: Record, how: End, run_dir: Path) -> Record:
    """Returns the record with the steps and seconds to SCORE, or with how far it came."""
    found = score_of(run_dir)
    ran_out = how == "limit" and found["steps"] > 0
    if found["step"] is not None or ran_out or (how == "ended" and record.exit_status == 0):
        return _done(record, found)
    return dataclasses.replace(_without_result(record, how), result=found)


def _done(record: Record, result: dict[str, Any]) -> Record:
    return dataclasses.replace(record, state="done", reason="", result=result)


def _without_result(record: Record, how: End) -> Record:
    """Returns the record as stopped by the suite, or as failed."""
    if how not in ("signal", "deadline"):
        return dataclasses.replace(record, state="failed")
    why = "stopped by a signal" if how == "signal" else "the time was up"
    attempts = record.attempts - 1  # it has not failed
    return dataclasses.replace(record, state="stopped", attempts=attempts, reason=why)


def score_of(run_dir: Path) -> dict[str, Any]:
    """Returns when the mean of 100 games first reached SCORE, and how far the run came.

    `step`, `frames` and `seconds` (of training, without compilation) are None where it has not.
    Means of first games, which favor short ones, do not count.
    """
    try:
        rows = metrics.read(run_dir)
    except UserError:  # none yet, or a line is half written
        rows = []
    try:
        num_envs = load_config(run_dir).num_envs
    except UserError:
        num_envs = 1
    first_games = metrics.of_first_games(rows, num_envs, restorable=False)
    fair = [
        row
        for row, first in zip(rows, first_games, strict=True)
        if row["return_mean"] is not None and not first
    ]
    reached = next((row for row in fair if row["return_mean"] >= SCORE), None)
    last = rows[-1] if rows else {}
    return {
        "score": SCORE,
        **{key: reached and reached[key] for key in ("step", "frames", "seconds")},
        "best": max((row["return_mean"] for row in fair), default=None),
        "steps": last.get("step", 0),
        "trained_seconds": last.get("seconds", 0.0),
        "games": last.get("episodes") or 0,
        "compile_seconds": rows[0].get("compile_seconds") if rows else None,
    }
