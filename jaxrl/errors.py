"""The errors that end a command with one line, each with its exit status.

The statuses follow sysexits.h where it has one: a script can see from them whether to try again.
"""

import difflib
import typing


class UserError(Exception):
    """A user's mistake: one line that names the mistake and the remedy."""

    status = 2


class RunError(Exception):
    """A failure of training that is no mistake of the user, in one line."""

    status = 1


class NotFiniteError(RunError):
    """A loss, a gradient or a parameter is not finite."""

    status = 3


class DamagedError(RunError):
    """Files of a run have changed since they were written (EX_DATAERR)."""

    status = 65


class StorageError(RunError):
    """The run directory cannot be written (EX_IOERR)."""

    status = 74


class EngineError(RunError):
    """The emulators failed or stopped answering; trying again helps (EX_TEMPFAIL)."""

    status = 75


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, or its name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def nearest(name: str, known: typing.Iterable[str], count: int = 3) -> list[str]:
    """Returns the known names most like `name`."""
    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.5)
