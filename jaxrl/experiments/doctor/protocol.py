"""The probes of `jaxrl doctor`, which run in a process that may hang or die.

`python -m jaxrl.experiments.doctor.protocol NAME ...` answers each with one line of JSON on
standard output, or with nothing if it crashes or hangs. Nothing heavy is imported here: a broken
JAX is a result too.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from typing import NamedTuple, TypedDict

from jaxrl.experiments.doctor.host_checks import Mark
from jaxrl.experiments.doctor.machine import Machine

COMMAND = (sys.executable, "-m", "jaxrl.experiments.doctor.protocol")
SECONDS_TO_END = 5.0  # for a process that was killed, or has closed its output


class Answer(TypedDict, total=False):
    """The answer of a probe."""

    mark: Mark
    text: str
    remedy: str  # in place of the probe's
    played: list[int]  # checksums of the steps, to compare with other ways to the emulators
    seconds: float
    lost: bool  # whether the process has ended instead


def _plays_atari(_: Machine) -> bool:
    return sys.platform.startswith("linux")  # elsewhere Catch is the only game


def _has_custom_call(machine: Machine) -> bool:
    return machine.platform not in (None, "tpu")


class Probe(NamedTuple):
    """A probe and its limit."""

    run: str  # module:function, which returns an `Answer`
    seconds: float  # time limit; far more than any takes on two idle cores
    remedy: str
    needed: Callable[[Machine], bool] = lambda _: False  # whether training depends on it


# In their order.
PROBES = {
    "EnvPool": Probe(
        "emulators:envpool",
        90.0,
        "install it for this Python: pip install envpool (Linux on x86-64); Catch needs none",
        _plays_atari,
    ),
    "custom call": Probe(
        "emulators:custom_call",
        90.0,
        "train with --env.interface callback, and look for another version of EnvPool or JAX",
        _has_custom_call,
    ),
    "host callbacks": Probe(
        "emulators:host_callbacks",
        90.0,
        "leave --env.interface at auto where there is a custom call, and look for another version "
        "of JAX",
        lambda machine: not _has_custom_call(machine),
    ),
    "Atari 2600": Probe(
        "emulators:atari2600",
        240.0,
        "install a C++ compiler (g++); until then env.engine = 'auto' takes EnvPool, which is "
        "slower",
    ),
    "Atari 2600 stream": Probe(
        "emulators:atari2600_stream",
        240.0,
        "leave --env.interface at auto, which takes host callbacks",
    ),
    "Atari 2600 on GPU": Probe(
        "emulators:atari2600_gpu",
        480.0,
        "leave --env.interface at auto, which takes the emulator's threads",
    ),
    "gradients": Probe(
        "gradients:compare",
        240.0,
        "look for another version of JAX, its plugin or the driver; JAX_PLATFORMS=cpu trains on "
        "the CPU",
        lambda _: True,
    ),
    "overlapped order": Probe(
        "probes:overlapped_order",
        180.0,
        "train with --parallel.order strict, which loses nothing here; look for another version of "
        "JAX",
    ),
    "learning": Probe(
        "probes:learning",
        240.0,
        "look for another version of JAX; --parallel.num-devices 1 and JAX_PLATFORMS=cpu say "
        "whether devices or their network are at fault",
        lambda _: True,
    ),
}


# --- the caller -----------------------------------------------------------------------------------


class _Process:
    """A process that runs probes and answers each with a line."""

    def __init__(self, names: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *names],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # no file: the disk may be full
            start_new_session=True,  # its children end with it
            # JAX would reserve most of a GPU's memory, which a run beside it needs.
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._last = ""  # line of its errors that has text
        threading.Thread(target=self._read, daemon=True).start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last = line.decode(errors="replace").strip() or self._last

    def answer(self, seconds: float) -> Answer:
        """Returns the next answer, or how the process ended instead."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.close()
            return {"lost": True, "mark": "cross", "text": f"no answer within {seconds:g} s"}
        if line is None:
            return {"lost": True, "mark": "cross", "text": self._end()}
        answer: Answer = json.loads(line)
        return answer

    def _end(self) -> str:
        """Returns how the process ended: its signal or status, and its last line."""
        try:
            status = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            return "closed its output and does not end"
        self._listener.join(SECONDS_TO_END)  # the process's children may hold the pipe
        how = f"ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        return f"{how}: {self._last}" if self._last else how

    def close(self) -> None:
        """Ends the process, whatever it is doing, and those that it started."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:  # Windows
                    self._process.kill()
            # One that waits for a dead disk or driver cannot be killed; it must not hold us up.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ask(
    names: Sequence[str], show: Callable[[str], None]
) -> Generator[tuple[str, Answer], None, None]:
    """Runs probes of PROBES one after another; yields each name with its answer and its seconds.

    Where a probe ends the process, the next has a new process. `show` is called with each name
    before.
    """
    process: _Process | None = None
    try:
        for number, name in enumerate(names):
            show(name)
            began = time.perf_counter()
            process = process or _Process(names[number:])
            answer = process.answer(PROBES[name].seconds)
            answer["seconds"] = time.perf_counter() - began
            if answer.pop("lost", False):
                process.close()
                process = None
            yield name, answer
    finally:
        if process is not None:
            process.close()


# --- the process of the probes --------------------------------------------------------------------


def run(name: str) -> Answer:
    """Runs one probe; an error is its answer."""
    module, _, function = PROBES[name].run.partition(":")
    try:
        answer: Answer = getattr(import_module(f"{__package__}.{module}"), function)()
        return answer
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "envpool":
            text = "cannot be determined without EnvPool"
            return {"mark": "warning", "text": text, "remedy": "install EnvPool first"}
        text = " ".join(str(error).split())[:200]
        return {"mark": "cross", "text": f"{type(error).__name__}: {text}"}


def _end_with_parent() -> None:
    """Ends this process when standard input is closed: whoever started it is gone."""
    with contextlib.suppress(OSError):
        sys.stdin.buffer.read()
    os._exit(1)


def main(names: list[str]) -> None:
    """Answers on standard output, which nothing else writes to."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in names:
        print(json.dumps(run(name)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads of a broken driver or of callbacks must not keep the process.
    sys.stderr.flush()
    os._exit(0)
