"""Torsos: from normalized frames to features."""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import extensions
from jaxrl.config.convolutions import (
    CONVOLUTIONS,
    HADAMAX,
    IMPALA_FILTERS,
    Block,
    convolutions,
    units_above,
)
from jaxrl.config.network import TORSOS, NetworkConfig
from jaxrl.errors import UserError, first_line
from jaxrl.kernels.convolution import Form, Pixels
from jaxrl.networks.convolution import dtype_of_layers, has_kernels, multiplies_bfloat16
from jaxrl.networks.layers import (
    Conv,
    Dense,
    LayerNorm,
    NoisyDense,
    adaptive_max_pool,
    max_pool,
    simplicial,
    window_max_pool,
)


class ImpalaSection(nn.Module):
    """A convolution, max-pooling by 2, and two residual blocks of two convolutions each.

    They are as in Espeholt 2018, with the spectral norm of Beyond the Rainbow (Clark 2024). Layer
    normalization is over the channels of a pixel, as in other torsos; Clark's is over the image.
    """

    filters: int
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: jax.Array | Pixels) -> jax.Array:
        """Maps f32[B, H, W, C] to f32[B, ceil(H / 2), ceil(W / 2), filters]."""
        init = self.config.init
        form = Form(padding=1, bfloat16=multiplies_bfloat16(self.config.dtype))
        y = Conv(self.filters, 3, form, init)(x)
        if self.config.layer_norm:
            y = LayerNorm()(y)
        y = max_pool(y)

        def residual(x: jax.Array) -> jax.Array:
            inner = form._replace(rectify_inputs=True)
            return Conv(self.filters, 3, inner, init, self.config.spectral_norm)(x)

        for _ in range(2):
            y = y + residual(residual(y))
        return y


