"""The path of a GPU on a machine without one.

A stand-in for the CUDA driver, built from driver.cc, runs the kernels' source on the CPU; the
engine's calls, registered for the CPU, are those of a GPU.
"""

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from jaxrl.envs.atari2600 import build, build_gpu, engine, gpu_library, library

FOLDER = Path(__file__).parent
# Fibers jump between stacks, which checks of jumps take for a mistake.
FLAGS = (
    *("-std=c++20", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE"),
    *("-fvisibility=hidden", "-fPIC", "-shared"),
)
IMAGE = build_gpu.Kernels(b"stand-in", "/cache/stand-in.cubin")
KERNELS = ("jaxrl_step", "jaxrl_draw", "jaxrl_again")


class StandIn:
    """The driver that kernels are launched on."""

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._library.standin_launches.restype = ctypes.c_uint64
        for name in ("most_again", "copied", "pinned", "waits"):
            getattr(self._library, f"standin_{name}").restype = ctypes.c_uint64

    def launches(self) -> list[int]:
        """Launches so far of each of `KERNELS`."""
        return [self._library.standin_launches(number) for number in range(len(KERNELS))]

    def most_again(self) -> int:
        """Returns how many rows `jaxrl_again` has had at most, since it was asked before."""
        return self._library.standin_most_again()

    def copied(self) -> int:
        """Bytes that were copied so far from and to pinned memory."""
        return self._library.standin_copied()

    def pinned(self) -> int:
        """Returns how many engines keep their rows pinned."""
        return self._library.standin_pinned()

    def set_pins(self, value: bool) -> None:
        """Lets memory be pinned from now on, or not."""
        self._library.standin_set_pins(ctypes.c_bool(value))

    def waits(self) -> int:
        """Returns how often somebody has waited for the device."""
        return self._library.standin_waits()

    def set_works(self, value: bool) -> None:
        """Lets the device work from now on, or not."""
        self._library.standin_set_works(ctypes.c_bool(value))

    def set_devices(self, number: int) -> None:
        """Lets there seem to be so many devices; all but the first are of an older kind."""
        self._library.standin_set_devices(number)

    def set_multiprocessors(self, number: int) -> None:
        """Lets the device seem to have so many, from the next program on."""
        self._library.standin_set_multiprocessors(number)


def built() -> Path:
    """Returns the stand-in, which is built on first use."""
    return build.built("atari2600-standin", FOLDER / "driver.cc", FLAGS)


def install(monkeypatch) -> StandIn:
    """Lets the kernels play on the stand-in for the driver of a GPU."""
    path = built()
    monkeypatch.setenv("JAXRL_LIBCUDA", str(path))
    monkeypatch.setattr(engine, "plays_on_gpu", lambda env: not env.exact_resets)
    monkeypatch.setattr(build_gpu, "kernels", lambda: IMAGE)
    call = gpu_library.load().jaxrl_gpu_step_without_stream
    jax.ffi.register_ffi_target(gpu_library.STEP, jax.ffi.pycapsule(call), platform="cpu")
    return StandIn(path)


@contextlib.contextmanager
def streams() -> Iterator[StandIn]:
    """Lets the calls of the engine of threads be those of a GPU's stream, on the stand-in."""
    path = built()
    functions = library.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAXRL_LIBCUDA", str(path))
        patch.setattr(engine, "has_nvidia_gpu", lambda: True)
        patch.setattr(engine, "has_custom_call", lambda: False)
        patch.setattr(library, "SEND", library.SEND + "_on_stream")
        patch.setattr(library, "RECV", library.RECV + "_on_stream")
        for name, symbol in (
            (library.SEND, functions.jaxrl_send_without_stream),
            (library.RECV, functions.jaxrl_recv_without_stream),
        ):
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(symbol), platform="cpu")
        yield StandIn(path)
