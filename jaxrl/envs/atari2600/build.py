"""Builds the emulator with this machine's C++ compiler, for its own processor, once.

The library lies in the user's cache under a name that holds everything it depends on: the sources,
the compiler and its version, the flags, the processor. Processes that come at once build it once.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxrl.errors import UserError

NATIVE = Path(__file__).parent / "native"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    # Averages are added as OpenCV does, without fused multiplications.
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-pthread",
)


def compiler() -> tuple[str, ...] | None:
    """Returns the command of the C++ compiler: $CXX, or the first of `COMPILERS` that is found.

    Raises `UserError` if $CXX is not found.
    """
    if chosen := shlex.split(os.environ.get("CXX", "")):
        if path := shutil.which(chosen[0]):
            return path, *chosen[1:]
        raise UserError(f"CXX = {chosen[0]!r}: not found; name a C++ compiler, or unset CXX")
    return next(((path,) for name in COMPILERS if (path := shutil.which(name))), None)


def cache_dir() -> Path:
    """Returns the directory for built libraries: $XDG_CACHE_HOME/jaxrl, or ~/.cache/jaxrl."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl"


@functools.cache
def library() -> Path:
    """Returns the emulator's library, which is built on first use.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    command = compiler()
    if command is None:
        raise UserError(
            "env.engine = atari2600: is built by a C++ compiler, and none is found; install g++ "
            "(apt-get install g++) or clang++, or take --env.engine envpool"
        )
    try:
        built = cache_dir() / f"atari2600-{_key(command)}.so"
        if built.exists():
            return built
        built.parent.mkdir(parents=True, exist_ok=True)
        with _alone(built.with_suffix(".lock")):
            if not built.exists():  # another process may have built it
                print("building the emulator for this machine, once", file=sys.stderr)
                _compile(command, built)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise UserError(
            f"cannot build the emulator: {error}; XDG_CACHE_HOME names another place for it, CXX "
            "another compiler"
        ) from None
    return built


@functools.cache
def shared_library() -> ctypes.CDLL:
    """Loads the library.

    Raises `UserError` if it cannot be built or loaded.
    """
    path = library()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"cannot load the emulator: {error}; delete '{path}', or let XDG_CACHE_HOME name a "
            "place that programs may run from"
        ) from None


@functools.cache
def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def _include_dir() -> str:
    """Returns `jax.ffi.include_dir()`; JAX is not imported, which takes a second."""
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or spec.origin is None:
        raise UserError("env.engine = atari2600: is built with JAX's headers; pip install jax")
    return str(Path(spec.origin).parent / "include")


def _processor() -> str:
    """Returns what -march=native depends on, as far as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    first = {line.split(":")[0].strip(): line for line in reversed(lines) if ":" in line}
    names = ("vendor_id", "model", "flags", "Features", "CPU part")
    return "\n".join(first.get(name, "") for name in names) + platform.machine()


def _key(command: tuple[str, ...]) -> str:
    """Returns a digest of everything that the library depends on."""
    sources = sorted(source for source in NATIVE.iterdir() if source.is_file())
    digest = hashlib.sha256()
    headers = sorted(Path(_include_dir()).rglob("*.h"))
    for part in (*command, _output(*command, "--version"), *FLAGS, _processor()):
        digest.update(part.encode() + b"\0")
    for source in [*sources, *headers]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Lets one process at a time into the block."""
    import fcntl

    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _compile(compiler: tuple[str, ...], built: Path) -> None:
    """Compiles the library and puts it in its place at once."""
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        out = Path(scratch) / "library.so"
        command = [*compiler, *FLAGS, "-isystem", _include_dir(), str(NATIVE / "ffi.cc")]
        command += ["-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = built.with_suffix(".log")
            log.write_text(" ".join(command) + "\n" + done.stdout + done.stderr)
            raise UserError(
                f"env.engine = atari2600: {compiler[0]} cannot build it (see '{log}'); choose "
                "another compiler with CXX, or take --env.engine envpool"
            )
        os.replace(out, built)
