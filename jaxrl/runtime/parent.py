"""A process that ends with its parent, also when that is killed."""

import os
import signal
import threading
import time

from jaxrl.runtime.exit import stopping

VARIABLE = "JAXRL_PARENT"  # environment variable: the parent's process number
INTERVAL = 0.5  # seconds between two looks


def end_with_parent() -> None:
    """Lets this process save and end, as after SIGTERM, when the parent that asks for it dies.

    A process that is saving already goes on doing so.

    Linux's own PR_SET_PDEATHSIG would send a signal as each thread of the parent dies, and a second
    one ends training unsaved.
    """
    if parent := os.environ.pop(VARIABLE, ""):
        threading.Thread(target=_wait_and_end, args=(int(parent),), daemon=True).start()


def _wait_and_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(INTERVAL)
    if not stopping.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
