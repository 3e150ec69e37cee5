"""The C++ functions of native/ffi.cc, built on first use and registered with XLA."""

import ctypes
import functools
import sys
from pathlib import Path

import jax

from jaxrl.errors import UserError, first_line
from jaxrl.runtime import native_library

NATIVE = Path(__file__).parent / "native"
TITLE = "the kernels"
FORWARD = "jaxrl_convolution"
WEIGHTS, INPUTS = "jaxrl_convolution_weights", "jaxrl_convolution_inputs"
FORWARD_BYTES = "jaxrl_convolution_of_bytes"
WEIGHTS_BYTES = "jaxrl_convolution_of_bytes_weights"
FLAGS = (*native_library.FLAGS, "-std=c++20", "-Wno-psabi")


@functools.cache
def lanes() -> int | None:
    """Returns how many floats a register has; None where the kernels cannot be built.

    Says so then in one line, once: XLA's products take their place.
    """
    try:
        return int(_load().jaxrl_lanes())
    except UserError as error:
        print(f"warning: {first_line(error)}", file=sys.stderr)
        return None


def _load() -> ctypes.CDLL:
    source = native_library.Source(
        "kernels", NATIVE / "ffi.cc", (NATIVE,), FLAGS, TITLE,
        "learning at the full speed of the cores", "go on with XLA's products",
    )  # fmt: skip
    functions = native_library.loaded(native_library.built(source), TITLE)
    for name in (FORWARD, WEIGHTS, INPUTS, FORWARD_BYTES, WEIGHTS_BYTES):
        symbol = jax.ffi.pycapsule(getattr(functions, name))
        jax.ffi.register_ffi_target(name, symbol, platform="cpu")
    return functions
