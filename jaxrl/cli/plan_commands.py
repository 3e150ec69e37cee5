"""The parts that `jaxrl sweep` and `jaxrl search` share: their table and stop."""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxrl.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 140  # columns of a table where no terminal has a width


def check_platform(command: str) -> None:
    """Refuses systems without process groups and signals. Raises `UserError`."""
    if os.name != "posix":
        raise UserError(f"{command} needs Linux or macOS: train the runs one by one")


def print_table(table: "Table") -> None:
    """Prints a table on standard output, in the width of a terminal where there is one."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def print_stopped(command: str, words: Sequence[str], number: int) -> int:
    """Prints how to continue after a signal, and returns the exit status."""
    print(f"stopped; go on with: {shlex.join(['jaxrl', command, *words])}", file=sys.stderr)
    return 128 + number