class HadamaxBlock(nn.Module):
    """The product of two activated convolutions, and max pooling (Hadamax, Kooi 2025).

    y = max pool(gelu(LN(W₁ * x + b₁)) ⊙ gelu(LN(W₂ * x + b₂)))
    """

    block: Block
    edges: Literal["SAME", "VALID"]  # windows at the borders
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: jax.Array | Pixels) -> jax.Array:
        """Maps f32[B, H, W, C] to f32[B, H', W', filters]."""
        filters, size, window, stride = self.block
        # As many pixels as before. An even kernel's surplus of zeros comes last, as in the paper's
        # code: a layer pads both sides alike, so its first row and column are left out.
        half = multiplies_bfloat16(self.config.dtype)
        form, first = Form(padding=size // 2, bfloat16=half), 1 - size % 2

        def factor() -> jax.Array:
            y = Conv(filters, size, form, self.config.init)(x)
            return activated(self.config, y[:, first:, first:])

        return window_max_pool(factor() * factor(), window, stride, self.edges)


def normalized(config: NetworkConfig, x: jax.Array) -> jax.Array:
    """Returns the outputs of a layer, normalized if so configured; in a module."""
    return LayerNorm()(x) if config.layer_norm else x


def activated(config: NetworkConfig, x: jax.Array) -> jax.Array:
    """Returns the outputs of a layer, normalized if so configured, then activated; in a module.

    GELU is that of tanh (Hendrycks & Gimpel 2016, section 2), as in the code of Hadamax.
    """
    if config.torso in HADAMAX:
        return nn.gelu(normalized(config, x))
    return LayerNorm(rectify=True)(x) if config.layer_norm else nn.relu(x)


def embedded(config: NetworkConfig, x: jax.Array, stream: int) -> jax.Array:
    """Activates the outputs of the layer above the convolutions, by groups if so configured.

    Returns float32; in a module. `stream` is the index of the stream.
    """
    if config.hidden_norm and not config.layer_norm:
        x = LayerNorm(name=f"HiddenNorm_{stream}")(x)
    if config.simplicial_groups:
        groups, temperature = config.simplicial_groups, config.simplicial_temperature
        return simplicial(normalized(config, x), groups, temperature)
    return activated(config, x).astype(jnp.float32)


def dense(
    config: NetworkConfig,
    features: int,
    gain: float,
    number: int,
    x: jax.Array,
    noise: Any,
    bfloat16: bool = False,
) -> jax.Array:
    """Maps [B, ..., C] to [B, ..., features] by a layer with noise if so configured; in a module.

    Args:
      config: the network's.
      features: numbers of the output.
      gain: of the orthogonal initialization.
      number: of the layer in the network, for its noise.
      x: inputs.
      noise: key[B], or None for mean weights.
      bfloat16: whether the kernels round what they multiply, below the heads.
    """
    if config.noisy:
        return NoisyDense(features, number, bfloat16)(x, noise)
    return Dense(features, gain, config.init, bfloat16)(x)


def foreign_features(config: NetworkConfig, x: jax.Array) -> jax.Array:
    """Maps f32[B, H, W, C] to another package's features f32[B, ...], inside a module.

    Raises `UserError` for whatever else comes.
    """
    module = extensions.torso(config.torso)
    where = f"network.torso = '{config.torso}': {module.__name__}"
    try:
        features = module.make(config)(x)
    except UserError:
        raise
    except Exception as error:  # whatever somebody else's module raises
        raise UserError(f"{where} raises {type(error).__name__}: {first_line(error)}") from error
    fits = isinstance(features, jax.Array) and jnp.issubdtype(features.dtype, jnp.floating)
    if not fits or features.ndim < 2 or len(features) != len(x):
        is_array = isinstance(features, jax.Array)
        actual = f"{features.dtype}{list(features.shape)}" if is_array else type(features).__name__
        raise UserError(f"{where} must map frames {x.dtype}{list(x.shape)} to numbers [{len(x)}, "
                        f"...], the batch first, and gives {actual}")  # fmt: skip
    return features.astype(x.dtype)


def check_torso(config: NetworkConfig, image_shape: tuple[int, int, int], planes: int = 1) -> None:
    """Raises `UserError` if another package's torso cannot be trained; computes nothing.

    `image_shape` is the height, width and number of the frames that the agent sees at once, and
    `planes` those of a frame, as `EnvSpec` has them.
    """
    if config.torso in TORSOS.builtin:
        return
    torso, frames = Torso(config, planes), jax.ShapeDtypeStruct((2, *image_shape), jnp.float32)
    variables: Any = jax.eval_shape(lambda x: torso.init(jax.random.key(0), x), frames)
    if others := variables.keys() - {"params"}:
        raise UserError(f"network.torso = '{config.torso}': has variables beside its parameters "
                        f"({', '.join(sorted(others))}), which no agent keeps: take LayerNorm, for "
                        "instance, in place of BatchNorm")  # fmt: skip
    jax.eval_shape(torso.apply, variables, frames)


def planes_last(stack: jax.Array, planes: int) -> jax.Array:
    """Makes channels of a frame's planes: [B, P * H, W, C] -> [B, H, W, C * P]."""
    if planes == 1:
        return stack
    batch, height, width, frames = stack.shape
    split = stack.reshape(batch, planes, height // planes, width, frames)
    return jnp.moveaxis(split, 1, -1).reshape(batch, height // planes, width, frames * planes)


def takes_pixels(config: NetworkConfig, planes: int) -> bool:
    """Returns whether a torso's first layer normalizes the bytes of its images itself, in C++."""
    plain = planes == 1 and not config.skip_blank_frames
    return plain and config.torso in TORSOS.builtin and has_kernels()


def features(config: NetworkConfig, planes: int, x: Any) -> jax.Array:
    """Maps f32[B, 84, 84, 4], or `Pixels`, to a torso's features [B, F], inside a module."""
    if not isinstance(x, Pixels):
        x = planes_last(x, planes).astype(dtype_of_layers(config.dtype))
    if config.torso == "impala":
        for filters in IMPALA_FILTERS:
            x = ImpalaSection(config.width * filters, config)(x)
        if config.max_pool:
            x = adaptive_max_pool(x, config.max_pool)
        x = nn.relu(x)
    elif config.torso in HADAMAX:
        blocks, edges = HADAMAX[config.torso]
        for block in blocks:
            x = HadamaxBlock(block, edges, config)(x)
    elif config.torso not in CONVOLUTIONS:
        x = foreign_features(config, x)
    else:
        half = multiplies_bfloat16(config.dtype)
        for filters, size, stride, padding in convolutions(config):
            form = Form(stride, padding, rectify=not config.layer_norm, bfloat16=half)
            x = Conv(filters, size, form, config.init)(x)
            if config.layer_norm:
                x = activated(config, x)
    return x.reshape(x.shape[0], -1)


class Torso(nn.Module):
    """Convolutions, and on top one hidden layer for each stream of heads."""

    config: NetworkConfig
    planes: int = 1  # planes of a frame, as `EnvSpec` has them
    streams: int = 1

    @nn.compact
    def __call__(self, x: Any, noise: Any = None) -> tuple[jax.Array, ...]:
        """Maps f32[B, 84, 84, 4] from `normalize`, or `Pixels`, to one f32[B, units] per stream."""
        config, x = self.config, features(self.config, self.planes, x)
        units, half = units_above(config), multiplies_bfloat16(config.dtype)
        hidden = [dense(config, units, 2**0.5, n, x, noise, half) for n in range(self.streams)]
        return tuple(embedded(config, layer, n) for n, layer in enumerate(hidden))
