"""The machine that this process runs on: devices, host, versions, compilers.

Nothing here raises: a value that cannot be found is None, or is left out of its table.
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

from jaxrl.runtime import cpus

PACKAGES = ("jax", "jaxlib", "flax", "optax", "envpool", "numpy")
# Names of the packages that bring JAX to an accelerator.
PLUGINS = re.compile(r"jax-.*-(plugin|pjrt)$|libtpu|nvidia-cudnn")
COMPILERS = ("c++", "g++", "clang++", "nvcc")
PROBE_SECONDS = 10.0  # that a program may take to say its version
DEVICE_SECONDS = 60.0  # that JAX may take to start its devices
SECONDS_TO_END = 5.0  # for a program that was killed; one that waits for a driver never does

# Errors that say that a value is not to be had on this machine: no such file, function or module,
# a driver or a kernel that refuses (XLA's errors are RuntimeErrors), output of another form.
MISSING = (OSError, AttributeError, ImportError, RuntimeError, ValueError, psutil.Error)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that JAX sees."""

    platform: str | None  # jax.default_backend(): "cpu", "gpu", "tpu"
    device_kind: str | None
    num_devices: int | None
    device_memory_gb: float | None  # that JAX may use of each device; None on CPUs
    error: str | None = None  # why JAX has no devices, or takes the CPU


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine, in plain values of JSON; a GB is 1e9 bytes."""

    date: str  # UTC, ISO 8601
    platform: str | None  # jax.default_backend(): "cpu", "gpu", "tpu"
    device_kind: str | None
    num_devices: int | None
    device_memory_gb: float | None  # that JAX may use of each device; None on CPUs
    device_error: str | None  # why JAX has no devices, or takes the CPU
    driver: str | None  # NVIDIA's driver, or libtpu
    system: str
    cpu: str | None  # model
    cores: int  # that this process may use
    host_memory_gb: float | None  # of the machine, or of its container if that is less
    host_memory_free_gb: float | None
    disk_free_gb: float | None  # where the working directory is
    python: str
    versions: dict[str, str]  # by package; what is not installed is left out
    compilers: dict[str, str]  # by command; what is not found is left out
    commit: str | None


def describe() -> Machine:
    """Returns the machine, with the devices of this process: JAX starts them."""
    return _with_host(devices())


def describe_apart(seconds: float = DEVICE_SECONDS) -> Machine:
    """Returns the machine, with the devices that another process sees.

    JAX reserves most of a GPU's memory when it starts, and may hang; here neither touches the
    caller.
    """
    return _with_host(_devices_apart(seconds))


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
        found = _run(command, seconds)
    except subprocess.TimeoutExpired:
        return _no_devices(f"JAX did not start its devices within {seconds:g} s")
    except OSError as error:
        return _no_devices(str(error))
    said = found.stderr.split("\n") if found.stderr else []
    last = next((line for line in reversed(said) if line.strip()), "")
    try:
        seen = Devices(**json.loads(found.stdout.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return _no_devices(f"JAX ended with status {found.returncode}: {last}")
    # Why it takes the CPU, if it says so.
    because = last if seen.platform == "cpu" and last else seen.error
    return dataclasses.replace(seen, error=because)


def _with_host(found: Devices) -> Machine:
    versions = installed_versions()
    return Machine(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        platform=found.platform,
        device_kind=found.device_kind,
        num_devices=found.num_devices,
        device_memory_gb=found.device_memory_gb,
        device_error=found.error,
        driver=_driver() or versions.get("libtpu"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_model(),
        cores=len(cpus.cores()),
        host_memory_gb=_host_memory_gb(),
        host_memory_free_gb=_host_memory_free_gb(),
        disk_free_gb=_disk_free_gb(),
        python=platform.python_version(),
        versions=versions,
        compilers=_compilers(),
        commit=_commit(),
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
        found = _run(command, PROBE_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return found.stdout if found.returncode == 0 else None


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = (_output(query) or "").split()
    return lines[0] if lines else None


def _cpu_model() -> str | None:
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
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


def _disk_free_gb() -> float | None:
    return _or_none(lambda: _gigabytes(shutil.disk_usage(".").free))


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
    found: dict[str, str] = {}
    for name, command in commands.items():
        lines = (_output([*command, "--version"]) or "").splitlines()
        # nvcc opens with its name and its copyright.
        version = next((line for line in lines if re.search(r"\d\.\d", line)), "").strip()
        if version:
            found[name] = version
    return found


def _commit() -> str | None:
    def read() -> str | None:
        from jaxrl.runs.provenance import git_commit

        return git_commit()

    return _or_none(read)


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(devices() if "--devices" in sys.argv else describe())))
