"""The masking rule of resets: what an invalid row contains must not reach what is learned."""

import jax.numpy as jnp

from jaxrl.types import Trajectory


def changed(trajectory: Trajectory) -> Trajectory:
    """Returns a trajectory whose invalid rows hold other frames, actions, rewards and discounts."""
    invalid = ~trajectory.valid
    assert invalid.any()
    stacks, action = trajectory.observation, trajectory.action
    return trajectory._replace(
        observation=stacks.at[:-1].set(jnp.where(invalid[..., None, None, None], 255, stacks[:-1])),
        action=jnp.where(invalid, (action + 1) % 3, action),
        reward=jnp.where(invalid, 1000.0, trajectory.reward),
        discount=jnp.where(invalid, 1 - trajectory.discount, trajectory.discount),
    )
