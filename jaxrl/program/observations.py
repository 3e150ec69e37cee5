"""Observations from frames: stacks of them, and the recurrent state of agents that remember."""

import jax
import jax.numpy as jnp

from jaxrl.ops import batches
from jaxrl.types import STACK_SIZE, Choice, Core, PyTree, RecurrentObservation, TimeStep


def fill_stack(frame: jax.Array, size: int = STACK_SIZE) -> jax.Array:
    """Repeats the first frame of a game, four times for a stack of 4: u8[E, 84, 84, 4]."""
    return jnp.repeat(frame[..., None], size, axis=-1)


def new_game(previous: TimeStep, timestep: TimeStep) -> jax.Array:
    """Returns b[E], where a row begins another game.

    A reset after a lost life continues the same game, unless the game ended during the reset.
    """
    return timestep.reset & (previous.game_over | timestep.game_over)


def stack_frames(observation: jax.Array, previous: TimeStep, timestep: TimeStep) -> jax.Array:
    """Returns the next stack: refilled where a game begins, else shifted by the newest frame.

    EnvPool does the same.
    """
    begins = new_game(previous, timestep)[:, None, None]
    size = observation.shape[-1]
    if size != 4:
        filled = fill_stack(timestep.frame, size)
        shifted = jnp.concatenate([observation[..., 1:], timestep.frame[..., None]], axis=-1)
        return jnp.where(begins[..., None], filled, shifted)
    # The four bytes of a pixel are one word, oldest lowest: shifting words is four times faster
    # than moving bytes.
    words = jax.lax.bitcast_convert_type(observation, jnp.uint32)
    newest = timestep.frame.astype(jnp.uint32)
    shifted = (words >> 8) | (newest << 24)
    words = jnp.where(begins, newest * jnp.uint32(0x01010101), shifted)
    return jax.lax.bitcast_convert_type(words, jnp.uint8)


def observe(
    observation: PyTree, choice: Choice, previous: TimeStep, timestep: TimeStep, core: Core | None
) -> PyTree:
    """Returns the observation after a step.

    Args:
      observation: from which the step's actions were chosen.
      choice: these actions, with the core's state after them.
      previous: row before the step.
      timestep: row of the step.
      core: that of an agent that remembers, else None.
    """
    stack = stack_frames(batches.stacks(observation), previous, timestep)
    if core is None:
        return stack
    fresh = timestep.reset if core.forgets_lives else new_game(previous, timestep)
    return RecurrentObservation(
        stack=stack,
        core=jnp.where(fresh[:, None], 0.0, choice.core),
        # A reset, also after a lost life, has ignored the action.
        last_action=jnp.where(timestep.reset, -1, choice.action),
        last_reward=jnp.where(fresh, 0.0, timestep.reward),
        fresh=fresh,
    )
