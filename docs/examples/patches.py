"""A torso of patches that attend to each other (Dosovitskiy 2021), small enough for a CPU."""

import flax.linen as nn
import jax

from jaxrl import UserError
from jaxrl.config.network import NetworkConfig

PATCH, WIDTH, HEADS = 12, 64, 4  # pixels, features of a patch, heads of attention
UNITS = 256  # of the layer that jaxrl puts above, one for each stream of heads


class Patches(nn.Module):
    """Patches of the stack with their positions, and one block of self-attention."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps f32[B, 84, 84, 4] to f32[B, 49, 64]."""
        if x.shape[1] % PATCH or x.shape[2] % PATCH:
            raise UserError(f"network.torso = 'patches': frames of {x.shape[1]} x {x.shape[2]} "
                            f"pixels have no whole patches: take multiples of {PATCH}")  # fmt: skip
        dtype = x.dtype  # network.dtype
        x = nn.Conv(WIDTH, (PATCH, PATCH), PATCH, "VALID", dtype=dtype)(x)
        x = x.reshape(len(x), -1, WIDTH)
        position = self.param("position", nn.initializers.normal(0.02), x.shape[1:])
        x = x + position.astype(dtype)
        x = x + nn.MultiHeadDotProductAttention(HEADS, dtype=dtype)(nn.LayerNorm(dtype=dtype)(x))
        y = nn.gelu(nn.Dense(2 * WIDTH, dtype=dtype)(nn.LayerNorm(dtype=dtype)(x)))
        return x + nn.Dense(WIDTH, dtype=dtype)(y)


def make(network: NetworkConfig) -> nn.Module:
    """Returns the torso; `network` holds the keys of [network]."""
    return Patches()
