"""Checks of a machine, one after another, for `jaxrl doctor`.

Whatever can hang or kill a process runs in another one (`jaxrl.probes`), with a time limit, so
that it costs its own line only. Nothing heavy is imported here: a broken JAX is a finding too.
"""

import contextlib
import dataclasses
import errno
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxrl.machine import Machine

Mark = Literal["ok", "warning", "cross"]


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the page."""

    name: str
    mark: Mark
    text: str
    remedy: str = ""  # for a warning or a cross
    needed: bool = False  # training on this machine does not work without it
    seconds: float = 0.0


# Seconds that each probe may take, in their order; far more than any takes on two idle cores.
LIMITS = {
    "EnvPool": 90.0,
    "custom call": 90.0,
    "host callbacks": 90.0,
    "gradients": 240.0,
    "overlapped order": 180.0,
    "learning": 240.0,
}
REMEDIES = {
    "EnvPool": "install it for this Python: pip install envpool (Linux on x86-64); "
    "Catch needs none",
    "custom call": "train with --engine callback, and look for another version of EnvPool or JAX",
    "host callbacks": "leave --engine at auto where there is a custom call, and look for another "
    "version of JAX",
    "gradients": "look for another version of JAX, its plugin or the driver; "
    "JAX_PLATFORMS=cpu trains on the CPU",
    "overlapped order": "train with --order strict, which loses nothing here; look for another "
    "version of JAX",
    "learning": "look for another version of JAX; --num-devices 1 and JAX_PLATFORMS=cpu say "
    "whether devices or their network are at fault",
}

# From the oldest to the newest that the tests have run with; more digits may follow.
TESTED = {
    "python": ("3.11", "3.13"),
    "jax": ("0.10", "0.12"),
    "jaxlib": ("0.10", "0.12"),
    "flax": ("0.12", "0.12"),
    "optax": ("0.2", "0.2"),
    "envpool": ("1.2.5", "1.2.7"),
    "numpy": ("2", "2"),
}
COMMAND = (sys.executable, "-m", "jaxrl.probes")
LEAST_MEMORY_GB = 2.0  # JAX, 16 emulators and a small agent
LEAST_DISK_GB = 2.0  # a run with its checkpoints and without a replay takes less
WRITTEN = 1 << 20  # bytes that the disk must take
SECONDS_TO_WRITE = 30.0  # them
SECONDS_TO_END = 5.0  # for a process that was killed, or has closed its output


# --- the host ------------------------------------------------------------------------------------


def check_devices(machine: Machine) -> Check:
    """Checks that JAX has devices, and that an accelerator is not left unused."""
    name, needed = "devices", True
    if machine.platform is None:
        remedy = (
            "python -c 'import jax; jax.devices()' says more; JAX_PLATFORMS=cpu needs no driver"
        )
        if asked := os.environ.get("JAX_PLATFORMS"):
            driver = "" if machine.driver else ", and no driver of NVIDIA's answers"
            remedy = (
                f"JAX_PLATFORMS={asked} names what JAX cannot start here{driver}: unset it, or "
                "install JAX for it: pip install -e '.[cuda]' (or '.[tpu]')"
            )
        return Check(name, "cross", f"JAX has none: {machine.device_error}", remedy, needed)
    text = f"{machine.platform}: {machine.num_devices} x {machine.device_kind}"
    if machine.device_memory_gb is not None:
        text += f", {machine.device_memory_gb:g} GB each for JAX"
    if machine.driver:
        text += f", driver {machine.driver}"
    if machine.driver and machine.platform == "cpu" and not os.environ.get("JAX_PLATFORMS"):
        remedy = (
            "install JAX for it, or a version that fits: pip install -e '.[cuda]' (or '.[tpu]')"
        )
        text += ": JAX does not use it"
        if machine.device_error:
            text += f" ({machine.device_error})"
        return Check(name, "warning", text, remedy, needed)
    return Check(name, "ok", text, needed=needed)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the digits of a version: 0.10.2.dev1 -> (0, 10, 2)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _is_tested(version: str, oldest: str, newest: str) -> bool:
    numbers, last = _numbers(version), _numbers(newest)
    return _numbers(oldest) <= numbers and numbers[: len(last)] <= last


def check_versions(machine: Machine) -> Check:
    """Checks versions against those that were tested, and that JAX's parts fit together."""
    versions = {"python": machine.python, **machine.versions}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    untested = [
        f"{name} {oldest} to {newest}" if oldest != newest else f"{name} {oldest}"
        for name, (oldest, newest) in TESTED.items()
        if name in versions and not _is_tested(versions[name], oldest, newest)
    ]
    jaxlib = versions.get("jaxlib")
    apart = [
        name
        for name, version in versions.items()
        if re.search(r"^jax-.*-(plugin|pjrt)$", name)
        and jaxlib
        and _numbers(version)[:3] != _numbers(jaxlib)[:3]
    ]
    remedies = []
    if untested:
        remedies.append(f"tested with {', '.join(untested)}: constraints.txt has such versions")
    if apart:
        remedies.append(f"give {' and '.join(apart)} the version of jaxlib, {jaxlib}")
    mark: Mark = "warning" if remedies else "ok"
    return Check("versions", mark, text, "; ".join(remedies))


