"""Every action from one state: what it leads to, and that the game itself is left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.catch import RULES
from jaxrl.errors import UserError
from jaxrl.evaluation import branches
from tests.conftest import large_catch_config
from tests.evaluation.test_trace import constant

LEFT, NOOP, RIGHT = range(3)
ROWS = RULES["catch"].rows
VALUE = 0.5  # of every state, to the constant networks
CATCH = large_catch_config("a2c_fast")
GAMMA = CATCH.agent.gamma


def rightwards(config):
    """A policy that always goes to the right."""
    return constant(config, Dense_0=[0, 0, 100], Dense_1=[VALUE])


def by_chance(config):
    """A policy that draws its actions evenly."""
    return constant(config, Dense_1=[VALUE])


def catch_at(step: int, column: int):
    """A game of Catch that went to the right for some steps, its ball in this column."""
    player, moment = branches.start(CATCH, rightwards(CATCH), "noop")
    moment = branches.play_on(player, moment, step)
    env = moment.state.env._replace(ball_column=jnp.array([column]))
    return player, moment._replace(state=moment.state._replace(env=env))


def assert_equal(first: branches.Moment, second: branches.Moment):
    for a, b in zip(*(jax.tree.leaves(moment) for moment in (first, second)), strict=True):
        if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_the_last_action_decides_a_game_of_catch():
    """After 5 steps to the right the paddle is in column 6 of 7: LEFT alone leads to column 5."""
    player, moment = catch_at(ROWS - 2, column=5)
    result = branches.try_actions(player, moment, horizon=4, num_pictures=9)
    assert (result.step, result.score, result.chosen) == (5, 0, RIGHT)
    assert result.action_names == ("LEFT", "NOOP", "RIGHT")
    np.testing.assert_allclose(result.probabilities, [0, 0, 1], atol=1e-6)
    assert result.value == VALUE
    # Terminals are not bootstrapped from, and nothing comes after them.
    np.testing.assert_array_equal(result.rewards, [[1, 0, 0, 0], [-1, 0, 0, 0], [-1, 0, 0, 0]])
    np.testing.assert_array_equal(result.returns, [1, -1, -1])
    np.testing.assert_array_equal(result.values[:, 0], [VALUE] * 3)
    assert np.isnan(result.values[:, 1:]).all()
    assert result.lengths.tolist() == [1, 1, 1]
    assert result.terminated.all()
    assert result.game_over.all()
    assert result.picture_steps.tolist() == [1, 2, 3, 4]
    paddles = (result.pictures[:, :, -1, :, 0] == 128).argmax(-1) // (84 // ROWS)
    np.testing.assert_array_equal(paddles[1:], [[6] * 4] * 2)
    np.testing.assert_array_equal(result.pictures[0, 0, -1, :, 0].nonzero()[0], range(60, 72))


def test_returns_are_discounted_and_bootstrapped_from_the_last_state():
    """Step 3 of 6. Horizon 2 meets no reward; horizon 3 the one at the end."""
    player, moment = catch_at(3, column=6)
    short = branches.try_actions(player, moment, horizon=2)
    np.testing.assert_allclose(short.returns, [GAMMA**2 * VALUE] * 3, rtol=1e-6)
    assert not short.terminated.any()
    assert not short.game_over.any()
    whole = branches.try_actions(player, moment, horizon=3, hold=3)
    # Held for three steps LEFT leads from column 6 to 3, NOOP stays, RIGHT cannot go further.
    np.testing.assert_allclose(whole.returns, [-(GAMMA**2), GAMMA**2, GAMMA**2], rtol=1e-6)
    # Held for one step, two steps to the right make up for it.
    once = branches.try_actions(player, moment, horizon=3)
    np.testing.assert_allclose(once.returns, [GAMMA**2] * 3, rtol=1e-6)


def test_the_branch_of_the_policys_choice_is_the_game_itself():
    """With the same random numbers, also those of the actions after it."""
    player, moment = branches.start(CATCH, by_chance(CATCH), "noop", seed=1)
    moment = branches.play_on(player, moment, 1)
    result = branches.try_actions(player, moment, horizon=4, num_pictures=4)
    for step, screen in zip(result.picture_steps, result.pictures[result.chosen], strict=True):
        then = branches.play_on(player, moment, int(step))
        np.testing.assert_array_equal(branches.picture(player, then.state), screen)


@pytest.mark.parametrize(("clips", "factor"), [(True, 1), (False, 7)])
def test_rewards_are_clipped_where_they_were_in_training(clips, factor):
    config = CATCH.replaced(env={"reward_clip": clips})
    player, moment = branches.start(config, rightwards(config), "noop")

    def step(state, action):
        state, row = player.step(state, action)
        timestep = state.timestep._replace(score=7 * state.timestep.score)
        return state._replace(timestep=timestep), row

    result = branches.try_actions(player._replace(step=step), moment, horizon=ROWS)
    np.testing.assert_array_equal(np.abs(result.rewards[:, ROWS - 2]), factor)


# --- the game goes on -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "protocol", "steps"), [("catch", "noop", 2), ("breakout", "sticky", 30)]
)
@pytest.mark.slow
def test_trying_actions_changes_nothing(game, protocol, steps):
    """Bit for bit: the state of play with its random keys, and the emulator's snapshot."""
    config = CATCH.replaced(game=game)
    actor = by_chance(config)
    player, beginning = branches.start(config, actor, protocol, seed=2)
    moment = branches.play_on(player, beginning, steps)
    branches.try_actions(player, moment, horizon=2 * steps)
    later = branches.play_on(player, moment, steps)
    branches.close(player)
    other, beginning = branches.start(config, actor, protocol, seed=2)
    assert_equal(later, branches.play_on(other, branches.play_on(other, beginning, steps), steps))
    branches.close(other)


