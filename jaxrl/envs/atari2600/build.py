"""Builds the emulator, once; see `jaxrl.runtime.native_library`."""

import ctypes
import functools
from pathlib import Path

from jaxrl.runtime import native_library

NATIVE = Path(__file__).parent / "native"
TITLE = "the emulator"
FLAGS = (
    *native_library.FLAGS,
    "-std=c++20",
    # Averages are added as OpenCV does, without fused multiplications.
    "-ffp-contract=off",
)
# Its functions have the names of the other library's, for structs that are laid out for GPUs.
GPU_FLAGS = (*FLAGS, "-O1", "-fvisibility=hidden")


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
    """Returns the library of a source that includes the emulator's headers."""
    folders = (NATIVE,) if source.parent == NATIVE else (NATIVE, source.parent)
    setting, instead = "env.engine = atari2600", "take --env.engine envpool"
    whole = native_library.Source(name, source, folders, flags, TITLE, setting, instead)
    return native_library.built(whole)


@functools.cache
def shared_library() -> ctypes.CDLL:
    """Loads the library.

    Raises `UserError` if it cannot be built or loaded.
    """
    return native_library.loaded(library(), TITLE)
