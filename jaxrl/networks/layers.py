"""Layers with the initialization that a configuration names (Flax Linen)."""

import functools
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.kernels import dense, normalization, pooling
from jaxrl.kernels.convolution import Form, Pixels
from jaxrl.networks.convolution import layer

EPSILON = 1e-6  # added to the variance that a normalization divides by
SMALLEST = 1e-30  # divisor, of what may be 0
NOISE = 0.5  # initial deviation of noisy weights, times the root of the inputs (Fortunato 2018)


def uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """Returns Torch 7's U(±1/sqrt(fan in)) for weights and biases, used by A3C and PAAC."""
    bound = fan_in**-0.5

    def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def largest_singular_value(matrix: jax.Array) -> jax.Array:
    """Returns σ = uᵀ W v of a matrix f32[M, N], whose gradient is u vᵀ (Miyato 2018, section 2.1).

    Squaring WᵀW eight times leaves hardly anything but its first eigenvector v, as 256 power
    iterations from any start do, so that no vector need be kept between steps.
    """
    fixed = jax.lax.stop_gradient(matrix)
    power = jnp.matmul(fixed.T, fixed, precision=jax.lax.Precision.HIGHEST)
    for _ in range(8):
        power = power / jnp.maximum(jnp.trace(power), SMALLEST)
        power = jnp.matmul(power, power, precision=jax.lax.Precision.HIGHEST)
    v = power[:, jnp.argmax(jnp.diagonal(power))]
    v = v / jnp.maximum(jnp.linalg.norm(v), SMALLEST)
    u = jnp.matmul(fixed, v, precision=jax.lax.Precision.HIGHEST)
    u = u / jnp.maximum(jnp.linalg.norm(u), SMALLEST)
    return jnp.sum(u[:, None] * matrix * v)


class Conv(nn.Module):
    """A convolution with bias; see `jaxrl.networks.convolution.layer`."""

    filters: int
    size: int
    form: Form
    init: str
    spectral_norm: bool = False  # the kernel is divided by its largest singular value

    @nn.compact
    def __call__(self, x: jax.Array | Pixels) -> jax.Array:
        """Maps [B, H, W, C] to [B, H', W', filters], in the dtype of x, or in float32 of pixels."""
        uniform = uniform_fan_in(self.size * self.size * x.shape[-1])
        orthogonal = self.init == "orthogonal"
        kernel = self.param(
            "kernel",
            nn.initializers.orthogonal(2**0.5) if orthogonal else uniform,
            (self.size, self.size, x.shape[-1], self.filters),
        )
        bias = self.param("bias", nn.initializers.zeros if orthogonal else uniform, (self.filters,))
        if self.spectral_norm:
            norm = largest_singular_value(kernel.reshape(-1, self.filters))
            kernel = kernel / jnp.maximum(norm, SMALLEST)
        dtype = jnp.float32 if isinstance(x, Pixels) else x.dtype
        return layer(x, kernel.astype(dtype), bias.astype(dtype), self.form)


class LayerNorm(nn.Module):
    """Normalizes the last axis: y = (x - mean) / sqrt(variance + 1e-6) ⊙ scale + bias (Ba 2016)."""

    rectify: bool = False  # outputs below 0 become 0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [..., C] to [..., C], in the dtype of x."""
        features = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, features)
        bias = self.param("bias", nn.initializers.zeros, features)
        if jax.default_backend() == "cpu" and normalization.fits(x, scale, bias):
            form = normalization.Form(EPSILON, self.rectify)
            return normalization.normalize(x, scale, bias, form)
        centered = x.astype(jnp.float32)
        centered = centered - centered.mean(axis=-1, keepdims=True)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        y = (centered * jax.lax.rsqrt(variance + EPSILON) * scale + bias).astype(x.dtype)
        return nn.relu(y) if self.rectify else y


def max_pool(x: jax.Array) -> jax.Array:
    """Pools by windows of 3 x 3, two apart: [B, H, W, C] -> [B, ceil(H / 2), ceil(W / 2), C]."""
    if jax.default_backend() == "cpu" and pooling.fits(x):
        return pooling.max_pool(x)
    y: jax.Array = nn.max_pool(x, (3, 3), (2, 2), "SAME")
    return y