@pytest.mark.slow
def test_a_branch_ends_with_a_life():
    """Nobody moves: Breakout's ball is lost, and the game goes on after the reset."""
    config = CATCH.replaced(game="breakout", env={"num_threads": 1})
    still = constant(config, Dense_0=[100, 0, 0, 0], Dense_1=[VALUE])
    player, moment = branches.start(config, still, "noop")
    result = branches.try_actions(player, moment, horizon=120, num_pictures=2, hold=120)
    assert result.terminated.all()
    assert not result.game_over.any()
    assert (result.lengths < 120).all()
    assert result.pictures.shape[1:] == (2, 210, 160, 3)
    end = int(result.lengths[NOOP])
    lost = branches.play_on(player, moment, end)  # through the reset, which is no agent step
    assert lost.step == moment.step + end
    assert branches.play_on(player, lost, 1).step == lost.step + 1
    branches.close(player)


# --- what is refused ------------------------------------------------------------------------------


def test_a_step_after_the_game_is_refused():
    player, moment = branches.start(CATCH, rightwards(CATCH), "noop")
    with pytest.raises(
        branches.GameOverError, match="step 9: the game ended at agent step 6; take an earlier"
    ):
        branches.play_on(player, moment, 9)


def test_engines_that_cannot_save_their_games_are_refused():
    config = CATCH.replaced(game="pong", env={"engine": "envpool"})
    with pytest.raises(UserError, match=r"envpool: cannot save its games.*atari2600 can"):
        branches.start(config, by_chance(config), "noop")


def test_what_cannot_be_tried_is_refused():
    with pytest.raises(UserError, match="must be one of noop, sticky"):
        branches.start(CATCH, by_chance(CATCH), "no-op")
    player, moment = branches.start(CATCH, by_chance(CATCH), "noop")
    with pytest.raises(UserError, match="horizon = 0, num_pictures = 5, hold = 1: must be at"):
        branches.try_actions(player, moment, horizon=0)
