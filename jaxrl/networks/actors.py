"""Actors: parameters and observation statistics that choose actions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork
from jaxrl.networks.running_statistics import init_statistics, update_statistics
from jaxrl.types import FRAME_SHAPE, STACK_SIZE, ActorState, Trajectory


def init_params(
    network: nn.Module, key: jax.Array, frame_shape: tuple[int, int] = FRAME_SHAPE
) -> Any:
    """Parameters for stacks of such frames."""
    # Compiled, as one by one the operations of an initialization take seconds.
    return jax.jit(network.init)(key, jnp.zeros((1, *frame_shape, STACK_SIZE)))["params"]


def init_actor(
    network: PolicyValueNetwork | ActionValueNetwork,
    key: jax.Array,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> ActorState:
    """What acts before the first update, by stacks u8[..., 84, 84, 4] of such frames H, W."""
    params = init_params(network, key, frame_shape)
    return ActorState(params, init_statistics(network.config, frame_shape), jnp.int32(0))


def next_actor(actor: ActorState, params: Any, trajectory: Trajectory) -> ActorState:
    """What acts after an update with the trajectory [T, E] that ended in such parameters.

    Its frames u8[T, E, 84, 84] join the statistics, of all devices. To be called after the
    gradients: a loss must see the statistics that acting saw.
    """
    newest_frames = trajectory.observation[:-1, ..., -1]
    statistics = update_statistics(actor.statistics, newest_frames)
    return ActorState(params, statistics, actor.updates + 1)
