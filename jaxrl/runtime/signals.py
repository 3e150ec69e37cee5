"""Signals that stop training: after the first one it saves and ends, after the second at once.

Python runs its handlers between two steps of the main thread, which may wait a minute for a
compiled call. So a thread reads the signals from a pipe as they arrive, and ends the process. A
process that belongs to another program, as a notebook's, does not end: what cannot be saved goes to
the handler that was there before, which raises `KeyboardInterrupt` for Ctrl-C.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxrl.runtime import processes
from jaxrl.runtime.exit import exit_now, print_at_once, stopping

SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")
    if hasattr(signal, name)
)
Handlers = dict[int, Any]  # number of a signal -> its handler
ONE_PRESS = 1.0  # seconds within which the same signal again is no second one
HANGUP = getattr(signal, "SIGHUP", None)  # the terminal has gone


class StopSignal:
    """A flag that the first signal sets; training reads it, saves and ends."""

    def __init__(self, ends_process: bool = True) -> None:
        """Takes whether the process ends with training; else the caller goes on with it."""
        self._ends_process = ends_process
        self._end: Callable[[int], None] = lambda number: exit_now(128 + number)
        self.signal: int | None = None  # the first signal that any process got
        self._got: tuple[int, float] | None = None  # the first of this process, and when
        self.savable = False  # whether ending at once would lose training

    def agreed(self) -> bool:
        """Returns whether any process got a signal; all processes must call it together."""
        first = int(processes.agree(self.signal or 0).max())
        self.signal = first or self.signal  # a signal that came meanwhile counts at the next call
        return bool(first)

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if self._got is not None:
            first, since = self._got
            if number == first and now - since < ONE_PRESS:
                return  # `timeout` signals its child, and then the group that the child is in
            print_at_once("jaxrl: stopped at once; training since the newest checkpoint is lost")
            self._end(number)
        elif not self.savable and processes.count() == 1:
            print_at_once("jaxrl: stopped before training began; there was nothing to save")
            self._end(number)
        else:
            self.signal, self._got = number, (number, now)
            stopping.set()
            print_at_once("saving, then stopping; a second signal stops at once")

    @contextlib.contextmanager
    def watching(self) -> Iterator["StopSignal"]:
        """Installs handlers for the block; outside the main thread it installs none."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        installed = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: handler for number, handler in installed.items() if handler is not None}
        if before.get(HANGUP) == signal.SIG_IGN:  # nohup
            del before[HANGUP]
        watch = self._watching_from_thread if self._ends_process else self._watching_from_here
        with watch(before):
            yield self

    @contextlib.contextmanager
    def _watching_from_here(self, before: Handlers) -> Iterator[None]:
        """Notes signals in the main thread; those that cannot be saved go to their handlers."""

        def hand_on(number: int) -> None:
            signal.signal(number, before[number])
            signal.raise_signal(number)

        self._end = hand_on
        try:
            for number in before:
                signal.signal(number, lambda number, _: self._note(number))
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _watching_from_thread(self, before: Handlers) -> Iterator[None]:
        """Notes signals as they arrive, also during a compiled call."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)

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
                signal.signal(number, lambda *_: None)  # the thread reads it from the pipe
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup_before)
            os.close(writer)
            thread.join()
