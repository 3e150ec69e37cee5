"""The standard streams: closed ones, and those that cannot show every character."""

import io
import os
import sys

STREAMS = ("stdin", "stdout", "stderr")  # by their numbers


def prepare() -> None:
    """Opens closed streams on nothing, and lets output escape what its encoding does not have."""
    for number in range(len(STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise a file of the run gets the number, and what libraries print goes into it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in enumerate(STREAMS):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it


def shows(text: str, encoding: str | None) -> bool:
    """Returns whether a stream of this encoding can show a text."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
