"""A convolution with what surrounds it, and its gradients, as calls of C++."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.kernels import library

CLIP = 5.0  # limit of normalized pixels


class Form(NamedTuple):
    """Stride and surroundings of a layer's convolution."""

    stride: int = 1
    padding: int = 0  # pixels of zeros on each side
    rectify_inputs: bool = False  # before the convolution
    rectify: bool = False  # after the bias
    bfloat16: bool = False  # what is multiplied is rounded to it; sums, inputs and outputs are not


class Pixels(NamedTuple):
    """Images as bytes, which a layer normalizes as it goes: clip(byte · scale - shift, ±CLIP)."""

    stack: jax.Array  # u8[..., H, W, C]
    scale: jax.Array  # f32[H, W]
    shift: jax.Array  # f32[H, W]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the images."""
        return self.stack.shape


def fits(x: jax.Array | Pixels, kernel: jax.Array) -> bool:
    """Returns whether the kernels compute a layer of these arrays: float32, in whole registers."""
    if not (isinstance(x, Pixels) or x.dtype == jnp.float32) or kernel.dtype != jnp.float32:
        return False
    lanes = library.lanes()
    return lanes is not None and kernel.shape[-1] % lanes == 0


def output_shape(x: jax.Array | Pixels, kernel: jax.Array, form: Form) -> tuple[int, ...]:
    """Returns the shape [B, H', W', F] of a layer's outputs."""
    size, filters = kernel.shape[0], kernel.shape[-1]
    rows, columns = (
        (length + 2 * form.padding - size) // form.stride + 1 for length in x.shape[1:3]
    )
    return x.shape[0], rows, columns, filters


def convolution(x: jax.Array | Pixels, kernel: jax.Array, bias: jax.Array, form: Form) -> jax.Array:
    """Computes a layer: f32[B, H, W, C], f32[K, K, C, F], f32[F] -> f32[B, H', W', F].

    y = max(0, bias + kernel * max(0, x)), each maximum where the form has it, and H' = (H + 2 P -
    K) // S + 1. `fits` must hold. The order of all sums is fixed, whatever the number of threads.
    Products of bfloat16 take pairs of channels: with an odd number of them they are of float32.
    """
    pairs = kernel.shape[-2] % 2 == 0
    return _convolution(x, kernel, bias, form._replace(bfloat16=form.bfloat16 and pairs))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _convolution(
    x: jax.Array | Pixels, kernel: jax.Array, bias: jax.Array, form: Form
) -> jax.Array:
    shape = jax.ShapeDtypeStruct(output_shape(x, kernel, form), jnp.float32)
    if min(shape.shape[1:]) < 1:
        raise ValueError(f"images {x.shape[1:3]} are too small for a kernel of {kernel.shape[0]}")
    if isinstance(x, Pixels):
        (y,) = library.call(
            library.FORWARD_BYTES,
            [shape],
            *x,
            kernel,
            bias,
            limit=np.float32(CLIP),
            **form._asdict(),
        )
    else:
        (y,) = library.call(library.FORWARD, [shape], x, kernel, bias, **form._asdict())
    return y


def _forward(
    x: jax.Array | Pixels, kernel: jax.Array, bias: jax.Array, form: Form
) -> tuple[jax.Array, Any]:
    y = _convolution(x, kernel, bias, form)
    return y, (x, kernel, y if form.rectify else None)


def _backward(form: Form, residuals: Any, gradient: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
    """Computes the three gradients; pixels have none, and XLA drops the call that nobody uses."""
    x, kernel, y = residuals
    y = gradient if y is None else y  # nobody reads it then
    shapes = [
        jax.ShapeDtypeStruct(shape, kernel.dtype) for shape in (kernel.shape, kernel.shape[3:])
    ]
    attributes = form._asdict()
    if isinstance(x, Pixels):
        return None, *library.call(
            library.WEIGHTS_BYTES, shapes, *x, y, gradient, limit=np.float32(CLIP), **attributes
        )
    of_kernel, of_bias = library.call(library.WEIGHTS, shapes, x, y, gradient, **attributes)
    return _gradient_of_inputs(form, x, kernel, y, gradient), of_kernel, of_bias


def _gradient_of_inputs(
    form: Form, x: jax.Array, kernel: jax.Array, y: jax.Array, gradient: jax.Array
) -> jax.Array:
    channels, lanes = x.shape[-1], library.lanes() or 1
    if missing := -channels % lanes:  # channels that are not there have weights of 0
        x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, missing)))
        kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, missing), (0, 0)))
        return _gradient_of_inputs(form, x, kernel, y, gradient)[..., :channels]
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    attributes = form._asdict()
    (of_inputs,) = library.call(library.INPUTS, [shape], x, kernel, y, gradient, **attributes)
    return of_inputs


_convolution.defvjp(_forward, _backward)
