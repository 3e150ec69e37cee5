import jax
import jax.numpy as jnp
import pytest

from jaxrl.program import rewards
from jaxrl.types import AXIS, Agent, Mean, Trajectory


def trajectories():
    """Two devices, two steps of two environments each; a reset's score never counts."""
    score = jnp.array([[[20.0, 0], [-5, 400]], [[0, 0], [15, 0]]])
    valid = jnp.array([[[True, True], [True, False]], [[True, True], [True, True]]])
    clipped = jnp.sign(score)
    return Trajectory((), (), clipped, jnp.ones_like(score), valid, (), score)


def test_hand_worked_rates_and_sizes():
    """Seven valid steps, of which three pay: 20, -5 and 15 points."""
    logged = jax.vmap(rewards.reward_metrics, axis_name=AXIS)(trajectories())
    density, points = logged["reward/density"], logged["reward/points"]
    assert density.total[0] / density.number[0] == pytest.approx(3 / 7)
    assert points.total[0] / points.number[0] == pytest.approx(40 / 3)
    assert (density.total[0], points.total[0]) == (density.total[1], points.total[1])


def test_a_trajectory_without_rewards_has_a_rate_and_no_size():
    none = trajectories()._replace(score=jnp.zeros((2, 2, 2)))
    logged = jax.vmap(rewards.reward_metrics, axis_name=AXIS)(none)
    assert logged["reward/density"].total[0] == 0 < logged["reward/density"].number[0]
    assert logged["reward/points"].number[0] == 0


def test_an_agent_logs_them_beside_its_own():
    agent = Agent(*[None] * len(Agent._fields))._replace(
        update=lambda state, trajectory, key: (state + 1, {"loss/value": jnp.float32(7)})
    )
    both = jax.vmap(lambda x: rewards.logged(agent).update(1, x, None), axis_name=AXIS)
    state, metrics = both(trajectories())
    assert state[0] == 2
    assert metrics["loss/value"][0] == 7
    assert isinstance(metrics["reward/density"], Mean)
