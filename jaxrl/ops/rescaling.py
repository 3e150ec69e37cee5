"""The rescaling of values that lets rewards of any size be learned (Pohlen 2018, proposition A.2).

h(x) = sign(x) · (√(|x| + 1) - 1) + εx,  h⁻¹(y) = sign(y) · (u² - 1),
u = (√(1 + 4ε(|y| + 1 + ε)) - 1) / 2ε
"""

import jax
import jax.numpy as jnp


def rescale(x: jax.Array, epsilon: float) -> jax.Array:
    """Returns h(x) of values in units of the reward; any shape."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + epsilon * x


def unscale(y: jax.Array, epsilon: float) -> jax.Array:
    """Returns h⁻¹(y), values in units of the reward; any shape."""
    size = jnp.abs(y) + 1 + epsilon
    # The root minus 1 would lose most of its digits: it is multiplied by the root plus 1.
    u = 2 * size / (jnp.sqrt(1 + 4 * epsilon * size) + 1)
    return jnp.sign(y) * (jnp.square(u) - 1)
