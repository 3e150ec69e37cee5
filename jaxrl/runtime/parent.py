"""A process that ends with its parent, also when that is killed."""

import contextlib
import ctypes
import os
import signal

VARIABLE = "JAXRL_PARENT"  # of the environment: the parent's process number
PR_SET_PDEATHSIG = 1  # of Linux, prctl(2)


def end_with_parent() -> None:
    """Lets this process save and end, as after SIGTERM, when the parent that asks for it dies."""
    parent = os.environ.pop(VARIABLE, "")
    if not parent:
        return
    with contextlib.suppress(OSError, AttributeError):  # only Linux tells children
        ctypes.CDLL("libc.so.6").prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before
        os.kill(os.getpid(), signal.SIGTERM)
