"""The one convolution: the same numbers everywhere, a lowering of its own on CPUs.

There XLA's weight gradient is 30 times too slow inside a loop, so a gradient goes by way of patches
times a matrix, and the patches of the forward pass serve again in the backward pass.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def _convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pad_to(array: jax.Array, lengths: tuple[int, int], axes: tuple[int, int]) -> jax.Array:
    padding = [(0, 0)] * array.ndim
    for axis, length in zip(axes, lengths, strict=True):
        padding[axis] = (0, max(0, length - array.shape[axis]))
    return jnp.pad(array, padding)


def _patches(x: jax.Array, size: int, stride: int) -> jax.Array:
    """What each output pixel sees: f32[B, H, W, C] -> f32[B, H', W', P].

    The stride is folded into channels first, so that patches are a few shifted copies of large
    blocks (4 for the 8 x 8 kernel of stride 4, instead of 64).
    """
    batch, height, width, channels = x.shape
    shifts = -(-size // stride)  # blocks that a kernel spans
    out_height, out_width = (height - size) // stride + 1, (width - size) // stride + 1
    rows, columns = out_height + shifts - 1, out_width + shifts - 1
    x = _pad_to(x, (rows * stride, columns * stride), (1, 2))
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(batch, rows, columns, stride * stride * channels)
    return jnp.concatenate(
        [x[:, i : i + out_height, j : j + out_width] for i in range(shifts) for j in range(shifts)],
        axis=-1,
    )


def _kernel_matrix(kernel: jax.Array, stride: int) -> jax.Array:
    """The kernel as the patches have their pixels: f32[K, K, C, F] -> f32[P, F]."""
    size, _, channels, filters = kernel.shape
    shifts = -(-size // stride)
    kernel = _pad_to(kernel, (shifts * stride, shifts * stride), (0, 1))
    kernel = kernel.reshape(shifts, stride, shifts, stride, channels, filters)
    return kernel.transpose(0, 2, 1, 3, 4, 5).reshape(-1, filters)


def patches_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """`conv2d` as patches times a matrix."""
    return _patches(x, kernel.shape[0], stride) @ _kernel_matrix(kernel, stride)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def cpu_conv2d(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """`conv2d` for CPUs: by way of patches, but where few filters want no gradient."""
    few = kernel.shape[-1] < 32
    return (_convolution if few else patches_convolution)(x, kernel, stride)


def _patches_forward(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, Any]:
    patches = _patches(x, kernel.shape[0], stride)
    return patches @ _kernel_matrix(kernel, stride), (x, kernel, patches)


def _patches_backward(stride: int, residuals: Any, gradient: jax.Array) -> Any:
    x, kernel, patches = residuals
    matrix, to_kernel = jax.vjp(lambda k: _kernel_matrix(k, stride), kernel)
    to_x = jax.vjp(lambda x: _patches(x, kernel.shape[0], stride), x)[1]
    filters, pixels = gradient.shape[-1], patches.shape[-1]
    # The short side first: this product is two to three times faster than its transpose.
    weight = gradient.reshape(-1, filters).T @ patches.reshape(-1, pixels)
    return *to_x(gradient @ matrix.T), *to_kernel(weight.T)


cpu_conv2d.defvjp(_patches_forward, _patches_backward)


def conv2d(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Square convolution without padding: f32[B, H, W, C] * f32[K, K, C, F] -> f32[B, H', W', F].

    H' = (H - K) // stride + 1. On a CPU the gradient goes by way of patches.
    """
    if jax.default_backend() == "cpu":
        return cpu_conv2d(x, kernel, stride)
    return _convolution(x, kernel, stride)
