"""`jaxrl doctor`."""

import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxrl.cli.streams import shows
from jaxrl.config.toml import load
from jaxrl.experiments.doctor.doctor import diagnose, failures
from jaxrl.experiments.doctor.host_checks import Check, Mark
from jaxrl.experiments.doctor.machine import Machine, describe_apart

SIGNS: dict[Mark, str] = {"ok": "✓", "warning": "!", "cross": "✗"}
ASCII_SIGNS: dict[Mark, str] = {"ok": "+", "warning": "!", "cross": "x"}
COLORS: dict[Mark, str] = {"ok": "green", "warning": "yellow", "cross": "bold red"}
NAME_WIDTH = 18


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check whether this machine can train, in a minute, and name a remedy for each fault.

    Devices, versions, cores, compilers, memory, replays and disk; EnvPool inside a compiled
    program, with equal frames by every way; gradients against the CPU's; the overlapped order; A2C
    on Catch until it is solved. Checks that can hang or crash run in separate processes. The status
    is 1 where training would not work.
    Example: jaxrl doctor --json
    """

    root: Path = Path("runs")
    """directory that runs are to be written to; nothing is left there"""
    config: Path | None = None
    """TOML file, or the stem of one in configs/ (btr), whose replay is to fit into memory; default
    is every one that has a replay"""
    json: bool = False
    """print one JSON object instead: the machine, and every check"""


def doctor(arguments: Doctor) -> int:
    """Prints every check as soon as it is made; the status is 1 where training would not work."""
    began = time.perf_counter()
    checks: list[Check] = []
    file = arguments.config
    configs = None if file is None else {file.stem: load(file)}
    errors = Console(stderr=True, highlight=False)
    with errors.status("checking devices ...") as status:
        machine = describe_apart()

        def show(name: str) -> None:
            status.update(f"checking {name} ...")

        with contextlib.closing(diagnose(machine, arguments.root, show, configs)) as results:
            for check in results:
                checks.append(check)
                if not arguments.json:
                    _print(check)
    seconds = time.perf_counter() - began
    failed = failures(checks)
    if arguments.json:
        print(json.dumps(_object(machine, checks, seconds)))
    else:
        works = (
            f"does not work here: {', '.join(c.name for c in failed)}" if failed else "works here"
        )
        print(f"training {works} ({seconds:.0f} s)")
    return int(bool(failed))


def _object(machine: Machine, checks: list[Check], seconds: float) -> dict[str, object]:
    return {
        "machine": dataclasses.asdict(machine),
        "checks": [dataclasses.asdict(check) for check in checks],
        "trains": not failures(checks),
        "seconds": round(seconds, 1),
    }


def _signs() -> dict[Mark, str]:
    """Returns the marks that standard output can show."""
    return SIGNS if shows("".join(SIGNS.values()), sys.stdout.encoding) else ASCII_SIGNS


def _print(check: Check) -> None:
    """Prints a check, and the remedy below it; in colors on a terminal."""
    sign, text = _signs()[check.mark], check.text
    if check.seconds:
        text += f" ({check.seconds:.0f} s)"
    console = Console(highlight=False)
    if not console.is_terminal:
        print(f"{sign} {check.name:<{NAME_WIDTH}}{text}")
        if check.remedy:
            print(f"  {'':<{NAME_WIDTH}}-> {check.remedy}")
        sys.stdout.flush()
        return
    table = Table.grid()
    table.add_column(width=2, style=COLORS[check.mark])
    table.add_column(width=NAME_WIDTH)
    table.add_column()
    table.add_row(sign, check.name, Text(text))
    if check.remedy:
        table.add_row("", "", Text(f"-> {check.remedy}", COLORS[check.mark]))
    console.print(table)
