"""Torsos, heads and observation normalisation (Flax Linen).

Every convolution is the `Conv` below: the same numbers everywhere, with a gradient of its own on
CPUs, where XLA's weight gradient is 30 times too slow inside a loop.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.optimizers import mean_over_devices
from jaxrl.types import AXIS, FRAME_SHAPE, STACK_SIZE


class PolicyValue(NamedTuple):
    """What a policy-value network says of each row."""

    logits: jax.Array  # f32[B, A], of the policy
    value: jax.Array  # f32[B], expected return


# --- the convolution -----------------------------------------------------------------------------


def _convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def patches_convolution(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """`conv2d` as patches times a matrix.

    The stride is folded into channels first, so that patches are a few shifted copies of large
    blocks (4 for the 8 x 8 kernel of stride 4, instead of 64). Shapes as `conv2d`.
    """
    size, _, channels, filters = kernel.shape
    batch, height, width, _ = x.shape
    shifts = -(-size // stride)  # blocks that a kernel spans
    out_height, out_width = (height - size) // stride + 1, (width - size) // stride + 1

    def pad_to(array: jax.Array, lengths: tuple[int, int], axes: tuple[int, int]) -> jax.Array:
        padding = [(0, 0)] * array.ndim
        for axis, length in zip(axes, lengths, strict=True):
            padding[axis] = (0, max(0, length - array.shape[axis]))
        return jnp.pad(array, padding)

    rows, columns = out_height + shifts - 1, out_width + shifts - 1
    x = pad_to(x, (rows * stride, columns * stride), (1, 2))
    x = x[:, : rows * stride, : columns * stride]
    x = x.reshape(batch, rows, stride, columns, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(batch, rows, columns, stride * stride * channels)
    patches = jnp.concatenate(
        [x[:, i : i + out_height, j : j + out_width] for i in range(shifts) for j in range(shifts)],
        axis=-1,
    )
    kernel = pad_to(kernel, (shifts * stride, shifts * stride), (0, 1))
    kernel = kernel.reshape(shifts, stride, shifts, stride, channels, filters)
    matrix = kernel.transpose(0, 2, 1, 3, 4, 5).reshape(-1, filters)
    return patches @ matrix


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def conv2d(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Square convolution without padding: f32[B, H, W, C] * f32[K, K, C, F] -> f32[B, H', W', F].

    H' = (H - K) // stride + 1. On a CPU the gradient goes by way of patches.
    """
    return _convolution(x, kernel, stride)


def _conv2d_forward(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, Any]:
    return _convolution(x, kernel, stride), (x, kernel)


def _conv2d_backward(stride: int, residuals: Any, gradient: jax.Array) -> Any:
    def through(convolution: Any) -> Any:
        def pull_back(x: jax.Array, kernel: jax.Array, gradient: jax.Array) -> Any:
            _, vjp = jax.vjp(lambda a, b: convolution(a, b, stride), x, kernel)
            return vjp(gradient)

        return pull_back

    return jax.lax.platform_dependent(
        *residuals,
        gradient,
        cpu=through(patches_convolution),
        default=through(_convolution),
    )


conv2d.defvjp(_conv2d_forward, _conv2d_backward)


def _uniform_fan_in(fan_in: int) -> nn.initializers.Initializer:
    """U(±1/sqrt(fan in)) for weights and biases: Torch 7's, used by A3C and PAAC."""
    bound = fan_in**-0.5

    def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class Conv(nn.Module):
    """A convolution with bias; see `conv2d`."""

    filters: int
    size: int
    stride: int
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, C] -> f32[B, H', W', filters]."""
        uniform = _uniform_fan_in(self.size * self.size * x.shape[-1])
        orthogonal = self.init == "orthogonal"
        kernel = self.param(
            "kernel",
            nn.initializers.orthogonal(2**0.5) if orthogonal else uniform,
            (self.size, self.size, x.shape[-1], self.filters),
        )
        bias = self.param("bias", nn.initializers.zeros if orthogonal else uniform, (self.filters,))
        return conv2d(x, kernel, self.stride) + bias


class Dense(nn.Module):
    """A fully connected layer, with the initialisation that the configuration names."""

    features: int
    gain: float
    init: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, C] -> f32[B, features]."""
        if self.init == "orthogonal":
            return nn.Dense(self.features, kernel_init=nn.initializers.orthogonal(self.gain))(x)
        uniform = _uniform_fan_in(x.shape[-1])
        return nn.Dense(self.features, kernel_init=uniform, bias_init=uniform)(x)


