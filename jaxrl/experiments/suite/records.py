"""Records of a suite's members, and the members to try next.

OUTPUT/members/NAME.json has the record of a member, written whole.
"""

import contextlib
import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jaxrl.errors import UserError
from jaxrl.experiments.suite.plan import Kind, SuiteMember
from jaxrl.runs.files import check_is_directory, replace_text

RECORDS, LOGS, RUNS = PARTS = ("members", "logs", "runs")  # directories of a suite
ATTEMPTS = 2  # attempts at a member that fails, each in another call
# Positions in the queue. A stopped member comes after new ones: if it is slower than expected, it
# would take the time of every call. A begun member took its suite down.
ORDER = {"new": 0, "stopped": 1, "failed": 2, "begun": 2, "done": 3}
SAME = ("platform", "device_kind", "num_devices", "cpu", "cores")  # equal on the same machine

State = Literal["begun", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Record:
    """The progress and result of a member, in plain values of JSON."""

    name: str
    kind: Kind
    size: str
    command: str
    state: State  # begun: in progress, or its suite was killed
    attempts: int  # that failed, or are in progress
    date: str
    commit: str | None
    machine: dict[str, Any]
    reason: str = ""  # why there is no result
    exit_status: int | None = None  # negative: the signal
    seconds: float = 0.0  # that the process took
    result: dict[str, Any] = field(default_factory=dict)
    process: dict[str, float] = field(default_factory=dict)  # pid and time of creation


def read(output: Path) -> dict[str, Record]:
    """Returns the records by name; those that cannot be read are left out."""
    records: dict[str, Record] = {}
    for path in sorted((output / RECORDS).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            record = Record(**json.loads(path.read_text(encoding="utf-8")))
            records[record.name] = record
    return records


def write(output: Path, record: Record) -> None:
    """Writes the record of a member, whole or not at all."""
    text = json.dumps(dataclasses.asdict(record), indent=2)
    replace_text(output / RECORDS / f"{record.name}.json", text + "\n")


def check_output(output: Path, size: str, machine: dict[str, Any]) -> None:
    """Refuses a directory that holds something else. Raises `UserError`."""
    check_is_directory(output, "--output")
    if output.is_dir() and any(output.iterdir()) and not (output / RECORDS).is_dir():
        raise UserError(f"'{output}' holds no suite: choose another --output")
    for record in read(output).values():
        if any(record.machine.get(key) != machine.get(key) for key in SAME):
            raise UserError(f"'{output}' is of another machine: choose another --output")
        if record.size != size:
            raise UserError(
                f"'{output}' holds results of size {record.size}: add --size {record.size}, or "
                "choose another --output"
            )


# --- which is next --------------------------------------------------------------------------------


def counted(member: SuiteMember, records: dict[str, Record]) -> Record | None:
    """Returns the record of a member; None where its command differs, as an older version's."""
    record = records.get(member.name)
    return record if record is not None and record.command == member.command else None


def queue(
    members: list[SuiteMember], records: dict[str, Record], named: bool = False
) -> list[SuiteMember]:
    """Returns the members to try: new ones first, then those stopped, then those that failed.

    Members that are `named` are tried in every call, also those that are done.
    """
    states = {m.name: record.state if (record := counted(m, records)) else "new" for m in members}

    def is_due(member: SuiteMember) -> bool:
        state = states[member.name]
        if named or state in ("new", "stopped"):
            return True
        return state != "done" and records[member.name].attempts < ATTEMPTS

    return sorted(filter(is_due, members), key=lambda member: ORDER[states[member.name]])


def expected(member: SuiteMember, members: list[SuiteMember], records: dict[str, Record]) -> float:
    """Returns the seconds that a member will take; for `bench` at the machine's pace so far.

    One that was stopped begins from nothing: it needs more than it had.
    """
    before = counted(member, records)
    if before is not None and before.state == "stopped":
        return max(member.seconds, min(member.limit, 1.5 * before.seconds))
    if member.kind != "rates":
        return member.seconds
    took = [
        record.seconds / other.seconds
        for other in members
        if (record := records.get(other.name)) and record.state == "done" and other.kind == "rates"
    ]
    pace = statistics.median(took) if took else 1.0
    return member.seconds * min(max(pace, 0.5), 3.0)