def cpu_time_limit() -> float | None:
    """Returns the cores' worth of CPU time that the container may use; None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or no limit ("max")
        return None


def check_cores(machine: Machine) -> Check:
    """Checks that emulators and XLA have a core each, and that threads would not wait in turn."""
    name, text = "cores", f"{machine.cores} for this process, {machine.cpu or 'unknown CPU'}"
    limit = cpu_time_limit()
    if machine.cores == 1:
        remedy = "give it more (taskset, --cpus-per-task): emulators and XLA share this one"
        return Check(name, "warning", text, remedy)
    if limit is not None and limit < machine.cores:
        text += f"; CPU time of {limit:g}"
        remedy = (
            f"pin as many cores (--cpuset-cpus), or train with --num-threads {max(1, int(limit))}"
        )
        return Check(name, "warning", text, remedy)
    return Check(name, "ok", text)


def check_compilers(machine: Machine) -> Check:
    """Names the compilers; training needs none."""
    found = []
    for name, line in machine.compilers.items():
        version = re.search(r"\d+(\.\d+)+", line)
        found.append(f"{name} {version[0]}" if version else name)
    return Check("compilers", "ok", ", ".join(found) or "none found, and training needs none")


def check_memory(machine: Machine) -> Check:
    """Checks the host memory that is free."""
    free, total = machine.host_memory_free_gb, machine.host_memory_gb
    if free is None or total is None:
        remedy = "look for yourself: free --giga"
        return Check("host memory", "warning", "cannot be told", remedy)
    text = f"{free:g} of {total:g} GB free"
    if free < LEAST_MEMORY_GB:
        remedy = f"stop other programs: a small run takes {LEAST_MEMORY_GB:g} GB"
        return Check("host memory", "warning", text, remedy)
    return Check("host memory", "ok", text)


def _existing(directory: Path) -> Path:
    """Returns the directory, or the nearest one above it that exists."""
    directory = directory.absolute()
    return next(path for path in (directory, *directory.parents) if path.is_dir())


def _write(directory: Path) -> float:
    """Writes a file as a checkpoint is written, to the disk itself; returns the seconds."""
    began = time.perf_counter()
    descriptor, path = tempfile.mkstemp(prefix=".jaxrl-doctor-", dir=directory)
    try:
        try:
            left = memoryview(bytes(WRITTEN))
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.unlink(path)
    return time.perf_counter() - began


def _within(seconds: float, call: Callable[[], float]) -> float | None:
    """Returns what `call` returns, or None if it takes longer: a lost disk never answers."""
    found: list[float] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            found.append(call())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return found[0] if found else None


def check_disk(machine: Machine, directory: Path) -> Check:
    """Checks that the disk of the runs takes a file, and has room."""
    name, needed, place = "disk", True, directory
    remedy = "make room, or write runs elsewhere: --root here, --run-dir of training"
    try:
        place = _existing(directory)
        if directory.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = _within(SECONDS_TO_WRITE, lambda: _write(place))
    except OSError as error:
        text = f"'{place}' cannot be written: {error.strerror}"
        return Check(name, "cross", text, remedy, needed)
    if found is None:
        text = f"'{place}' takes no file within {SECONDS_TO_WRITE:g} s"
        return Check(name, "cross", text, remedy, needed)
    seconds = found
    free = shutil.disk_usage(place).free / 1e9
    text = f"{free:.1f} GB free in '{place}', 1 MB written in {1000 * seconds:.0f} ms"
    if free < LEAST_DISK_GB:
        remedy = "make room: checkpoints with a replay take several GB"
        return Check(name, "warning", text, remedy, needed)
    return Check(name, "ok", text, needed=needed)


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
            start_new_session=True,  # so that its own children end with it
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
      show: is told the name of each before it runs.

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
        return Check(name, "warning", "cannot be told: fewer than two ways play", "see above")
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
      show: is told the name of each check that takes its time.

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
