import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.envs.catch import RULES
from jaxrl.errors import UserError
from jaxrl.evaluation import trace
from jaxrl.networks.running_statistics import RunningStatistics
from tests.conftest import large_catch_config

ROWS = RULES["catch"].rows
CELL = 84 // ROWS  # pixels

STEPS = ROWS - 1  # decisions of a game of Catch


def constant(config, **biases):
    """An actor whose network is zero but for the biases of the named heads."""
    engine = make_engine(config, 1)
    actor = make_agent(resolve(config), engine.spec).init(jax.random.key(0)).actor
    params = jax.tree.map(jnp.zeros_like, actor.params)
    for head, bias in biases.items():
        params[head]["Dense_0"]["bias"] = jnp.asarray(bias, jnp.float32)
    return actor._replace(params=params)


def policy_value(config):
    # exp of the logits is 1, 2 and 5, of 8 in all
    return constant(config, Dense_0=np.log([1, 2, 5]), Dense_1=[0.5])


@pytest.mark.parametrize("recipe", ["a2c_fast", "vtrace_cpu"])
def test_the_policy_and_the_value_are_the_networks(recipe):
    config = large_catch_config(recipe)
    result = trace.trace(config, policy_value(config), "noop", seed=0, max_steps=4)
    np.testing.assert_allclose(result.probabilities, [[1 / 8, 2 / 8, 5 / 8]] * 4, rtol=1e-6)
    np.testing.assert_allclose(result.values, [0.5] * 4, rtol=1e-6)
    assert result.action_names == ("LEFT", "NOOP", "RIGHT")
    assert (result.atoms.shape, result.distributions.shape) == ((0,), (4, 3, 0))
    np.testing.assert_array_equal(result.action_values, np.zeros((4, 3)))


def test_ppos_values_are_in_units_of_the_return():
    config = large_catch_config("ppo_pong")
    actor = policy_value(config)
    deviation = RunningStatistics(jnp.float32(1), jnp.float32(2), jnp.float32(16))
    actor = actor._replace(statistics=actor.statistics._replace(value=deviation))
    result = trace.trace(config, actor, "noop", seed=0, max_steps=2)
    np.testing.assert_allclose(result.values, [2 + 4 * 0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(result.probabilities, [[1 / 8, 2 / 8, 5 / 8]] * 2, rtol=1e-6)


@pytest.mark.slow
def test_c51_tells_the_distribution_of_each_actions_return():
    config = large_catch_config("c51_fast", {"evaluation_epsilon": 0.3})
    atoms = np.linspace(-10, 10, 51)  # 0.4 apart
    logits = np.full((3, 51), -100.0)
    logits[0, 0] = logits[1, 50] = 0  # all of the first at -10, of the second at 10
    logits[2, 25] = logits[2, 30] = 0  # half of the third at 0, half at 2
    actor = constant(config, Dense_0=logits.ravel())
    result = trace.trace(config, actor, "noop", seed=0, max_steps=30, games=5)
    decided = ~result.ends
    np.testing.assert_allclose(result.atoms, atoms, atol=1e-5)
    np.testing.assert_allclose(result.distributions[0, 2, [25, 30]], [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(result.action_values[decided], [[-10, 10, 1]] * 30, atol=1e-4)
    np.testing.assert_allclose(result.values[decided], 10, rtol=1e-5)
    # Any with probability 0.3, else the second.
    np.testing.assert_allclose(result.probabilities[decided], [[0.1, 0.8, 0.1]] * 30, rtol=1e-5)
    assert np.bincount(result.actions[decided], minlength=3)[1] > 15


def test_a_game_ends_with_a_row_where_nothing_is_chosen():
    config = large_catch_config()
    result = trace.trace(config, policy_value(config), "noop", seed=0, max_steps=99, games=2)
    ends = [False] * STEPS + [True]
    np.testing.assert_array_equal(result.ends, ends + ends)
    assert result.frames.shape == (2 * (STEPS + 1), 84, 84, 3)
    assert (result.actions[result.ends] == -1).all()
    assert np.isnan(result.values[result.ends]).all()
    assert np.isnan(result.probabilities[result.ends]).all()
    assert set(np.abs(result.rewards[STEPS - 1 :: STEPS + 1])) == {1}  # of the last decisions
    assert np.abs(result.rewards).sum() == 2
    # The ball falls a row a step, into the paddle's in the picture of the end.
    ball = (result.frames[: STEPS + 1, CELL // 2 :: CELL, :, 0] == 255).any(-1).argmax(-1)
    np.testing.assert_array_equal(ball, range(ROWS))


def test_the_picture_is_what_the_action_was_chosen_from():
    config = large_catch_config()
    right = constant(config, Dense_0=[0, 0, 100], Dense_1=[0])
    result = trace.trace(config, right, "noop", seed=0, max_steps=3)
    np.testing.assert_array_equal(result.actions, [2, 2, 2])
    paddle = (result.frames[:, -1, :, 0] == 128).argmax(-1) // CELL
    np.testing.assert_array_equal(paddle, [3, 4, 5])


@pytest.mark.slow
def test_decisions_are_counted_and_the_seed_decides_them():
    config = large_catch_config()
    actor = policy_value(config)
    short = trace.trace(config, actor, "noop", seed=0, max_steps=STEPS + 2, games=9)
    again = trace.trace(config, actor, "noop", seed=0, max_steps=STEPS + 2, games=9)
    assert (~short.ends).sum() == STEPS + 2
    for first, second in zip(short[2:], again[2:], strict=True):
        np.testing.assert_array_equal(first, second)
    other = trace.trace(config, actor, "noop", seed=1, max_steps=STEPS + 2, games=9)
    assert other.actions.tolist() != short.actions.tolist()


def test_what_cannot_be_played_is_refused():
    config = large_catch_config()
    actor = policy_value(config)
    with pytest.raises(UserError, match="must be one of noop, sticky"):
        trace.trace(config, actor, "no-op", seed=0, max_steps=1)
    with pytest.raises(UserError, match="at least 1"):
        trace.trace(config, actor, "noop", seed=0, max_steps=0)


def test_an_atari_game_is_shown_in_color():
    config = dataclasses.replace(large_catch_config(), game="pong")
    result = trace.trace(config, constant(config), "noop", seed=0, max_steps=3)
    assert result.frames.shape == (3, 210, 160, 3)
    assert len(np.unique(result.frames[0].reshape(-1, 3), axis=0)) > 3
    assert len(result.action_names) == 6
    np.testing.assert_allclose(result.probabilities, 1 / 6, rtol=1e-6)
