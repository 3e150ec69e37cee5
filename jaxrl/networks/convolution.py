"""The one convolution: by C++ on CPUs, or there by matrix products, by XLA elsewhere.

On CPUs, XLA's weight gradient is 30 times too slow inside a loop. The form for CPUs cuts the
image into blocks as large as the stride and sums over the few blocks under the kernel (4 for the
8 x 8 kernel of stride 4), each times its part of the kernel. It copies the blocks, once for every
shift, or, where they are less than half as large, the outputs: in the first layer of NIPS' network.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.kernels import library
from jaxrl.kernels.convolution import Form, Pixels, convolution, fits


def xla_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes `conv2d`, with its shapes, by XLA's operation."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cut(image: jax.Array, size: int) -> jax.Array:
    """Cuts [..., H, W, C] into square blocks: [..., H / size, W / size, size, size, C]."""
    *leading, height, width, channels = image.shape
    blocks = image.reshape(*leading, height // size, size, width // size, size, channels)
    return jnp.swapaxes(blocks, -4, -3)


def join(blocks: jax.Array) -> jax.Array:
    """Joins the blocks of `cut`: [..., H / size, W / size, size, size, C] -> [..., H, W, C]."""
    *leading, rows, columns, size, _, channels = blocks.shape
    image = jnp.swapaxes(blocks, -4, -3)
    return image.reshape(*leading, rows * size, columns * size, channels)


def cut_bytes(image: jax.Array, size: int) -> jax.Array:
    """Cuts u8[..., H, W, 4] as `cut` does; the four bytes of a pixel move as one word.

    XLA moves one element at a time on a CPU, a float as slowly as four bytes.
    """
    if image.shape[-1] != 4:
        return cut(image, size)
    words = jax.lax.bitcast_convert_type(image, jnp.uint32)[..., None]
    return jax.lax.bitcast_convert_type(cut(words, size)[..., 0], jnp.uint8)


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
    _, height, width, _ = x.shape
    shifts = -(-size // stride)  # s, blocks that a kernel spans
    rows, columns = ((length - size) // stride + shifts for length in (height, width))
    x = _pad_to(x, (rows * stride, columns * stride), (1, 2))
    x = x[:, : rows * stride, : columns * stride]
    x = cut(x, stride)
    kernel = _pad_to(kernel, (shifts * stride, shifts * stride), (0, 1))
    kernel = kernel.reshape(shifts, stride, shifts, stride, channels, filters)
    # Filters first: a weight gradient with its short side first is three times faster.
    parts = kernel.transpose(0, 2, 5, 1, 3, 4).reshape(shifts, shifts, filters, -1)
    return x.reshape(*x.shape[:3], -1), parts


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


@jax.custom_vjp
def _product(blocks: jax.Array, parts: jax.Array) -> jax.Array:
    """Convolves [B, H' + s - 1, W' + s - 1, C'] with [s, s, F, C'] by one product: [B, H', W', F].

    All blocks are multiplied by all parts; products at the borders go unused. Either gradient is
    one product too, with the output's gradient shifted to where each part has its block.
    """
    shifts = len(parts)
    y = _times(blocks, parts.reshape(-1, parts.shape[-1]))
    y = y.reshape(*y.shape[:3], *parts.shape[:3])
    return _sum_over_shifts(lambda i, j, rows, columns: y[:, rows, columns, i, j], blocks, shifts)


def _product_forward(blocks: jax.Array, parts: jax.Array) -> tuple[jax.Array, Any]:
    return _product(blocks, parts), (blocks, parts)


def _product_backward(inputs: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    blocks, parts = inputs
    last = len(parts) - 1
    shifted = [
        jnp.pad(gradient, ((0, 0), (i, last - i), (j, last - j), (0, 0)))
        for i in range(last + 1)
        for j in range(last + 1)
    ]
    rows = jnp.concatenate(shifted, axis=3)
    rows = rows.reshape(-1, rows.shape[-1])  # XLA copies again for a product over three axes
    to_parts = rows.T @ blocks.reshape(-1, blocks.shape[-1])
    to_blocks = rows @ parts.reshape(-1, parts.shape[-1])
    return to_blocks.reshape(blocks.shape), to_parts.reshape(parts.shape)


_product.defvjp(_product_forward, _product_backward)


def _multiply_then_shift(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes one product of all blocks with all parts, which copies nothing before it."""
    return _product(*_blocks(x, kernel, stride))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def block_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Computes `conv2d`, with its shapes, by matrix products.

    One product without a gradient or where blocks are much longer than outputs, else one for every
    shift.
    """
    return _multiply_then_shift(x, kernel, stride)


def _forward(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, Any]:
    filters, block = kernel.shape[-1], stride * stride * kernel.shape[-2]
    form = _multiply_then_shift if 2 * filters < block else _shift_then_multiply
    return jax.vjp(partial(form, stride=stride), x, kernel)


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


def product_layer(
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array,
    form: Form,
    conv: Callable[[jax.Array, jax.Array, int], jax.Array] = conv2d,
) -> jax.Array:
    """Computes `layer` by operations of XLA, with this convolution."""
    if form.rectify_inputs:
        x = jax.nn.relu(x)
    if form.padding:
        around = (form.padding, form.padding)
        x = jnp.pad(x, ((0, 0), around, around, (0, 0)))
    y = conv(x, kernel, form.stride) + bias
    return jax.nn.relu(y) if form.rectify else y


def layer(x: jax.Array | Pixels, kernel: jax.Array, bias: jax.Array, form: Form) -> jax.Array:
    """Computes a layer, by the kernels of C++ where they fit; see `kernels.convolution`."""
    if isinstance(x, Pixels) or (jax.default_backend() == "cpu" and fits(x, kernel)):
        return convolution(x, kernel, bias, form)
    return product_layer(x, kernel, bias, form)


def has_kernels() -> bool:
    """Returns whether the kernels of C++ are there."""
    return jax.default_backend() == "cpu" and library.lanes() is not None


def cuts_blocks() -> bool:
    """Returns whether a first layer takes its image in blocks: on CPUs without the kernels."""
    return jax.default_backend() == "cpu" and not has_kernels()


def dtype_of_layers(dtype: str) -> str:
    """Returns the type of what goes from layer to layer: on CPUs always float32."""
    return "float32" if jax.default_backend() == "cpu" else dtype


def multiplies_bfloat16(dtype: str) -> bool:
    """Returns whether the kernels multiply in bfloat16: the type is, and the processor can."""
    return dtype == "bfloat16" and has_kernels() and library.multiplies_bfloat16()
