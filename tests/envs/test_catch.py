import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs.catch import COLUMNS, ROWS, make_catch
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import catch_config

CELL = 84 // ROWS  # pixels


def play(policy, steps=60, num_envs=16, **changes):
    engine = make_catch(catch_config(**changes), num_envs)
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


def test_games_and_actions_do_not_share_random_numbers():
    # fold_in(key, i) and split(key)[i] are one key, so equal roots would give equal streams.
    config = catch_config(num_envs=4)
    engine = make_catch(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    state = make_program(resolve(config), agent, (engine,), make_mesh(1)).init()
    games = jax.random.key_data(jax.vmap(lambda k: jax.random.split(k, 3))(state.games[0].env.key))
    actions = jax.random.key_data(jax.vmap(lambda k: jax.random.split(k, 3))(state.games[0].keys))
    both = np.concatenate([np.asarray(games), np.asarray(actions)]).reshape(-1, 2)
    assert len(np.unique(both, axis=0)) == len(both)
