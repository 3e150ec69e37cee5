"""Exit statuses, and errors in one line."""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxrl.errors import RunError, StorageError, UserError
from jaxrl.runs.files import STORAGE_ERRORS
from jaxrl.runs.paths import name_policies
from jaxrl.runtime.launch import Launch

if TYPE_CHECKING:
    from jaxrl.training.train import Outcome

DISK_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, *STORAGE_ERRORS)
# A file where a directory should be or the reverse, and names that no file can have.
PATH_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


def print_error(error: BaseException) -> int:
    """Prints an error in one line, and returns its exit status."""
    if isinstance(error, KeyboardInterrupt):
        print("jaxrl: stopped", file=sys.stderr)
        return 130
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f" '{error.filename}'" if error.filename else ""
        error = StorageError(f"cannot read or write{where}: {error.strerror}")
    elif isinstance(error, OSError) and error.errno in PATH_ERRORS and error.filename:
        error = UserError(f"cannot read or write '{error.filename}': {error.strerror}")
    if not isinstance(error, UserError | RunError):
        traceback.print_exception(error)
        return 1
    print(f"jaxrl: {' '.join(name_policies(error).split())}", file=sys.stderr)
    return error.status


def missing_devices(error: BaseException) -> UserError | None:
    """Returns the mistake where JAX cannot open the devices that JAX_PLATFORMS asks for."""
    frames = traceback.extract_tb(error.__traceback__)
    platforms = os.environ.get("JAX_PLATFORMS")
    if not platforms or not frames or not frames[-1].filename.endswith("xla_bridge.py"):
        return None
    return UserError(
        f"JAX_PLATFORMS = {platforms}: JAX finds no such device here: leave it unset, or take cpu"
    )


def run_together(launch: Launch, work: Callable[[bool], int]) -> int:
    """Joins the processes that train together, runs `work` in each, and returns its exit status.

    `work` takes whether this process is alone.
    """
    from jaxrl.runtime import processes

    processes.join(launch)
    if processes.count() == 1:
        return work(True)
    try:
        status = work(False)
    except BaseException as error:
        processes.find_lost(error)
        # A normal exit would wait for the others, who wait for this one.
        processes.leave(print_error(error), error)
    processes.finish()
    return status


def exit_status(outcome: "Outcome") -> int:
    """Returns the exit status of a training that ended, or was stopped by a signal."""
    return 0 if outcome.signal is None else 128 + outcome.signal