# --- the networks --------------------------------------------------------------------------------

# (filters, kernel size, stride) of each convolution, then the units of the dense layer
TORSOS: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    "nips": (((16, 8, 4), (32, 4, 2)), 256),  # Mnih 2013
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),  # Mnih 2015
}


class PolicyValueNetwork(nn.Module):
    """A convolutional torso shared by a policy head and a value head."""

    num_actions: int
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> PolicyValue:
        """f32[B, 84, 84, 4], as `normalise` gives it."""
        layers, units = TORSOS[self.config.torso]
        init = self.config.init
        for filters, size, stride in layers:
            x = nn.relu(Conv(filters, size, stride, init)(x))
        x = nn.relu(Dense(units, 2**0.5, init)(x.reshape(x.shape[0], -1)))
        logits = Dense(self.num_actions, 0.01, init)(x)
        value = Dense(1, 1.0, init)(x)
        return PolicyValue(logits, value[:, 0])


# --- observation normalisation -------------------------------------------------------------------


class ObservationStatistics(NamedTuple):
    """Running statistics of each pixel, over all environments and devices."""

    frames: jax.Array  # f32[], frames seen
    mean: jax.Array  # f32[84, 84, 1], of pixels scaled to [0, 1]
    variance: jax.Array  # f32[84, 84, 1]


MAX_COUNT = 1e7  # beyond it float32 loses increments; the statistics then forget exponentially
CLIP = 5.0  # standard deviations


def init_statistics(config: NetworkConfig) -> Any:
    """No statistics where the configuration does not normalise: ()."""
    if not config.normalise_observations:
        return ()
    pixels = (*FRAME_SHAPE, 1)
    return ObservationStatistics(jnp.zeros(()), jnp.zeros(pixels), jnp.ones(pixels))


def update_statistics(statistics: Any, frames: jax.Array) -> Any:
    """Merges a batch u8[..., 84, 84] of every device (Chan 1979: parallel mean and variance)."""
    if statistics == ():
        return ()
    x = frames.reshape(-1, *FRAME_SHAPE, 1).astype(jnp.float32) / 255
    mean, square = mean_over_devices((x.mean(0), jnp.square(x).mean(0)))
    batch = x.shape[0] * jax.lax.axis_size(AXIS)
    frames_seen = statistics.frames + batch
    delta = mean - statistics.mean
    variance = jnp.maximum(square - jnp.square(mean), 0)
    share = batch / frames_seen
    merged = (
        statistics.variance * (1 - share)
        + variance * share
        + jnp.square(delta) * share * (1 - share)
    )
    return ObservationStatistics(
        jnp.minimum(frames_seen, MAX_COUNT), statistics.mean + delta * share, merged
    )


def normalise(observation: jax.Array, statistics: Any) -> jax.Array:
    """u8[..., 84, 84, 4] -> f32: scaled to [0, 1], or by the statistics and clipped to ±5."""
    x = observation.astype(jnp.float32) / 255
    if statistics == ():
        return x
    # A pixel that has never changed has no variance; what it shows later is clipped.
    x = (x - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-5)
    return jnp.clip(x, -CLIP, CLIP)


def init_params(network: nn.Module, key: jax.Array) -> Any:
    """Parameters for one stack of 84 x 84 frames."""
    return network.init(key, jnp.zeros((1, *FRAME_SHAPE, STACK_SIZE)))["params"]
