"""C++ libraries: a wheel's, or built with this machine's compiler for its own processor, once.

A wheel has a library for each instruction set in jaxrl/prebuilt/ (tools/wheels.py). Elsewhere a
library lies in the user's cache under a name that holds everything it depends on: the sources,
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.errors import UserError
from jaxrl.runtime import instruction_sets

COMPILERS = ("c++", "g++", "clang++")
NATIVE_FLAG = "-march=native"
# Hidden: one process loads several libraries, and would take each other's tables for its own where
# they have the same name.
FLAGS = ("-O3", NATIVE_FLAG, "-fPIC", "-fvisibility=hidden", "-shared", "-pthread")
PREBUILT = Path(__file__).parents[1] / "prebuilt"

Signatures = dict[str, tuple[Any, list[Any]]]  # types of result and arguments, by function


@dataclass(frozen=True)
class Source:
    """Files and flags that a library is built from, and its names in messages."""

    name: str  # the beginning of its file's name in the cache
    file: Path  # the file to compile
    folders: tuple[Path, ...]  # folders whose files it includes
    flags: tuple[str, ...]
    title: str  # as "the emulator"
    needed_by: str  # the setting that asks for it
    instead: str  # what does without
    calls_xla: bool = True  # includes the headers that jaxlib brings


def compiler() -> tuple[str, ...] | None:
    """Returns the command of the C++ compiler: $CXX, or the first of `COMPILERS` that is found.

    Raises `UserError` if $CXX is not found, or cannot be read.
    """
    try:
        chosen = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:  # a quotation that does not end
        raise UserError(f"CXX = {os.environ['CXX']!r}: {error}; name a C++ compiler") from None
    if chosen:
        if path := shutil.which(chosen[0]):
            return path, *chosen[1:]
        raise UserError(f"CXX = {chosen[0]!r}: not found; name a C++ compiler, or unset CXX")
    return next(((path,) for name in COMPILERS if (path := shutil.which(name))), None)


def cache_dir() -> Path:
    """Returns the directory for built libraries: $XDG_CACHE_HOME/jaxrl, or ~/.cache/jaxrl."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxrl"


def prebuilt_name(source: Source, instruction_set: str) -> str:
    """Returns the name of a wheel's library."""
    return f"{source.name}-{instruction_set}.so"


def prebuilt(source: Source) -> Path | None:
    """Returns the library that came with a wheel for this processor; None if there is none.

    Raises `UserError` if $JAXRL_INSTRUCTION_SET names a set of which no library is there.
    """
    names = instruction_sets.candidates()
    paths = (PREBUILT / prebuilt_name(source, name) for name in names)
    library = next((path for path in paths if path.is_file()), None)
    # A wheel has not every library: those of GPUs are built.
    is_named = bool(names and os.environ.get(instruction_sets.VARIABLE))
    if is_named and not any(PREBUILT.glob(f"*-{names[0]}.so")):
        raise UserError(
            f"{instruction_sets.VARIABLE} = {names[0]!r}: this installation is not of a wheel that "
            "has it; unset it"
        )
    return library


def built(source: Source) -> Path:
    """Returns the library of a source: a wheel's, or one that is built on first use.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    if library := prebuilt(source):
        return library
    command = compiler()
    if command is None:
        raise UserError(
            f"{source.needed_by}: needs a C++ compiler, and none is found; {_remedy(source)}"
        )
    try:
        out = cache_dir() / f"{source.name}-{_key(command, source)}.so"
        with alone_without(out) as is_missing:
            if is_missing:
                print(f"building {source.title} for this machine, once", file=sys.stderr)
                _compile(command, source, out)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise UserError(
            f"cannot build {source.title}: {error}; XDG_CACHE_HOME names another place for it, CXX "
            "another compiler"
        ) from None
    return out


def _remedy(source: Source) -> str:
    """Returns what does without a compiler, for a message."""
    from_wheel = any(PREBUILT.glob(f"{source.name}-*.so"))
    if from_wheel and os.environ.get(instruction_sets.VARIABLE) == instruction_sets.BUILD:
        return f"unset {instruction_sets.VARIABLE}: the wheel has the library"
    file = f"dist/jaxrl-*_{platform.machine()}.whl"
    wheel = "" if PREBUILT.is_dir() else f", a wheel (make wheels, then pip install {file})"
    return f"install g++ (apt-get install g++) or clang++{wheel}, or {source.instead}"


def loaded(path: Path, title: str) -> ctypes.CDLL:
    """Loads a library that was built.

    Raises `UserError` if it cannot be loaded.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"cannot load {title}: {error}; delete '{path}', or let XDG_CACHE_HOME name a place "
            "that programs may run from"
        ) from None


def declare(library: ctypes.CDLL, signatures: Signatures) -> None:
    """Gives functions of a library their types."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


@functools.cache
def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def include_dir() -> str:
    """Returns `jax.ffi.include_dir()`; JAX is not imported, which takes a second."""
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or spec.origin is None:
        raise UserError("C++ libraries are built with JAX's headers; pip install jax")
    return str(Path(spec.origin).parent / "include")


def _processor() -> str:
    """Returns the description of the processor that -march=native depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    first = {line.split(":")[0].strip(): line for line in reversed(lines) if ":" in line}
    names = ("vendor_id", "model", "flags", "Features", "CPU part")
    return "\n".join(first.get(name, "") for name in names) + platform.machine()


def _key(command: tuple[str, ...], source: Source) -> str:
    """Returns a digest of everything that a library depends on."""
    headers = sorted(Path(include_dir()).rglob("*.h")) if source.calls_xla else []
    parts = (*command, _output(*command, "--version"), *source.flags, _processor())
    return digest_of(parts, [*files_in(*source.folders), *headers])


def files_in(*folders: Path) -> list[Path]:
    """Returns the files below folders, by their paths."""
    return sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())


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
    """Enters the block with whether a file is missing; if so, in one process at a time."""
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


def _compile(compiler: tuple[str, ...], source: Source, built: Path) -> None:
    """Compiles a library and puts it in its place at once."""
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        out = Path(scratch) / "library.so"
        # "vector/engine.h" is a header of ours, <vector> never is.
        folders = [part for folder in source.folders for part in ("-iquote", str(folder))]
        if source.calls_xla:
            folders += ["-isystem", include_dir()]
        command = [*compiler, *source.flags, *folders, str(source.file), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 and NATIVE_FLAG in done.stderr:  # some compilers do not know it
            command.remove(NATIVE_FLAG)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = built.with_suffix(".log")
            log.write_text(" ".join(command) + "\n" + done.stdout + done.stderr)
            raise UserError(
                f"{source.needed_by}: {compiler[0]} cannot build it (see '{log}'); choose another "
                f"compiler with CXX, or {source.instead}"
            )
        os.replace(out, built)
