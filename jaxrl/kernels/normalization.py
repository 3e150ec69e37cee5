"""Layer normalization and its gradients as calls of C++."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.kernels import library


class Form(NamedTuple):
    """The static parts of a normalization."""

    epsilon: float  # added to the variance
    rectify: bool  # whether outputs below 0 become 0


class Arrays(NamedTuple):
    """The inputs of a normalization."""

    x: jax.Array  # f32[N, C]
    scale: jax.Array  # f32[C]
    bias: jax.Array  # f32[C]


def fits(x: jax.Array, scale: jax.Array, bias: jax.Array) -> bool:
    """Returns whether the kernels normalize these rows: in float32, in whole registers."""
    lanes = library.lanes()
    float32 = all(array.dtype == jnp.float32 for array in (x, scale, bias))
    if lanes is None or not float32 or x.size == 0 or x.shape[-1] % lanes:
        return False
    return scale.shape == bias.shape == x.shape[-1:]


def normalize(x: jax.Array, scale: jax.Array, bias: jax.Array, form: Form) -> jax.Array:
    """Normalizes the rows of f32[..., C], by f32[C] each: f32[..., C]. `fits` must hold.

    y = (x - mean) / sqrt(variance + ε) ⊙ scale + bias, then rectified if the form says so.
    """
    rows = x.reshape(-1, x.shape[-1])
    return _normalize(Arrays(rows, scale, bias), form).reshape(x.shape)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _normalize(arrays: Arrays, form: Form) -> jax.Array:
    return _forward(arrays, form)[0]


def _like(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, jnp.float32)


def _forward(arrays: Arrays, form: Form) -> tuple[jax.Array, Arrays]:
    (y,) = library.call(library.NORMALIZE, [_like(arrays.x)], *arrays, **_attributes(form))
    return y, arrays


def _backward(form: Form, arrays: Arrays, gradient: jax.Array) -> tuple[Arrays]:
    shapes = [_like(array) for array in arrays]
    parts = library.call(
        library.NORMALIZE_GRADIENTS, shapes, *arrays, gradient, **_attributes(form)
    )
    return (Arrays(*parts),)


def _attributes(form: Form) -> dict[str, np.float32 | bool]:
    return {"epsilon": np.float32(form.epsilon), "rectify": form.rectify}


_normalize.defvjp(_forward, _backward)
