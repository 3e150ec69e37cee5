"""Checks of the host, for `jaxrl doctor`: devices, versions, cores, compilers, memory, disk.

JAX is not imported: a broken one is a result too.
"""

import dataclasses
import errno
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from jaxrl.experiments.doctor.machine import Machine
from jaxrl.runtime import cpus, native_library

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
LEAST_MEMORY_GB = 2.0  # JAX, 16 emulators and a small agent
LEAST_DISK_GB = 2.0  # a run with its checkpoints and without a replay takes less
WRITTEN = 1 << 20  # bytes that the disk must take
SECONDS_TO_WRITE = 30.0  # that the disk may take for them


def check_devices(machine: Machine) -> Check:
    """Checks that JAX has devices, and that an accelerator is not left unused."""
    name, needed = "devices", True
    if machine.platform is None:
        remedy = (
            "python -c 'import jax; jax.devices()' says more; JAX_PLATFORMS=cpu needs no driver"
        )
        if platforms := os.environ.get("JAX_PLATFORMS"):
            driver = "" if machine.driver else ", and no driver of NVIDIA's answers"
            remedy = (
                f"JAX_PLATFORMS={platforms} names what JAX cannot start here{driver}: unset it, or "
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
    digits = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, digits[0].split("."))) if digits else ()


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
        remedies.append(f"tested with {', '.join(untested)}: constraints/ has such versions")
    if apart:
        remedies.append(f"give {' and '.join(apart)} the version of jaxlib, {jaxlib}")
    mark: Mark = "warning" if remedies else "ok"
    return Check("versions", mark, text, "; ".join(remedies))


def check_cores(machine: Machine) -> Check:
    """Checks that emulators and XLA have a core each, and that threads would not wait in turn."""
    name, text = "cores", f"{machine.cores} for this process, {machine.cpu or 'unknown CPU'}"
    limit = cpus.time_limit()
    if machine.cores == 1:
        remedy = "give it more (taskset, --cpus-per-task): emulators and XLA share this one"
        return Check(name, "warning", text, remedy)
    if limit is not None and limit < machine.cores:
        text += f"; CPU time for {limit:.3g}, so {cpus.count()} emulator threads"
        remedy = "pin as many cores (--cpuset-cpus): XLA starts a thread for each that it sees"
        return Check(name, "warning", text, remedy)
    return Check(name, "ok", text)


def check_compilers(machine: Machine) -> Check:
    """Names the compilers; without one a wheel's libraries or EnvPool play."""
    names = []
    for name, line in machine.compilers.items():
        version = re.search(r"\d+(\.\d+)+", line)
        names.append(f"{name} {version[0]}" if version else name)
    has_libraries = native_library.PREBUILT.is_dir()
    instead = "the wheel's libraries play" if has_libraries else "EnvPool plays, which is slower"
    text = ", ".join(names) or f"none found: {instead}"
    return Check("compilers", "ok", text)


def check_memory(machine: Machine) -> Check:
    """Checks the free memory of the host."""
    free, total = machine.host_memory_free_gb, machine.host_memory_gb
    if free is None or total is None:
        remedy = "look for yourself: free --giga"
        return Check("host memory", "warning", "cannot be determined", remedy)
    text = f"{free:g} of {total:g} GB free"
    if free < LEAST_MEMORY_GB:
        remedy = f"stop other programs: a small run takes {LEAST_MEMORY_GB:g} GB"
        return Check("host memory", "warning", text, remedy)
    return Check("host memory", "ok", text)


def _existing(directory: Path) -> Path:
    """Returns the directory, or its nearest parent that exists."""
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


def _limited(seconds: float, call: Callable[[], float]) -> float | None:
    """Returns the result of `call`, or None if it takes longer: a lost disk never answers."""
    results: list[float] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            results.append(call())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else None


def check_disk(machine: Machine, directory: Path) -> Check:
    """Checks that the disk of the runs takes a file, and has room."""
    name, needed, existing = "disk", True, directory
    remedy = "make room, or write runs elsewhere: --root here, --run-dir of training"
    try:
        existing = _existing(directory)
        if directory.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        seconds = _limited(SECONDS_TO_WRITE, lambda: _write(existing))
    except OSError as error:
        text = f"'{existing}' cannot be written: {error.strerror}"
        return Check(name, "cross", text, remedy, needed)
    if seconds is None:
        text = f"'{existing}' takes no file within {SECONDS_TO_WRITE:g} s"
        return Check(name, "cross", text, remedy, needed)
    free = shutil.disk_usage(existing).free / 1e9
    text = f"{free:.1f} GB free in '{existing}', 1 MB written in {1000 * seconds:.0f} ms"
    if free < LEAST_DISK_GB:
        remedy = "make room: checkpoints with a replay take several GB"
        return Check(name, "warning", text, remedy, needed)
    return Check(name, "ok", text, needed=needed)
