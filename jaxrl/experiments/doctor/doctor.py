"""Checks of a machine, one after another, for `jaxrl doctor`.

Whatever can hang or kill a process runs in another one (`probes`), with a time limit, so
that it costs its own line only. Nothing heavy is imported here: a broken JAX is a finding too.
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
from pathlib import Path
from typing import Any

from jaxrl.experiments.doctor.host_checks import (
    Check,
    Mark,
    check_compilers,
    check_cores,
    check_devices,
    check_disk,
    check_memory,
    check_versions,
)
from jaxrl.experiments.doctor.machine import Machine

# Seconds that each probe may take, in their order; far more than any takes on two idle cores.
LIMITS = {
    "EnvPool": 90.0,
    "custom call": 90.0,
    "host callbacks": 90.0,
    "Atari 2600": 240.0,
    "Atari 2600 stream": 240.0,
    "Atari 2600 on GPU": 480.0,
    "gradients": 240.0,
    "overlapped order": 180.0,
    "learning": 240.0,
}
REMEDIES = {
    "EnvPool": "install it for this Python: pip install envpool (Linux on x86-64); "
    "Catch needs none",
    "custom call": "train with --env.interface callback, and look for another version of EnvPool "
    "or JAX",
    "host callbacks": "leave --env.interface at auto where there is a custom call, and look for "
    "another version of JAX",
    "Atari 2600": "install a C++ compiler (g++); until then env.engine = 'auto' takes EnvPool, "
    "which is slower",
    "Atari 2600 stream": "leave --env.interface at auto, which takes host callbacks",
    "Atari 2600 on GPU": "leave --env.interface at auto, which takes the emulator's threads",
    "gradients": "look for another version of JAX, its plugin or the driver; "
    "JAX_PLATFORMS=cpu trains on the CPU",
    "overlapped order": "train with --parallel.order strict, which loses nothing here; look for "
    "another version of JAX",
    "learning": "look for another version of JAX; --parallel.num-devices 1 and JAX_PLATFORMS=cpu "
    "say whether devices or their network are at fault",
}

COMMAND = (sys.executable, "-m", "jaxrl.experiments.doctor.probes")
SECONDS_TO_END = 5.0  # for a process that was killed, or has closed its output


# --- other processes -----------------------------------------------------------------------------


Answer = dict[str, Any]  # of a probe: mark, text, remedy, and more that other lines need


class _Process:
    """A process that runs probes and answers each with a line."""

    def __init__(self, names: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *names],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # no file: the disk may be full
            start_new_session=True,  # its children end with it
            # Most of a GPU's memory would be kept from a run beside it.
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._last = ""  # line of its errors that says something
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
        found: Answer = json.loads(line)
        return found

    def _end(self) -> str:
        """Says how the process ended: its signal or status, and its last line."""
        try:
            status = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            return "closed its output and does not end"
        self._listener.join(SECONDS_TO_END)  # its own children may hold the pipe
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
    """Runs probes one after another; where one ends its process, the next has a new one.

    Args:
      names: of LIMITS.
      show: called with the name of each before it runs.

    Yields:
      Each name with its answer, which has `seconds` too.
    """
    process: _Process | None = None
    try:
        for number, name in enumerate(names):
            show(name)
            began = time.perf_counter()
            process = process or _Process(names[number:])
            answer = process.answer(LIMITS[name])
            answer["seconds"] = time.perf_counter() - began
            if answer.pop("lost", False):
                process.close()
                process = None
            yield name, answer
    finally:
        if process is not None:
            process.close()


def _needed(name: str, machine: Machine) -> bool:
    """Returns whether training does not work here without what a probe checks."""
    has_custom_call = machine.platform not in (None, "tpu")
    if name == "EnvPool":
        return sys.platform.startswith("linux")  # elsewhere Catch is the only game
    if name == "custom call":
        return has_custom_call
    if name == "host callbacks":
        return not has_custom_call
    return name in ("gradients", "learning")


def _to_check(name: str, answer: Answer, machine: Machine) -> Check:
    mark: Mark = answer["mark"]
    needed = _needed(name, machine)
    if name == "EnvPool" and mark == "cross" and not needed:
        mark = "warning"
    remedy = "" if mark == "ok" else answer.get("remedy") or REMEDIES[name]
    return Check(name, mark, answer["text"], remedy, needed, round(answer["seconds"], 1))


def compare_frames(answers: dict[str, Answer], machine: Machine) -> Check:
    """Checks that all ways to the emulators gave the same frames, rewards and ends of games."""
    name = "equal frames"
    played = {way: answer["played"] for way, answer in answers.items() if answer.get("played")}
    if len(played) < 2:
        return Check(name, "warning", "cannot be determined: fewer than two ways play", "see above")
    (first, expected), *others = played.items()
    for way, steps in others:
        different = [
            step
            for step, pair in enumerate(zip(expected, steps, strict=True))
            if len(set(pair)) > 1
        ]
        if different:
            text = f"{way} and {first} differ from step {different[0]} on"
            return Check(name, "cross", text, REMEDIES[way], _needed(way, machine))
    text = f"{len(expected)} steps of {len(played)} ways: {', '.join(played)}"
    return Check(name, "ok", text, needed=True)


# --- all of it -----------------------------------------------------------------------------------


def diagnose(
    machine: Machine, directory: Path, show: Callable[[str], None]
) -> Generator[Check, None, None]:
    """Runs every check.

    Args:
      machine: described without its devices in this process (`describe_apart`).
      directory: that runs are to be written to.
      show: called with the name of each slow check.

    Yields:
      Each check as soon as it is done.
    """
    yield check_devices(machine)
    yield check_versions(machine)
    yield check_cores(machine)
    yield check_compilers(machine)
    yield check_memory(machine)
    yield check_disk(machine, directory)
    answers: dict[str, Answer] = {}
    # Without devices each of the others would wait for them in vain.
    names = tuple(LIMITS) if machine.platform is not None else ("EnvPool",)
    with contextlib.closing(ask(names, show)) as asked:
        for name, answer in asked:
            answers[name] = answer
            yield _to_check(name, answer, machine)
            if name == "host callbacks":
                yield compare_frames(answers, machine)
    for name in LIMITS:
        if name not in names:
            yield Check(name, "warning", "cannot be checked without devices", "see devices above")


def failures(checks: Sequence[Check]) -> list[Check]:
    """Returns the checks without which training does not work."""
    return [check for check in checks if check.mark == "cross" and check.needed]
