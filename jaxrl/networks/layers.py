"""Layers with the initialization that a configuration names (Flax Linen)."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.kernels import pooling
from jaxrl.kernels.convolution import Form, Pixels
from jaxrl.networks.convolution import layer

NOISE = 0.5  # initial deviation of noisy weights, times the root of the inputs (Fortunato 2018)


def uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """Returns Torch 7's U(±1/sqrt(fan in)) for weights and biases, used by A3C and PAAC."""
    bound = fan_in**-0.5

    def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class Conv(nn.Module):
    """A convolution with bias; see `jaxrl.networks.convolution.layer`."""

    filters: int
    size: int
    form: Form
    init: str

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
        dtype = jnp.float32 if isinstance(x, Pixels) else x.dtype
        return layer(x, kernel.astype(dtype), bias.astype(dtype), self.form)


def max_pool(x: jax.Array) -> jax.Array:
    """Pools by windows of 3 x 3, two apart: [B, H, W, C] -> [B, ceil(H / 2), ceil(W / 2), C]."""
    if jax.default_backend() == "cpu" and pooling.fits(x):
        return pooling.max_pool(x)
    y: jax.Array = nn.max_pool(x, (3, 3), (2, 2), "SAME")
    return y


class Dense(nn.Module):
    """A fully connected layer, with the initialization that the configuration names."""

    features: int
    gain: float
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [B, C] to [B, features], computed in the dtype of x."""
        if self.init == "orthogonal":
            weights = nn.initializers.orthogonal(self.gain)
            return nn.Dense(self.features, kernel_init=weights, dtype=x.dtype)(x)
        uniform = uniform_fan_in(x.shape[-1])
        return nn.Dense(self.features, kernel_init=uniform, bias_init=uniform, dtype=x.dtype)(x)


class NoisyDense(nn.Module):
    """A fully connected layer whose weights have learned noise (Fortunato 2018, section 3, b).

    y = (μ + σ ⊙ f(εₒ) f(εᵢ)ᵀ) x + μ_b + σ_b ⊙ f(εₒ),  f(ε) = sgn(ε) √|ε|

    with separate normal εᵢ and εₒ for every row.
    """

    features: int
    number: int  # index of the layer in the network; no two layers have the same noise

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any) -> jax.Array:
        """Maps [B, C], key[B] to [B, features] in the dtype of x; without keys by mean weights."""
        inputs = x.shape[-1]
        uniform, shape = uniform_fan_in(inputs), (inputs, self.features)
        deviation = nn.initializers.constant(NOISE * inputs**-0.5)
        kernel, bias = self.param("kernel", uniform, shape), self.param("bias", uniform, shape[1:])
        kernel_noise = self.param("kernel_noise", deviation, shape)
        bias_noise = self.param("bias_noise", deviation, shape[1:])
        y = x @ kernel.astype(x.dtype) + bias.astype(x.dtype)
        if noise is None:
            return y

        def draw(key: jax.Array) -> jax.Array:
            sample = jax.random.normal(jax.random.fold_in(key, self.number), (sum(shape),))
            return jnp.sign(sample) * jnp.sqrt(jnp.abs(sample))

        within, out = jnp.split(jax.vmap(draw)(noise).astype(x.dtype), [inputs], axis=1)
        return y + out * ((x * within) @ kernel_noise.astype(x.dtype) + bias_noise.astype(x.dtype))
