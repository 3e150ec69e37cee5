"""Ends the process if a call exceeds its deadline, as when the emulators stop answering."""

import contextlib
import threading
import time
from collections.abc import Iterator

from jaxrl.errors import EngineError
from jaxrl.runtime.exit import exit_now, print_at_once

LOOK = 0.5  # seconds between two looks at the clock


class Watchdog:
    """A thread that ends the process if a call of the main thread takes too long.

    The main thread waits inside compiled code, which nothing can interrupt: only the process can
    end. Every checkpoint is either complete or absent.
    """

    def __init__(self, patience: float, advice: str = "") -> None:
        """Starts the thread, unless `patience`, in seconds, is 0; `advice` ends its message."""
        self._patience, self._advice = patience, advice
        self._expected: tuple[str, float] | None = None  # the awaited thing and its seconds
        self._waited = 0.0  # seconds, without those when this process was stopped
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        if patience:
            self._thread.start()

    @contextlib.contextmanager
    def expecting(self, what: str, at_least: float = 0.0) -> Iterator[None]:
        """Ends the process if the block takes longer than the patience and `at_least` seconds."""
        self._waited = 0.0
        self._expected = (what, max(self._patience, at_least))
        try:
            yield
        finally:
            self._expected = None

    def _look(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(LOOK):
            now, before = time.monotonic(), last
            last = now
            expected = self._expected
            self._waited += min(now - before, 4 * LOOK)
            if expected is None or self._waited <= expected[1]:
                continue
            print_at_once(
                f"jaxrl: {expected[0]} did not answer for {expected[1]:.0f} seconds (stuck_after)"
                f"{self._advice}"
            )
            exit_now(EngineError.status)

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
