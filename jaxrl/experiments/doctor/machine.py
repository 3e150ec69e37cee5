"""The machine that this process runs on: devices, host, versions, compilers.

Nothing here raises: an unknown value is None, or is missing in its table.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import psutil

from jaxrl.runs.provenance import git_commit
from jaxrl.runtime import cpus

PACKAGES = ("jax", "jaxlib", "flax", "optax", "envpool", "numpy")
# Names of the packages that bring JAX to an accelerator.
PLUGINS = re.compile(r"jax-.*-(plugin|pjrt)$|libtpu|nvidia-cudnn")
COMPILERS = ("c++", "g++", "clang++", "nvcc")
PROBE_SECONDS = 10.0  # that a program may take to print its version
DEVICE_SECONDS = 60.0  # that JAX may take to start its devices
SECONDS_TO_END = 5.0  # for a program that was killed; one that waits for a driver never does

# Errors that mean that this machine lacks a value: no such file, function or module, a driver or a
# kernel that refuses (XLA's errors are RuntimeErrors), output of another form.
MISSING = (OSError, AttributeError, ImportError, RuntimeError, ValueError, psutil.Error)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that JAX sees."""

    platform: str | None  # jax.default_backend(): "cpu", "gpu", "tpu"
    device_kind: str | None
    num_devices: int | None
    device_memory_gb: float | None  # that JAX may use of each device; None on CPUs
    device_error: str | None = None  # why JAX has no devices, or takes the CPU


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(Devices):
    """A machine with its devices, in plain values of JSON; a GB is 1e9 bytes."""

    date: str  # UTC, ISO 8601
    driver: str | None  # NVIDIA's driver, or libtpu
    system: str
    cpu: str | None  # model
    cores: int  # that this process may use
    host_memory_gb: float | None  # the machine's, or its container's if that is less
    host_memory_free_gb: float | None
    disk_free_gb: float | None  # where the working directory is
    python: str
    versions: dict[str, str]  # of the installed packages, by name
    compilers: dict[str, str]  # of the installed compilers, by command
    commit: str | None


def describe() -> Machine:
    """Returns the machine, with the devices of this process: JAX starts them."""
    return _machine(devices())


def describe_apart(seconds: float = DEVICE_SECONDS) -> Machine:
    """Returns the machine, with the devices that another process sees.

    JAX reserves most of a GPU's memory when it starts, and may hang; here neither touches the
    caller.
    """
    return _machine(_devices_apart(seconds))


def devices() -> Devices:
    """Returns the devices that JAX sees in this process."""
    try:
        import jax

        local = jax.local_devices()
        statistics = _or_none(local[0].memory_stats) or {}
        limit = statistics.get("bytes_limit")
        return Devices(
            platform=jax.default_backend(),
            device_kind=local[0].device_kind,
            num_devices=jax.device_count(),
            device_memory_gb=None if limit is None else _gigabytes(limit),
        )
    except Exception as error:
        return _no_devices(f"{type(error).__name__}: {error}")


def _no_devices(reason: str) -> Devices:
    return Devices(None, None, None, None, " ".join(reason.split()))


def _devices_apart(seconds: float) -> Devices:
    command = [sys.executable, "-m", "jaxrl.experiments.doctor.machine", "--devices"]
    try:
        process = _run(command, seconds)
    except subprocess.TimeoutExpired:
        return _no_devices(f"JAX did not start its devices within {seconds:g} s")
    except OSError as error:
        return _no_devices(str(error))
    lines = [line for line in process.stderr.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    try:
        seen = Devices(**json.loads(process.stdout.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return _no_devices(f"JAX ended with status {process.returncode}: {last}")
    if seen.platform == "cpu" and last:  # JAX's reason for the CPU
        return dataclasses.replace(seen, device_error=last)
    return seen


def _machine(devices: Devices) -> Machine:
    """Returns the machine that has these devices."""
    versions = installed_versions()
    return Machine(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **dataclasses.asdict(devices),
        driver=_driver() or versions.get("libtpu"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_model(),
        cores=len(cpus.cores()),
        host_memory_gb=_host_memory_gb(),
        host_memory_free_gb=_host_memory_free_gb(),
        disk_free_gb=_or_none(lambda: _gigabytes(shutil.disk_usage(".").free)),
        python=platform.python_version(),
        versions=versions,
        compilers=_compilers(),
        commit=_or_none(git_commit),
    )


# --- probes --------------------------------------------------------------------------------------


def _or_none(probe: Callable[[], T]) -> T | None:
    try:
        return probe()
    except MISSING:
        return None


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs a program; unlike `subprocess.run` it does not wait for one that cannot be killed."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _gigabytes(size: float) -> float:
    return round(size / 1e9, 1)


def _output(command: list[str]) -> str | None:
    """Returns the output of a program that ends well and soon."""
    try:
        process = _run(command, PROBE_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = (_output(query) or "").split()
    return lines[0] if lines else None


def _cpu_model() -> str | None:
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if model := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return model[1].strip()
    return platform.processor() or None


def _host_memory_gb() -> float | None:
    total = _or_none(lambda: psutil.virtual_memory().total)
    if total is None:
        return None
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # control groups 2 and 1
        with contextlib.suppress(OSError, ValueError):  # no such file, or no limit ("max")
            total = min(total, int((Path("/sys/fs/cgroup") / name).read_text(encoding="utf-8")))
    return _gigabytes(total)


def _host_memory_free_gb() -> float | None:
    def free() -> float:
        from jaxrl.runtime.mesh import free_host_memory

        return _gigabytes(free_host_memory())

    return _or_none(free)


def installed_versions() -> dict[str, str]:
    """Returns the versions of the packages that training needs, and of JAX's plugins."""
    versions: dict[str, str] = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError, *MISSING):
            versions[package] = metadata.version(package)
    plugins: dict[str, str] = {}
    with contextlib.suppress(*MISSING):
        for installed in metadata.distributions():
            name = str(installed.name).lower().replace("_", "-")
            if PLUGINS.match(name):
                plugins[name] = installed.version
    return versions | dict(sorted(plugins.items()))


def _compilers() -> dict[str, str]:
    """Returns the line with the version of each compiler; $CXX may have options."""
    commands: dict[str, list[str]] = {}
    with contextlib.suppress(ValueError):  # a quotation that does not end
        words = shlex.split(os.environ.get("CXX", ""))
        commands |= {"$CXX": words} if words else {}
    commands |= {name: [name] for name in COMPILERS}
    compilers: dict[str, str] = {}
    for name, command in commands.items():
        lines = (_output([*command, "--version"]) or "").splitlines()
        # nvcc opens with its name and its copyright.
        version = next((line for line in lines if re.search(r"\d\.\d", line)), "").strip()
        if version:
            compilers[name] = version
    return compilers


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(devices() if "--devices" in sys.argv else describe())))
