"""Actors: the parameters and observation statistics that choose actions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork
from jaxrl.networks.running_statistics import init_statistics, normalize, update_statistics
from jaxrl.types import FRAME_SHAPE, STACK_SIZE, ActorState, Trajectory


def init_params(
    network: nn.Module, key: jax.Array, frame_shape: tuple[int, int] = FRAME_SHAPE
) -> Any:
    """Returns initial parameters for stacks of frames of this height and width."""
    # Compiled, because the operations of an initialization take seconds one by one.
    return jax.jit(network.init)(key, jnp.zeros((1, *frame_shape, STACK_SIZE)))["params"]


def init_actor(
    network: PolicyValueNetwork | ActionValueNetwork,
    key: jax.Array,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> ActorState:
    """Returns the actor before the first update, for stacks of frames of this height and width."""
    params = init_params(network, key, frame_shape)
    return ActorState(params, init_statistics(network.config, frame_shape), jnp.int32(0))


def forward(
    network: nn.Module, params: Any, statistics: Any, observation: jax.Array, *noise: Any
) -> Any:
    """Returns the network's outputs for observations u8[B, 84, 84, 4], which are normalized.

    Args:
      network: a network of `jaxrl.networks.heads`.
      params: its parameters.
      statistics: of the observations; () scales pixels to [0, 1].
      observation: u8[B, 84, 84, 4].
      noise: key[B] or None, for an action-value network that may be noisy.
    """
    return network.apply({"params": params}, normalize(observation, statistics), *noise)


def next_actor(actor: ActorState, params: Any, trajectory: Trajectory) -> ActorState:
    """Returns the actor after an update of the parameters by a trajectory [T, E].

    The statistics take in the trajectory's frames u8[T, E, 84, 84] of all devices. Call it after
    the gradients: a loss must see the statistics that acting saw.
    """
    newest_frames = trajectory.observation[:-1, ..., -1]
    statistics = update_statistics(actor.statistics, newest_frames)
    return ActorState(params, statistics, actor.updates + 1)
