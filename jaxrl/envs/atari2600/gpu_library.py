"""The C++ functions of native/ffi_gpu.cc, with their types."""

import ctypes
import functools
import os
from typing import NamedTuple

import jax
import numpy as np

from jaxrl.envs.atari2600 import build, build_gpu, library
from jaxrl.envs.atari2600.library import pointer
from jaxrl.runtime import native_library
from jaxrl.types import TimeStep

STEP = "jaxrl_atari2600_gpu_step"  # XLA's name of the custom call
MOST_SLOTS = 128  # kMostSlots of native/gpu/world.h


class Sizes(NamedTuple):
    """Bytes of what the kernels read and write."""

    world: int  # bytes that the games of a device share
    game: int  # bytes of an environment
    sight: int  # scratch bytes of an environment
    slot: int  # scratch of a thread that plays a row whole


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the library, which is built on first use, and registers its custom call with XLA."""
    functions = native_library.loaded(build.gpu_library(), build.TITLE)
    size, bytes_, count = ctypes.c_uint64, pointer(np.uint8), ctypes.c_uint64
    signatures: native_library.Signatures = {
        "jaxrl_gpu_sizes": (None, [count, pointer(np.uint64)]),
        "jaxrl_gpu_program": (ctypes.c_int64, [ctypes.c_char_p, size, ctypes.c_char_p]),
        "jaxrl_gpu_world": (
            ctypes.c_uint8,
            [
                *(ctypes.c_char_p, ctypes.c_char_p, size, ctypes.POINTER(library.Rules)),
                *(ctypes.c_uint16, ctypes.c_int32, ctypes.c_int32, bytes_),
            ],
        ),
        "jaxrl_gpu_pack": (None, [bytes_, bytes_, bytes_, count, size, bytes_]),
        "jaxrl_gpu_unpack": (
            ctypes.c_int32,
            [
                *(bytes_, bytes_, count, size, bytes_, bytes_),
                *[pointer(np.float32)] * 2,
                *[pointer(np.bool_)] * 4,
            ],
        ),
    }
    native_library.declare(functions, signatures)
    jax.ffi.register_ffi_target(STEP, jax.ffi.pycapsule(functions.jaxrl_gpu_step), platform="CUDA")
    return functions


def sizes(pixels: int) -> Sizes:
    """Returns the bytes of everything, for observations of this number of pixels."""
    counts = np.zeros(len(Sizes._fields), np.uint64)
    load().jaxrl_gpu_sizes(pixels, counts)
    return Sizes(*(int(count) for count in counts))


def program() -> int:
    """Returns the number by which C++ knows the kernels, which are compiled on first use."""
    return _number_of(build_gpu.kernels())


@functools.cache
def _number_of(kernels: build_gpu.Kernels) -> int:
    image, file = kernels
    return int(load().jaxrl_gpu_program(image, len(image), os.fsencode(file)))


def world(
    game: str, image: bytes, rules: library.Rules, frame_shape: tuple[int, int]
) -> np.ndarray | None:
    """Returns what the games of a cartridge share: u8[bytes]; None for an unknown cartridge."""
    made = np.zeros(sizes(frame_shape[0] * frame_shape[1]).world, np.uint8)
    needed = library.needed_collisions(game, image)
    known = needed is not None and load().jaxrl_gpu_world(
        game.encode(), image, len(image), rules, needed, *frame_shape, made
    )
    return made if known else None


# Within the bytes of a snapshot: a sum over all others, and what was last on the bus, in the newest
# state and in those before its rows. The interpreter of CPUs does not keep the bus where the next
# access replaces it.
SUM, BUS = slice(16, 24), (460, 461, 932, 933, 1428, 1429)


def mask_bus(snapshots: np.ndarray) -> np.ndarray:
    """Returns snapshots u8[E, bytes] without the bytes that threads and kernels may differ in."""
    snapshots = snapshots.copy()
    snapshots[:, SUM] = 0
    snapshots[:, BUS] = 0
    return snapshots


def pack(world: np.ndarray, games: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Returns snapshots u8[E, bytes], as `library.Engine.save` does, of games and their frames."""
    count, pixels = len(games), frames[0].size
    snapshots = np.zeros((count, games.shape[1] + pixels), np.uint8)
    load().jaxrl_gpu_pack(world, games, frames, count, pixels, snapshots)
    return snapshots


def unpack(
    world: np.ndarray, snapshots: np.ndarray, zeros: TimeStep
) -> tuple[np.ndarray, TimeStep]:
    """Returns the games u8[E, bytes] of snapshots, and their newest rows in the shapes of `zeros`.

    Raises `DamagedError` if one of them was not written by this emulator for this game.
    """
    rows = jax.tree.map(np.empty_like, zeros)
    count, pixels = len(rows.reward), rows.frame[0].size
    size = sizes(pixels).game
    snapshots = library.checked(snapshots, (count, size + pixels))
    games = np.zeros((count, size), np.uint8)
    refusal = load().jaxrl_gpu_unpack(world, snapshots, count, pixels, games, *rows)
    library.check_refusal(refusal)
    return games, rows
