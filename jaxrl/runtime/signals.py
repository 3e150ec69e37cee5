"""Signals that stop training: the first one saves, then ends; the second ends at once.

Python runs its handlers between two steps of the main thread, which may wait for a compiled call
of a minute. So a thread reads the signals from a pipe as they come.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from jaxrl.runtime import processes
from jaxrl.runtime.exit import exit_now, print_at_once

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
)


class StopSignal:
    """Notes the first signal, so that training saves and ends."""

    def __init__(self) -> None:
        self.signal: int | None = None  # that any process was sent
        self._here = False  # whether this one was
        self.savable = False  # whether ending at once would lose what was trained

    def agreed(self) -> bool:
        """Whether any process was told to stop; all of them ask together."""
        told = int(processes.agree(self.signal or 0).max())
        self.signal = told or self.signal  # one that came meanwhile waits for the next time
        return bool(told)

    def _note(self, number: int) -> None:
        if self._here:
            print_at_once(
                "jaxrl: stopped at once; what was trained since the newest checkpoint is lost"
            )
            exit_now(128 + number)
        if not self.savable and processes.count() == 1:
            print_at_once("jaxrl: stopped before training began; nothing was to be saved")
            exit_now(128 + number)
        self.signal, self._here = number, True
        print_at_once("saving, then stopping; once more stops at once")

    @contextlib.contextmanager
    def watching(self) -> Iterator["StopSignal"]:
        """Handlers are put back at the end; outside the main thread there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        found = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: handler for number, handler in found.items() if handler is not None}

        def read() -> None:
            while numbers := os.read(reader, 16):
                for number in numbers:
                    if number in before:
                        self._note(number)
            os.close(reader)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            for number in before:
                signal.signal(number, lambda *_: None)  # the thread hears of it by the pipe
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup_before)
            os.close(writer)
            thread.join()
