"""Ends the process from any thread, because the main thread may be inside compiled code."""

import contextlib
import os
import threading
from typing import NoReturn

# Set when this process got a signal that stops training: a parent that dies later is no second one.
stopping = threading.Event()
SHOW_CURSOR = b"\x1b[?25h"  # a live display hides it


def print_at_once(line: str) -> None:
    """Writes one line to standard error in one piece, even in the middle of another print."""
    with contextlib.suppress(OSError):  # the reader is gone
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + f"\n{line}\n".encode())


def exit_now(status: int) -> NoReturn:
    """Ends the process at once, without waiting or writing anything."""
    os._exit(status)
