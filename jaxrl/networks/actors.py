"""Actors: the parameters and observation statistics that choose actions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config.convolutions import HAS_FIRST_STRIDE
from jaxrl.config.network import NetworkConfig
from jaxrl.kernels.convolution import Pixels
from jaxrl.networks.convolution import cuts_blocks
from jaxrl.networks.core import core_of, first_observation
from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork, QuantileNetwork
from jaxrl.networks.running_statistics import (
    init_statistics,
    normalize,
    pixels,
    update_statistics,
)
from jaxrl.networks.torsos import takes_pixels
from jaxrl.ops import batches
from jaxrl.types import (
    FRAME_SHAPE,
    STACK_SIZE,
    ActorState,
    RecurrentObservation,
    Trajectory,
)


def init_params(
    network: nn.Module,
    key: jax.Array,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
    stack_size: int = STACK_SIZE,
) -> Any:
    """Returns initial parameters for stacks of frames of this number, height and width."""
    observation: Any = jnp.zeros((1, *frame_shape, stack_size))
    config = network.config
    if (core := core_of(config)) is not None:
        steps = first_observation(observation, core)
        observation = jax.tree.map(lambda x: x[:, None], steps)
    # Compiled, because the operations of an initialization take seconds one by one.
    return jax.jit(network.init)(key, observation)["params"]


def init_actor(
    network: PolicyValueNetwork | ActionValueNetwork | QuantileNetwork,
    key: jax.Array,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
    stack_size: int = STACK_SIZE,
) -> ActorState:
    """Returns the actor before the first update, for stacks of frames of this height and width."""
    params = init_params(network, key, frame_shape, stack_size)
    return ActorState(params, init_statistics(network.config, frame_shape), jnp.int32(0))


def forward(network: nn.Module, params: Any, statistics: Any, observation: Any, *noise: Any) -> Any:
    """Returns the network's outputs for observations, which are normalized.

    Args:
      network: a network of `jaxrl.networks.heads`.
      params: its parameters.
      statistics: those of the observations; () scales pixels to [0, 1].
      observation: u8[B, 84, 84, 4], or [B, T, 84, 84, 4] for outputs [B, T]; with a core a
        RecurrentObservation of these shapes, whose T steps follow one another.
      noise: key[B], or of quantiles key[B, N], or None, for an action-value network that draws.
    """
    if isinstance(observation, RecurrentObservation):
        return _unroll(network, params, statistics, observation)
    leading = observation.shape[:-3]
    if len(leading) > 1:
        outputs = forward(network, params, statistics, batches.flatten(observation))
        return batches.unflatten(outputs, leading)
    return network.apply({"params": params}, _normalized(network, observation, statistics), *noise)


def _normalized(network: nn.Module, observation: jax.Array, statistics: Any) -> Any:
    """Normalizes stacks of frames, or leaves it to the first layer, where that is one of C++.

    Else they come in the order of the blocks that the first layer cuts, if any.
    """
    config: NetworkConfig = network.config
    ours = isinstance(network, PolicyValueNetwork | ActionValueNetwork | QuantileNetwork)
    if ours and takes_pixels(config, network.planes):
        return pixels(observation, statistics)
    by_blocks = cuts_blocks() and config.torso in HAS_FIRST_STRIDE
    block = config.first_stride if by_blocks else 1
    whole = all(length % block == 0 for length in observation.shape[-3:-1])
    return normalize(observation, statistics, block if whole else 1, config.skip_blank_frames)


def _unroll(
    network: nn.Module, params: Any, statistics: Any, observation: RecurrentObservation
) -> Any:
    """Returns outputs [B] of one step of an agent that remembers, or [B, T] of a sequence."""
    single = observation.stack.ndim == 4
    steps = jax.tree.map(lambda x: x[:, None], observation) if single else observation
    rows = _normalized(network, batches.flatten(steps.stack), statistics)
    if isinstance(rows, Pixels):
        rows = rows._replace(stack=steps.stack)
    else:
        rows = batches.unflatten(rows, steps.stack.shape[:2])
    steps = steps._replace(stack=rows)
    outputs: Any = network.apply({"params": params}, steps)
    if not single:
        return outputs
    core = outputs.core
    return jax.tree.map(lambda x: x[:, 0], outputs._replace(core=()))._replace(core=core)


def burn_in(network: nn.Module, params: Any, statistics: Any, observation: Any, steps: int) -> Any:
    """Returns sequences [B, T - steps] that begin with a refreshed state of the core.

    The first `steps` of the sequences [B, T] are played again, by today's parameters, from the
    stored state and without a gradient (R2D2, Kapturowski 2019, section 3).
    """
    if steps == 0:
        return observation
    first = jax.tree.map(lambda x: x[:, :steps], observation)
    rest = jax.tree.map(lambda x: x[:, steps:], observation)
    outputs = forward(network, jax.lax.stop_gradient(params), statistics, first)
    # Only the first state of a sequence is read.
    return rest._replace(core=jax.lax.stop_gradient(outputs.core)[:, None])


def next_actor(
    network: nn.Module, actor: ActorState, params: Any, trajectory: Trajectory
) -> ActorState:
    """Returns the actor after an update of the parameters by a trajectory [T, E].

    The statistics take in the trajectory's frames u8[T, E, 84, 84] of all devices. Call it after
    the gradients: a loss must see the statistics that acting saw.
    """
    newest_frames = batches.stacks(trajectory.observation)[:-1, ..., -1]
    config: NetworkConfig = network.config
    statistics = update_statistics(actor.statistics, newest_frames, config.skip_blank_frames)
    return ActorState(params, statistics, actor.updates + 1)
