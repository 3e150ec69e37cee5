"""`jaxrl bench --suite`."""

import dataclasses
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jaxrl.cli.parsing import Words, at_least
from jaxrl.config import toml
from jaxrl.errors import UserError

if TYPE_CHECKING:
    from jaxrl.experiments.suite.plan import SuiteMember
    from jaxrl.experiments.suite.records import Record


@dataclasses.dataclass(frozen=True)
class Suite:
    """Measure everything that a machine can do, most valuable first, in a limited time.

    Each member is a `jaxrl` command in a process with a time limit. One that hangs or dies is
    named with its last line, and the others go on. The same command again goes on where the first
    ended, and tries last what failed, once more. OUTPUT/results.md has the table, results.json the
    figures, logs/ the output of each member. Without an accelerator all is smaller.
    Run it where configs/ is.
    Example: jaxrl bench --suite --minutes 9
    """

    minutes: float = 9.0
    """minutes in which it ends; what does not fit is not begun"""
    output: Path = Path("suite")
    """directory of the results"""
    only: tuple[str, ...] = ()
    """members to measure, those that are done too; default is all"""
    list: bool = False
    """list the members in their order, and how far they are; measure nothing"""
    size: Literal["auto", "small", "full"] = "auto"
    """full for an accelerator, small to try it out; auto chooses"""
    words: Words = ()


def suite(arguments: Suite) -> int:
    """Measures the members of the suite that fit into the time."""
    began = time.monotonic()
    at_least("minutes", arguments.minutes, 0.01)
    from jaxrl.experiments.doctor import replays
    from jaxrl.experiments.runner import SignalRelay
    from jaxrl.experiments.suite import plan, run
    from jaxrl.experiments.suite.records import PARTS, check_output, read
    from jaxrl.runs.lock import hold_directory
    from jaxrl.training.display import Display

    if "--only" in arguments.words and not arguments.only:
        raise UserError("--only needs names: jaxrl bench --suite --list has them")
    if not arguments.list:
        run.settle(arguments.output)
    machine = run.probe()
    _check_accelerator(arguments.size, machine)
    size = plan.size_of(arguments.size, machine["platform"])
    nvidia = machine["platform"] == "gpu" and plan.custom_call(machine)
    members = plan.plan(size, machine["num_devices"], plan.custom_call(machine), nvidia)
    only = plan.chosen(members, arguments.only)
    for member in members:
        toml.load(Path(member.recipe))
    check_output(arguments.output, size.name, machine)
    # Its members time small replays: a training takes more.
    held = replays.check_replays(machine, replays.recipes())
    if arguments.list:
        list_suite(only, read(arguments.output))
        print(replays.line(held))
        return 0
    with hold_directory(arguments.output, "--output", PARTS), SignalRelay().watching() as stop:
        deadline = began + 60 * arguments.minutes
        call = run.SuiteCall(arguments.output, size.name, machine, deadline, stop)
        with Display() as display:
            if held.mark != "ok":
                display.say(replays.line(held))
            records = run.run(members, call, display, only if arguments.only else None)
        return summary(only, records, call, ["--suite", *arguments.words])


def list_suite(members: "list[SuiteMember]", records: "dict[str, Record]") -> None:
    """Prints the members in their order, with the state of each."""
    from jaxrl.experiments.suite.records import counted

    for number, member in enumerate(members, start=1):
        record = counted(member, records)
        state = record.state if record else "new"
        print(
            f"{number:>4}  {state:<7} {member.seconds:>4.0f} s  {member.name:<18} {member.command}"
        )


def summary(
    members: "list[SuiteMember]", records: "dict[str, Record]", call: Any, arguments: list[str]
) -> int:
    """Prints each result and how to go on; returns the exit status."""
    from jaxrl.experiments.suite import table
    from jaxrl.experiments.suite.records import queue

    measured = [records[member.name] for member in members if member.name in records]
    for record in measured:
        print(f"{record.name:<18} {table.outcome(record)}")
    print(call.output / table.TABLE)
    left = [member.name for member in queue(members, records)]
    if left:
        again = shlex.join(["jaxrl", "bench", *_only_left(arguments, left)])
        print(f"left: {', '.join(left)}; go on with: {again}", file=sys.stderr)
    if call.stop.signal is not None:
        return 128 + int(call.stop.signal)
    return int(any(record.state == "failed" for record in measured))


def _only_left(arguments: list[str], left: list[str]) -> list[str]:
    """Returns the arguments with the members that are left after `--only`, if they have it."""
    if "--only" not in arguments:
        return arguments
    others, named = [], False
    for word in arguments:
        named = word == "--only" if word.startswith("--") else named
        if not named:
            others.append(word)
    return [*others, "--only", *left]


def _check_accelerator(size: str, machine: dict[str, Any]) -> None:
    """Refuses to measure a CPU where an accelerator is meant. Raises `UserError`."""
    meant = machine.get("driver") and size == "auto" and not os.environ.get("JAX_PLATFORMS")
    if meant and machine["platform"] == "cpu":
        raise UserError("JAX does not use the accelerator: see `jaxrl doctor`, or add --size small")