def window_max_pool(
    x: jax.Array, window: int, stride: int, edges: Literal["SAME", "VALID"]
) -> jax.Array:
    """Takes the largest pixel of each square window: [B, H, W, C] -> [B, H', W', C].

    It goes by rows, then by columns, in elementwise operations. Equal pixels share the gradient.

    Args:
      x: images.
      window: pixels of the window's side.
      stride: pixels from one window to the next.
      edges: SAME pads windows that the border cuts, H' = ceil(H / stride); VALID leaves them out.
    """
    # With the gradient 14 ms of two busy cores, for 32 images of 84 x 84 x 32 and windows of 4 x 4;
    # XLA's own pooling took 73.
    for axis in (1, 2):
        length = x.shape[axis]
        if edges == "SAME":
            missing = max((-(-length // stride) - 1) * stride + window - length, 0)
            around = [(0, 0)] * x.ndim
            around[axis] = (missing // 2, missing - missing // 2)
            x = jnp.pad(x, around, constant_values=-jnp.inf)
            length += missing
        last = (length - window) // stride * stride  # where the last window begins
        pixels = [jax.lax.slice_in_dim(x, n, last + n + 1, stride, axis) for n in range(window)]
        x = functools.reduce(jnp.maximum, pixels)
    return x


def simplicial(x: jax.Array, groups: int, temperature: float) -> jax.Array:
    """Maps features [..., L · V] to a point on each of L simplices: f32[..., L · V].

    z̄ₗᵥ = exp(zₗᵥ / τ) / Σᵤ exp(zₗᵤ / τ)  (simplicial embeddings, Lavoie 2023)

    Args:
      x: z; the V features of a group are neighbors.
      groups: L, a divisor of the features.
      temperature: τ.
    """
    split = x.astype(jnp.float32).reshape(*x.shape[:-1], groups, -1)
    return jax.nn.softmax(split / temperature, axis=-1).reshape(x.shape)


def adaptive_max_pool(x: jax.Array, size: int) -> jax.Array:
    """Takes the largest pixel of each of size x size parts: [B, H, W, C] -> [B, size, size, C].

    Part i of n pixels goes from ⌊i n / size⌋ to ⌈(i + 1) n / size⌉: neighbors may share a pixel.
    """
    for axis in (1, 2):
        length = x.shape[axis]
        ends = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        parts = [jax.lax.slice_in_dim(x, *part, axis=axis).max(axis) for part in ends]
        x = jnp.stack(parts, axis)
    return x


def multiplied(x: jax.Array, weights: jax.Array, bfloat16: bool = False) -> jax.Array:
    """Multiplies [..., C] by [C, F]: by the kernels of C++ on CPUs where they fit, else by XLA.

    There the factors of a product of bfloat16 are rounded to it, in arrays of float32.
    """
    if jax.default_backend() == "cpu" and dense.fits(x, weights):
        y = dense.product(x.reshape(-1, x.shape[-1]), weights, bfloat16)
        return y.reshape(*x.shape[:-1], -1)
    return x @ weights


class Dense(nn.Module):
    """A fully connected layer, with the initialization that the configuration names."""

    features: int
    gain: float
    init: str
    bfloat16: bool = False  # see `multiplied`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [B, C] to [B, features], computed in the dtype of x."""

        def product(x: jax.Array, weights: jax.Array, *_: Any, **__: Any) -> jax.Array:
            return multiplied(x, weights, self.bfloat16)

        uniform = uniform_fan_in(x.shape[-1])
        orthogonal = self.init == "orthogonal"
        return nn.Dense(
            self.features,
            kernel_init=nn.initializers.orthogonal(self.gain) if orthogonal else uniform,
            bias_init=nn.initializers.zeros if orthogonal else uniform,
            dtype=x.dtype,
            dot_general=product,
        )(x)


class NoisyDense(nn.Module):
    """A fully connected layer whose weights have learned noise (Fortunato 2018, section 3, b).

    y = (μ + σ ⊙ f(εₒ) f(εᵢ)ᵀ) x + μ_b + σ_b ⊙ f(εₒ),  f(ε) = sgn(ε) √|ε|

    with separate normal εᵢ and εₒ for every row.
    """

    features: int
    number: int  # index of the layer in the network; no two layers have the same noise
    bfloat16: bool = False  # see `multiplied`

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any) -> jax.Array:
        """Maps [B, ..., C], key[B] to [B, ..., features] in the dtype of x; None: mean weights."""
        inputs = x.shape[-1]
        uniform, shape = uniform_fan_in(inputs), (inputs, self.features)
        deviation = nn.initializers.constant(NOISE * inputs**-0.5)
        kernel, bias = self.param("kernel", uniform, shape), self.param("bias", uniform, shape[1:])
        kernel_noise = self.param("kernel_noise", deviation, shape)
        bias_noise = self.param("bias_noise", deviation, shape[1:])

        def product(x: jax.Array, weights: jax.Array) -> jax.Array:
            return multiplied(x, weights.astype(x.dtype), self.bfloat16)

        y = product(x, kernel) + bias.astype(x.dtype)
        if noise is None:
            return y

        def draw(key: jax.Array) -> jax.Array:
            sample = jax.random.normal(jax.random.fold_in(key, self.number), (sum(shape),))
            return jnp.sign(sample) * jnp.sqrt(jnp.abs(sample))

        drawn = jax.vmap(draw)(noise).astype(x.dtype)
        drawn = drawn.reshape(len(drawn), *(1,) * (x.ndim - 2), -1)
        within, out = jnp.split(drawn, [inputs], axis=-1)
        return y + out * (product(x * within, kernel_noise) + bias_noise.astype(x.dtype))
