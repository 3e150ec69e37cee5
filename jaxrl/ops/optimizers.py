"""Optimizers and learning-rate schedules (optax)."""

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.plan import Plan
from jaxrl.config.schema import OptimizerConfig
from jaxrl.types import PyTree


def learning_rate(plan: Plan) -> optax.Schedule:
    """Returns the learning rate by update: constant, or linearly to 0 at the end."""
    start = plan.learning_rate
    if plan.config.optimizer.schedule == "linear":
        return optax.linear_schedule(start, 0.0, max(plan.num_updates, 1))
    return lambda _: jnp.float32(start)  # optax's constant has no dtype


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Returns clipping by the global norm, then RMSProp or Adam, without the learning rate.

    RMSProp as A3C writes it (Mnih 2016, eq. 8 and 9), ε inside the root:

    g ← αg + (1 - α)Δθ²,  θ ← θ - ηΔθ / √(g + ε)

    With `eps_inside_root = false` it is √g + ε, as in PyTorch. `apply` multiplies by the rate η.
    """
    if config.name == "rmsprop":
        scale = optax.scale_by_rms(
            decay=config.decay,
            eps=config.eps,
            initial_scale=config.initial_scale,
            eps_in_sqrt=config.eps_inside_root,
        )
    else:
        adam = {"adam": optax.scale_by_adam, "radam": optax.scale_by_radam}[config.name]
        scale = adam(b1=config.decay_mean, b2=config.decay, eps=config.eps)
    if config.max_grad_norm == 0:
        return scale
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), scale)


def apply(
    optimizer: optax.GradientTransformation,
    *,
    gradients: PyTree,
    opt_state: PyTree,
    params: PyTree,
    learning_rate: jax.Array,
) -> tuple[PyTree, PyTree]:
    """Takes one step of gradient descent; returns (params, opt_state) after it."""
    direction, opt_state = optimizer.update(gradients, opt_state, params)
    return jax.tree.map(lambda p, d: p - learning_rate * d, params, direction), opt_state
