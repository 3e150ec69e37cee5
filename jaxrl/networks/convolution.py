"""The one convolution: the same numbers everywhere, written for CPUs as products of matrices.

There XLA's own weight gradient is 30 times too slow inside a loop. So the image is cut into blocks
as large as the stride, and the convolution is a sum over the few blocks under the kernel (4 for the
8 x 8 kernel of stride 4), each times its part of the kernel.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def xla_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """`conv2d`, with its shapes, as XLA's own operation."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pad_to(array: jax.Array, lengths: tuple[int, int], axes: tuple[int, int]) -> jax.Array:
    padding = [(0, 0)] * array.ndim
    for axis, length in zip(axes, lengths, strict=True):
        padding[axis] = (0, max(0, length - array.shape[axis]))
    return jnp.pad(array, padding)


def _blocks(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, jax.Array]:
    """The image in blocks [B, H' + s - 1, W' + s - 1, C'] and the kernel's parts [s, s, F, C']."""
    size, _, channels, filters = kernel.shape
    batch, height, width, _ = x.shape
    shifts = -(-size // stride)  # s, blocks that a kernel spans
    rows, columns = ((length - size) // stride + shifts for length in (height, width))
    x = _pad_to(x, (rows * stride, columns * stride), (1, 2))
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    kernel = _pad_to(kernel, (shifts * stride, shifts * stride), (0, 1))
    kernel = kernel.reshape(shifts, stride, shifts, stride, channels, filters)
    # Filters first: the weight gradient then has its short side first, which is three times faster.
    parts = kernel.transpose(0, 2, 5, 1, 3, 4).reshape(shifts, shifts, filters, -1)
    return x.reshape(batch, rows, columns, -1), parts


def _sum_over_shifts(
    term: Callable[[int, int, slice, slice], jax.Array], blocks: jax.Array, shifts: int
) -> jax.Array:
    """Σ over i, j of term(i, j, the rows and the columns of blocks under part (i, j)).

    Terms are [B, H', W', F].
    """
    rows, columns = (length - shifts + 1 for length in blocks.shape[1:3])
    terms = [
        term(i, j, slice(i, i + rows), slice(j, j + columns))
        for i in range(shifts)
        for j in range(shifts)
    ]
    return jnp.asarray(sum(terms))


def _times(rows: jax.Array, columns: jax.Array) -> jax.Array:
    """[..., C'] times the transpose of [F, C'] -> [..., F]."""
    flat = rows.reshape(-1, rows.shape[-1])
    y = jax.lax.dot_general(flat, columns, (((1,), (1,)), ((), ())))
    return y.reshape(*rows.shape[:-1], -1)


def _shift_then_multiply(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """A product for every shift: its copies of blocks serve the weight gradient again."""
    blocks, parts = _blocks(x, kernel, stride)
    return _sum_over_shifts(
        lambda i, j, rows, columns: _times(blocks[:, rows, columns], parts[i, j]),
        blocks,
        len(parts),
    )


def _multiply_then_shift(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """One product of all blocks with all parts: nothing is copied before it."""
    blocks, parts = _blocks(x, kernel, stride)
    y = _times(blocks, parts.reshape(-1, parts.shape[-1]))
    y = y.reshape(*y.shape[:3], *parts.shape[:3])
    return _sum_over_shifts(
        lambda i, j, rows, columns: y[:, rows, columns, i, j], blocks, len(parts)
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def block_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """`conv2d`, with its shapes, as products of matrices.

    One product where no gradient follows, else one for every shift.
    """
    return _multiply_then_shift(x, kernel, stride)


def _forward(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, Any]:
    return jax.vjp(partial(_shift_then_multiply, stride=stride), x, kernel)


def _backward(stride: int, pullback: Any, gradient: jax.Array) -> Any:
    return pullback(gradient)


block_convolution.defvjp(_forward, _backward)


def conv2d(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Square convolution without padding: f32[B, H, W, C] * f32[K, K, C, F] -> f32[B, H', W', F].

    H' = (H - K) // stride + 1.
    """
    if jax.default_backend() == "cpu":
        return block_convolution(x, kernel, stride)
    return xla_convolution(x, kernel, stride)
