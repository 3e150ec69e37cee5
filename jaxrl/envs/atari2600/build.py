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
from collections.abc import Iterable, Iterator
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
# Its functions have the names of the other library's, for structs that are laid out for GPUs.
GPU_FLAGS = (*FLAGS, "-O1", "-fvisibility=hidden")


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
    return built("atari2600", NATIVE / "ffi.cc", FLAGS)


@functools.cache
def gpu_library() -> Path:
    """Returns the library that launches the emulator's kernels on a GPU; see `build_gpu`.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    return built("atari2600-gpu", NATIVE / "ffi_gpu.cc", GPU_FLAGS)


def built(name: str, source: Path, flags: tuple[str, ...]) -> Path:
    """Returns the library of a source and what lies beside it, which is built on first use.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    command = compiler()
    if command is None:
        raise UserError(
            "env.engine = atari2600: is built by a C++ compiler, and none is found; install g++ "
            "(apt-get install g++) or clang++, or take --env.engine envpool"
        )
    try:
        out = cache_dir() / f"{name}-{_key(command, source, flags)}.so"
        with alone_without(out) as is_missing:
            if is_missing:
                print("building the emulator for this machine, once", file=sys.stderr)
                _compile(command, source, flags, out)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise UserError(
            f"cannot build the emulator: {error}; XDG_CACHE_HOME names another place for it, CXX "
            "another compiler"
        ) from None
    return out


@functools.cache
def shared_library() -> ctypes.CDLL:
    """Loads the library.

    Raises `UserError` if it cannot be built or loaded.
    """
    return loaded(library())


def loaded(path: Path) -> ctypes.CDLL:
    """Loads a library that was built.

    Raises `UserError` if it cannot be loaded.
    """
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


def _key(command: tuple[str, ...], source: Path, flags: tuple[str, ...]) -> str:
    """Returns a digest of everything that the library depends on."""
    headers = sorted(Path(_include_dir()).rglob("*.h"))
    beside = [] if source.parent == NATIVE else [source.parent]
    parts = (*command, _output(*command, "--version"), *flags, _processor())
    return digest_of(parts, [*files_in(NATIVE, *beside), *headers])


def files_in(*folders: Path) -> list[Path]:
    """Returns the files in folders, not in folders of theirs, by name."""
    return sorted(file for folder in folders for file in folder.iterdir() if file.is_file())


def digest_of(parts: Iterable[str], files: Iterable[Path]) -> str:
    """Returns a digest of texts and of files with their names."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def alone_without(file: Path) -> Iterator[bool]:
    """Enters the block with whether a file is missing; if it is, one process at a time."""
    import fcntl

    if file.exists():
        yield False
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not file.exists()  # another process may have made it
    finally:
        os.close(lock)


def _compile(compiler: tuple[str, ...], source: Path, flags: tuple[str, ...], built: Path) -> None:
    """Compiles the library and puts it in its place at once."""
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        out = Path(scratch) / "library.so"
        command = [*compiler, *flags, "-isystem", _include_dir(), str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = built.with_suffix(".log")
            log.write_text(" ".join(command) + "\n" + done.stdout + done.stderr)
            raise UserError(
                f"env.engine = atari2600: {compiler[0]} cannot build it (see '{log}'); choose "
                "another compiler with CXX, or take --env.engine envpool"
            )
        os.replace(out, built)
