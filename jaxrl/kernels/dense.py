"""The product of a fully connected layer, and its gradients, as calls of C++."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.kernels import library


def fits(x: jax.Array, weights: jax.Array) -> bool:
    """Returns whether the kernels multiply these arrays: float32, in tiles of two registers."""
    lanes = library.lanes()
    whole = lanes is not None and all(length % (2 * lanes) == 0 for length in weights.shape)
    return whole and x.dtype == weights.dtype == jnp.float32 and x.size > 0


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: jax.Array, weights: jax.Array, bfloat16: bool = False) -> jax.Array:
    """Multiplies rows by weights: f32[B, C], f32[C, F] -> f32[B, F].

    `fits` must hold. The order of all sums is fixed, whatever the number of threads. For bfloat16
    the factors, also of the gradients, are rounded to it, and sums are not.
    """
    shape = jax.ShapeDtypeStruct((len(x), weights.shape[1]), jnp.float32)
    (y,) = library.call(library.DENSE, [shape], x, weights, bfloat16=bfloat16)
    return y


def _forward(
    x: jax.Array, weights: jax.Array, bfloat16: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return product(x, weights, bfloat16), (x, weights)


def _backward(
    bfloat16: bool, factors: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weights = factors
    of_x, of_weights = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in factors)
    (to_x,) = library.call(library.DENSE_INPUTS, [of_x], weights, gradient, bfloat16=bfloat16)
    (to_weights,) = library.call(
        library.DENSE_WEIGHTS, [of_weights], x, gradient, bfloat16=bfloat16
    )
    return to_x, to_weights


product.defvjp(_forward, _backward)
