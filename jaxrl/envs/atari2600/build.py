"""Builds the emulator, once; see `jaxrl.runtime.native_library`."""

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
GPU_FLAGS = (*FLAGS, "-O1")


def engine_source() -> native_library.Source:
    """Returns what the library of the trainer's engine is built from."""
    return _source("atari2600", NATIVE / "ffi.cc", FLAGS)


def vector_source() -> native_library.Source:
    """Returns what the library of `VectorEnv` is built from, which needs no JAX."""
    return native_library.Source(
        "atari2600-vector", NATIVE / "vector.cc", (NATIVE,), FLAGS, TITLE,
        "VectorEnv", "take ale_py.vector_env.AtariVectorEnv", calls_xla=False,
    )  # fmt: skip


@functools.cache
def library() -> Path:
    """Returns the library of the trainer's engine, which is built on first use.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    return native_library.built(engine_source())


@functools.cache
def vector_library() -> Path:
    """Returns the library of `VectorEnv`, which is built on first use.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    return native_library.built(vector_source())


@functools.cache
def gpu_library() -> Path:
    """Returns the library that launches the emulator's kernels on a GPU; see `build_gpu`.

    Raises `UserError` if there is no compiler, or if it fails.
    """
    return built("atari2600-gpu", NATIVE / "ffi_gpu.cc", GPU_FLAGS)


def built(name: str, source: Path, flags: tuple[str, ...]) -> Path:
    """Returns the library of a source that includes the emulator's headers."""
    return native_library.built(_source(name, source, flags))


def _source(name: str, source: Path, flags: tuple[str, ...]) -> native_library.Source:
    folders = (NATIVE,) if source.parent == NATIVE else (NATIVE, source.parent)
    setting, instead = "env.engine = atari2600", "take --env.engine envpool"
    return native_library.Source(name, source, folders, flags, TITLE, setting, instead)
