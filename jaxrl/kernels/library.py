"""The C++ functions of native/ffi.cc, built on first use and registered with XLA."""

import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.errors import UserError, first_line
from jaxrl.runtime import native_library

NATIVE = Path(__file__).parent / "native"
TITLE = "the kernels"
FORWARD = "jaxrl_convolution"
WEIGHTS, INPUTS = "jaxrl_convolution_weights", "jaxrl_convolution_inputs"
FORWARD_BYTES = "jaxrl_convolution_of_bytes"
WEIGHTS_BYTES = "jaxrl_convolution_of_bytes_weights"
DENSE, DENSE_WEIGHTS, DENSE_INPUTS = "jaxrl_dense", "jaxrl_dense_weights", "jaxrl_dense_inputs"
MAX_POOL, MAX_POOL_GRADIENT = "jaxrl_max_pool", "jaxrl_max_pool_gradient"
NORMALIZE, NORMALIZE_GRADIENTS = "jaxrl_normalize", "jaxrl_normalize_gradients"
NAMES = (
    FORWARD, WEIGHTS, INPUTS, FORWARD_BYTES, WEIGHTS_BYTES, DENSE, DENSE_WEIGHTS, DENSE_INPUTS,
    MAX_POOL, MAX_POOL_GRADIENT, NORMALIZE, NORMALIZE_GRADIENTS,
)  # fmt: skip
FLAGS = (*native_library.FLAGS, "-std=c++20", "-Wno-psabi")
SOURCE = native_library.Source(
    "kernels", NATIVE / "ffi.cc", (NATIVE,), FLAGS, TITLE,
    "learning at the full speed of the cores", "go on with XLA's products",
)  # fmt: skip


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


@functools.cache
def multiplies_bfloat16() -> bool:
    """Returns whether the processor has products of bfloat16, twice as fast as float32's.

    Says so in one line, once, if not; `lanes` must not be None.
    """
    if not _load().jaxrl_multiplies_bfloat16():
        print(
            "warning: network.dtype = 'bfloat16': this processor, or the library of a wheel, has "
            "no products of bfloat16, so float32 takes their place",
            file=sys.stderr,
        )
        return False
    return True


def call(name: str, shapes: Sequence[jax.ShapeDtypeStruct], *arrays: jax.Array, **more: Any) -> Any:
    """Calls C++; the members of a population follow one another, each on all threads."""
    lanes()  # registers the functions, if nobody has asked for it before

    @jax.custom_batching.custom_vmap
    def function(*arrays: jax.Array) -> list[jax.Array]:
        return list(jax.ffi.ffi_call(name, shapes)(*arrays, **more))

    @function.def_vmap
    def in_turn(size: int, batched: list[bool], *arrays: jax.Array) -> tuple[Any, Any]:
        def member(number: Any) -> Any:
            pairs = zip(arrays, batched, strict=True)
            return function(*(x[number] if differs else x for x, differs in pairs))

        # XLA keeps a loop of one round, and copies what it carries.
        if size == 1:
            results = jax.tree.map(lambda x: x[None], member(0))
        else:
            results = jax.lax.map(member, jnp.arange(size))
        return results, [True] * len(shapes)

    return function(*arrays)


def _load() -> ctypes.CDLL:
    functions = native_library.loaded(native_library.built(SOURCE), TITLE)
    for name in NAMES:
        symbol = jax.ffi.pycapsule(getattr(functions, name))
        jax.ffi.register_ffi_target(name, symbol, platform="cpu")
    return functions
