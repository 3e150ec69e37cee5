import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.envs.catch import RULES, CatchState, make_catch
from jaxrl.program import observations
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import large_catch_config

ROWS, COLUMNS = 7, 7
CELL = 84 // ROWS  # pixels
LEFT, NOOP, RIGHT = range(3)


def play(policy, steps=60, num_envs=16, **changes):
    config = large_catch_config(**changes)
    engine = make_catch(config.game, config.env, num_envs)
    state, timestep = engine.init(0)
    rows = [timestep]
    step = jax.jit(lambda state, action: engine.recv(engine.send(state, action)))
    for _ in range(steps):
        state, timestep = step(state, policy(timestep))
        rows.append(timestep)
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def perfect(timestep):
    """Reads the picture: towards the ball's column."""
    frame = np.asarray(timestep.frame)[:, CELL // 2 :: CELL, CELL // 2 :: CELL]
    ball = (frame == 255).any(1).argmax(-1)
    paddle = (frame[:, -1] == 128).argmax(-1)
    return jnp.asarray(np.sign(ball - paddle) + 1, jnp.int32)


def test_the_perfect_policy_always_catches_and_a_still_one_does_not():
    good = play(perfect, env={"random_start_steps": 0})
    assert (good.score[good.game_over] == 1).all()
    still = play(lambda t: jnp.ones(16, jnp.int32), env={"random_start_steps": 0})
    assert set(still.score[still.game_over]) == {-1.0, 1.0}


def test_rows_follow_the_contract():
    rows = play(perfect)
    np.testing.assert_array_equal(rows.reset[1:], rows.terminated[:-1])
    assert (rows.reward[rows.reset] == 0).all()
    assert not rows.truncated.any()
    assert rows.frame.dtype == np.uint8
    # A game lasts ROWS - 1 steps and a reset row.
    ends = np.nonzero(rows.game_over[:, 0])[0]
    assert set(np.diff(ends)) == {ROWS}


def test_starts_are_decorrelated():
    together = play(perfect, env={"random_start_steps": 0})
    assert together.game_over.all(1).any()
    apart = play(perfect)
    assert not apart.game_over.all(1).any()


def test_the_games_of_an_environment_depend_only_on_its_number():
    many, few = (play(perfect, num_envs=n).frame for n in (16, 8))
    np.testing.assert_array_equal(many[:, :8], few)
    assert COLUMNS == 7


@pytest.mark.slow
def test_games_blank_frames_and_actions_do_not_share_random_numbers():
    # fold_in(key, i) and split(key)[i] are one key, so equal roots would give equal streams.
    config = large_catch_config(num_envs=4, env={"flicker": 0.5})
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    state = make_program(resolve(config), agent, (engine,), make_mesh(1)).init()
    (group,) = state.games
    used = [
        jax.random.key_data(jax.vmap(lambda k: jax.random.split(k, 3))(keys))
        for keys in (group.env.env.key, group.env.keys, group.keys)
    ]
    every = np.concatenate(used).reshape(-1, 2)
    assert len(np.unique(every, axis=0)) == len(every) == 3 * 4 * 3


# --- the ball that must be remembered -------------------------------------------------------------


def every_game(actions):
    """Plays games of catch_memory with a ball in each column: the stacks and scores of all steps.

    `actions` i32[N, 8] are those of N games, each played with every column: rows column by column.
    """
    count = len(actions)
    config = large_catch_config(game="catch_memory", env={"frame_height": 36, "frame_width": 28})
    engine = make_engine(config, COLUMNS * count)
    column = jnp.repeat(jnp.arange(COLUMNS), count)
    zeros = jnp.zeros(COLUMNS * count, jnp.int32)
    never = zeros > 0
    keys = jax.random.split(jax.random.key(0), COLUMNS * count)
    state, before = engine.recv(CatchState(keys, zeros, column, zeros + 3, never, never))
    stack = observations.fill_stack(before.frame)

    def step(carry, action):
        state, before, stack = carry
        state, row = engine.recv(engine.send(state, jnp.tile(action, COLUMNS)))
        shifted = observations.stack_frames(stack, before, row)
        return (state, row, shifted), (stack, row.score, row.game_over)

    played = jax.jit(lambda actions: jax.lax.scan(step, (state, before, stack), actions)[1])
    stacks, scores, over = map(np.asarray, played(jnp.asarray(actions.T, jnp.int32)))
    assert over[-1].all()
    assert not over[:-1].any()
    return stacks.reshape(8, COLUMNS, count, 36, 28, 4), scores[-1].reshape(COLUMNS, count)


def all_actions():
    """All 3^4 sequences of the last four actions, after four random ones that are ignored."""
    last = np.array(list(itertools.product(range(3), repeat=4)))
    ignored = np.random.default_rng(0).integers(0, 3, last.shape)
    return np.concatenate([ignored, last], axis=1)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_no_stack_that_an_action_is_chosen_from_shows_the_ball_to_be_remembered():
    stacks, scores = every_game(all_actions())
    # While the paddle is held the stack tells the columns apart: 255 is the ball, and the paddle is
    # in the middle whatever is pressed.
    for step in range(4):
        assert ((stacks[step] == 255).sum((2, 3, 4)) == 4 * 4 * (4 - step)).all()
        assert (stacks[step] == stacks[step][:, :1]).all()
    # Then a game with another column, and the same actions, looks the same to the last decision.
    for step in range(4, 8):
        assert (stacks[step] == stacks[step][:1]).all()
        assert not (stacks[step] == 255).any()
    # So every way to play catches one column of seven: (1 - 6) / 7.
    np.testing.assert_array_equal((scores == 1).sum(0), 1)
    np.testing.assert_allclose(scores.mean(0), -5 / 7)


def test_whoever_remembers_the_ball_always_catches_it():
    """The paddle starts in column 3: three moves at most, of four that are free."""
    way = [[np.sign(column - 3) + 1] * abs(column - 3) for column in range(COLUMNS)]
    actions = np.array([[NOOP] * 4 + moves + [NOOP] * (4 - len(moves)) for moves in way])
    scores = every_game(actions)[1]
    np.testing.assert_array_equal(np.diag(scores), 1)
    assert scores.sum() == 7 - 42  # all others miss


@pytest.mark.parametrize("starts", [0, 500])
def test_games_to_be_remembered_follow_each_other(starts):
    """One policy remembers the ball of the newest row that showed it, from reset to reset."""
    rules = RULES["catch_memory"]
    size, ball = 84 / rules.rows, [None] * 16

    def remembering(timestep):
        frames, actions = np.asarray(timestep.frame), []
        for env, frame in enumerate(frames):
            top = frame[0, CELL // 2 :: CELL]
            ball[env] = int(top.argmax()) if top.any() else ball[env]
            paddle = int((frame[-1, CELL // 2 :: CELL] == 128).argmax())
            actions.append(NOOP if ball[env] is None else np.sign(ball[env] - paddle) + 1)
            assert not (frame[int(size) + 1 :] == 255).any()
        return jnp.asarray(actions, jnp.int32)

    rows = play(remembering, game="catch_memory", env={"random_start_steps": starts})
    np.testing.assert_array_equal(rows.reset[1:], rows.terminated[:-1])
    began = np.cumsum(rows.reset, 0) > 0  # the first games may have begun below the first row
    assert rows.game_over[began].any()
    assert (rows.score[rows.game_over & began] == 1).all()
    assert starts or (rows.score[rows.game_over] == 1).all()
    assert (rows.frame[rows.reset][:, 0] == 255).any(-1).all()  # each game shows its ball


def test_both_games_of_catch_are_played_by_its_engine():
    for game in ("catch", "catch_memory"):
        for name in ("auto", "catch"):
            engine = make_engine(large_catch_config(game=game, env={"engine": name}), 2)
            assert (engine.spec.game, engine.state_format) == (game, f"{game} 1")
