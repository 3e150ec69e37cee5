"""Metrics of the games' rewards: their frequency, and the size that clipping hides."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.runtime.collectives import sum_over_devices
from jaxrl.types import Agent, AgentState, Mean, Metrics, Trajectory


def logged(agent: Agent) -> Agent:
    """Returns the agent, whose updates log the rewards of their trajectories too."""
    return agent._replace(update=partial(_update, agent))


def _update(
    agent: Agent, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Updates the agent; the metrics are its own and those of the rewards."""
    new, metrics = agent.update(state, trajectory, key)
    return new, metrics | reward_metrics(trajectory)


def reward_metrics(trajectory: Trajectory) -> Metrics:
    """Returns the share of valid steps [T, E] with a reward, and the mean size of those rewards.

    Rewards are the game's points, before they are clipped.
    """
    points = jnp.abs(jnp.where(trajectory.valid, trajectory.score, 0))
    sums = (trajectory.valid.sum(), (points > 0).sum(), points.sum())
    steps, paid, total = sum_over_devices(tuple(x.astype(jnp.float32) for x in sums))
    return {"reward/density": Mean(paid, steps), "reward/points": Mean(total, paid)}
