"""Ends the process from any thread: its main thread may be deep in compiled code."""

import contextlib
import os
from typing import NoReturn

SHOW_CURSOR = b"\x1b[?25h"  # a live display hides it


def print_at_once(line: str) -> None:
    """One line on standard error, in one piece; it may come in the middle of another print."""
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + f"\n{line}\n".encode())


def exit_now(status: int) -> NoReturn:
    """Ends at once: nothing is waited for, nothing more is written."""
    os._exit(status)
