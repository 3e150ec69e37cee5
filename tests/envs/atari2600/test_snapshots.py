"""Games as bytes: they go on as if nothing had been, and no byte is trusted."""

import jax
import numpy as np
import pytest

from jaxrl.envs import make_engine
from jaxrl.errors import DamagedError
from tests.envs.atari2600.test_engine import BASE

E = 6


def started(game: str, **env):
    config = BASE.replaced(game=game, env=env)
    engine = make_engine(config, E)
    state, _ = engine.init(3)
    return engine, state


def actions_of(engine, steps: int, seed: int) -> np.ndarray:
    actions = np.random.default_rng(seed).integers(0, engine.spec.num_actions, (steps, E))
    return actions.astype(np.int32)


def play_on(engine, state, actions):
    """Plays; returns the state and the rows stacked along time."""
    step = jax.jit(lambda state, action: engine.recv(engine.send(state, action)))
    return jax.device_get(jax.lax.scan(step, state, actions))


def assert_equal_rows(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("game", "env"),
    [
        ("pong", {"repeat_action_probability": 0.25}),
        ("breakout", {"exact_resets": True}),
        pytest.param("qbert", {"max_episode_steps": 40}, marks=pytest.mark.slow),
    ],
)
def test_games_go_on_from_their_snapshots(game, env):
    """Observations, rewards, ends and pictures, in an engine of other games too."""
    engine, state = started(game, **env)
    state, _ = play_on(engine, state, actions_of(engine, 150, seed=0))
    saved = engine.save()
    after = actions_of(engine, 150, seed=1)
    state, expected = play_on(engine, state, after)
    picture = engine.render()
    other, other_state = started(game, **env)
    for again, again_state in ((engine, state), (other, other_state)):
        again.load(saved)
        _, rows = play_on(again, again_state, after)
        assert_equal_rows(rows, expected)
        np.testing.assert_array_equal(again.render(), picture)
    np.testing.assert_array_equal(engine.save(), other.save())
    for made in (engine, other):
        made.close()


def test_a_step_under_way_is_in_the_snapshot():
    engine, state = started("breakout")
    state, _ = play_on(engine, state, actions_of(engine, 60, seed=0))
    state = jax.jit(engine.send)(state, np.full(E, 1, np.int32))
    saved = engine.save()
    state, expected = jax.jit(engine.recv)(state)
    play_on(engine, state, actions_of(engine, 5, seed=2))
    engine.load(saved)  # its answers are there: nothing is sent
    _, rows = jax.jit(engine.recv)(state)
    assert_equal_rows(rows, expected)
    engine.close()


def test_no_other_bytes_are_taken():
    engine, _ = started("pong")
    saved = engine.save()
    other, _ = started("breakout")
    with pytest.raises(DamagedError, match="another cartridge"):
        other.load(saved)
    other.close()
    for place in (24, 200, saved.shape[1] - 1):
        wrong = saved.copy()
        wrong[E - 1, place] ^= 1
        with pytest.raises(DamagedError, match="damaged"):
            engine.load(wrong)
    wrong = saved.copy()
    wrong[0, 0] += 1
    with pytest.raises(DamagedError, match="another version"):
        engine.load(wrong)
    with pytest.raises(DamagedError, match=r"snapshots are u8\[6, "):
        engine.load(saved[:, :-1])
    np.testing.assert_array_equal(engine.save(), saved)  # none of them was taken
    engine.close()


def test_games_go_on_under_another_time_limit():
    engine, state = started("pong")
    play_on(engine, state, actions_of(engine, 60, seed=0))
    saved = engine.save()
    engine.close()
    shorter, state = started("pong", max_episode_steps=20)
    shorter.load(saved)
    _, rows = play_on(shorter, state, actions_of(shorter, 2, seed=0))
    assert rows.truncated.any(0).all()  # at once
    shorter.close()
