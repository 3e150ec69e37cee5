"""What ends a command in one line, and the exit status of each.

The statuses follow sysexits.h where it has one, so that a script can tell what to try again.
"""

import difflib
import typing


class UserError(Exception):
    """A user's mistake: one line that names the mistake and the remedy."""

    status = 2


class RunError(Exception):
    """What ends training though nothing wrong was asked for, in one line."""

    status = 1


class NotFiniteError(RunError):
    """A loss, a gradient or a parameter is not a number any more."""

    status = 3


class DamagedError(RunError):
    """Files of a run are not what was written (EX_DATAERR)."""

    status = 65


class StorageError(RunError):
    """The run directory cannot be written (EX_IOERR)."""

    status = 74


class EngineError(RunError):
    """The emulators failed or stopped answering; trying again helps (EX_TEMPFAIL)."""

    status = 75


def nearest(name: str, known: typing.Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`."""
    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.5)
