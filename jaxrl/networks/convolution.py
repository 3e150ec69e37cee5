"""The one convolution, with a form for CPUs that consists of matrix products.

On CPUs, XLA's own weight gradient is 30 times too slow inside a loop. The form for CPUs cuts the
image into blocks as large as the stride and sums over the few blocks under the kernel (4 for the
8 x 8 kernel of stride 4), each times its part of the kernel.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def xla_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes `conv2d`, with its shapes, by XLA's own operation."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pad_to(array: jax.Array, lengths: tuple[int, int], axes: tuple[int, int]) -> jax.Array:
    """Pads the axes with zeros at their ends, up to the lengths."""
    padding = [(0, 0)] * array.ndim
    for axis, length in zip(axes, lengths, strict=True):
        padding[axis] = (0, max(0, length - array.shape[axis]))
    return jnp.pad(array, padding)


def _blocks(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, jax.Array]:
    """Cuts the image and the kernel into blocks as large as the stride.

    Returns [B, H' + s - 1, W' + s - 1, C'] of the image and [s, s, F, C'] of the kernel.
    """
    size, _, channels, filters = kernel.shape
    batch, height, width, _ = x.shape
    shifts = -(-size // stride)  # s, blocks that a kernel spans
    rows, columns = ((length - size) // stride + shifts for length in (height, width))
    x = _pad_to(x, (rows * stride, columns * stride), (1, 2))
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    kernel = _pad_to(kernel, (shifts * stride, shifts * stride), (0, 1))
    kernel = kernel.reshape(shifts, stride, shifts, stride, channels, filters)
    # Filters first: a weight gradient with its short side first is three times faster.
    parts = kernel.transpose(0, 2, 5, 1, 3, 4).reshape(shifts, shifts, filters, -1)
    return x.reshape(batch, rows, columns, -1), parts


def _sum_over_shifts(
    term: Callable[[int, int, slice, slice], jax.Array], blocks: jax.Array, shifts: int
) -> jax.Array:
    """Sums term(i, j, rows, columns) over the parts (i, j) of the kernel.

    The rows and columns are those of the blocks under the part; terms are [B, H', W', F].
    """
    rows, columns = (length - shifts + 1 for length in blocks.shape[1:3])
    terms = [
        term(i, j, slice(i, i + rows), slice(j, j + columns))
        for i in range(shifts)
        for j in range(shifts)
    ]
    return jnp.asarray(sum(terms))


def _times(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Multiplies [..., C'] by the transpose of [F, C']: [..., F]."""
    flat = rows.reshape(-1, rows.shape[-1])
    y = jax.lax.dot_general(flat, columns, (((1,), (1,)), ((), ())))
    return y.reshape(*rows.shape[:-1], -1)


def _shift_then_multiply(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes a product for every shift; the weight gradient uses its copies of blocks again."""
    blocks, parts = _blocks(x, kernel, stride)
    return _sum_over_shifts(
        lambda i, j, rows, columns: _times(blocks[:, rows, columns], parts[i, j]),
        blocks,
        len(parts),
    )


def _multiply_then_shift(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes one product of all blocks with all parts, which copies nothing before it."""
    blocks, parts = _blocks(x, kernel, stride)
    y = _times(blocks, parts.reshape(-1, parts.shape[-1]))
    y = y.reshape(*y.shape[:3], *parts.shape[:3])
    return _sum_over_shifts(
        lambda i, j, rows, columns: y[:, rows, columns, i, j], blocks, len(parts)
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def block_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes `conv2d`, with its shapes, by matrix products.

    One product without a gradient, else one for every shift.
    """
    return _multiply_then_shift(x, kernel, stride)


def _forward(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, Any]:
    return jax.vjp(partial(_shift_then_multiply, stride=stride), x, kernel)


def _backward(stride: int, pullback: Any, gradient: jax.Array) -> Any:
    return pullback(gradient)


block_convolution.defvjp(_forward, _backward)


def conv2d(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Convolves with a square kernel, without padding.

    f32[B, H, W, C], f32[K, K, C, F] -> f32[B, H', W', F] with H' = (H - K) // stride + 1.
    """
    if jax.default_backend() == "cpu":
        return block_convolution(x, kernel, stride)
    return xla_convolution(x, kernel, stride)
