"""Learning-rate schedules, gradient clipping, the optimizers, and means over devices."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxrl.config import OptimizerConfig
from jaxrl.types import AXIS


def mean_over_devices(tree: Any) -> Any:
    """The synchronous all-reduce: the mean of every leaf over the mesh."""
    return jax.lax.pmean(tree, AXIS)


def row_weights(valid: jax.Array) -> jax.Array:
    """Weights w: Σ w·loss, averaged over devices, is the mean over all devices' valid rows.

    wᵢ = validᵢ / mean_d(Σᵢ validᵢ): devices that hold different numbers of valid rows still count
    each row once. Without a valid row all weights are 0.

    Args:
      valid: b[...], rows that the loss counts.

    Returns:
      f32[...], no gradient.
    """
    rows = valid.astype(jnp.float32)
    return rows / jnp.maximum(mean_over_devices(rows.sum()), 1e-8)


def learning_rate(config: OptimizerConfig, num_updates: int) -> optax.Schedule:
    """The learning rate by gradient step: constant, or linearly to 0 at `num_updates`."""
    if config.schedule == "linear":
        return optax.linear_schedule(config.learning_rate, 0.0, max(num_updates, 1))
    return optax.constant_schedule(config.learning_rate)


def make_optimizer(config: OptimizerConfig, num_updates: int) -> optax.GradientTransformation:
    """Clipping by the global norm, then RMSProp or Adam, then the scheduled learning rate.

    RMSProp as A3C writes it (Mnih 2016, eq. 8 and 9), ε inside the root:

    g ← αg + (1 - α)Δθ²,  θ ← θ - ηΔθ / √(g + ε)

    With `eps_inside_root = false` it is √g + ε, as PyTorch has it.
    """
    if config.name == "rmsprop":
        scale = optax.scale_by_rms(
            decay=config.decay,
            eps=config.eps,
            initial_scale=config.initial_scale,
            eps_in_sqrt=config.eps_inside_root,
        )
    else:
        scale = optax.scale_by_adam(b1=config.decay_mean, b2=config.decay, eps=config.eps)
    clip = (
        optax.clip_by_global_norm(config.max_grad_norm)
        if config.max_grad_norm > 0
        else optax.identity()
    )
    return optax.chain(
        clip, scale, optax.scale_by_learning_rate(learning_rate(config, num_updates))
    )
