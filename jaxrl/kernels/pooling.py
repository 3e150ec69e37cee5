"""Max-pooling by windows of 3 x 3 pixels, two apart, and its gradient, as calls of C++."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.kernels import library


def fits(x: jax.Array) -> bool:
    """Returns whether the kernels pool these images: in float32, in whole registers."""
    lanes = library.lanes()
    return lanes is not None and x.dtype == jnp.float32 and x.shape[-1] % lanes == 0


def max_pool(x: jax.Array) -> jax.Array:
    """Takes the largest pixel of each window: f32[B, H, W, C] -> f32[B, ceil(H/2), ceil(W/2), C].

    The gradient of an output goes to the first of its largest pixels. `fits` must hold.
    """
    return _max_pool(x, x.shape)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _max_pool(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return _forward(x, shape)[0]


def _forward(x: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    images, height, width, channels = shape
    outputs = images, -(-height // 2), -(-width // 2), channels
    shapes = [jax.ShapeDtypeStruct(outputs, dtype) for dtype in (jnp.float32, jnp.uint8)]
    y, places = library.call(library.MAX_POOL, shapes, x)
    return y, places


def _backward(shape: tuple[int, ...], places: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    (of_inputs,) = library.call(
        library.MAX_POOL_GRADIENT, [jax.ShapeDtypeStruct(shape, jnp.float32)], places, gradient
    )
    return (of_inputs,)


_max_pool.defvjp(_forward, _backward)
