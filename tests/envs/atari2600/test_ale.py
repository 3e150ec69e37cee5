"""The core against the Arcade Learning Environment, frame by frame."""

import numpy as np
import pytest

from jaxrl.atari.games import atari_games
from jaxrl.experiments.sweep_plan import atari57
from tests.envs.atari2600.played import ACTIONS, Game, ale

# Of `make test`: paddles (two ways), the stack in the TIA, a frame without an end, swapped ports, a
# missile in its player, a menu that is walked through; banks of every kind, RAM in the cartridge,
# the Display Processor Chip, another television, a taller screen, stars.
SAMPLE = (
    *("breakout", "pong", "alien", "qbert", "surround", "space_invaders", "demon_attack"),
    *("ms_pacman", "road_runner", "montezuma_revenge", "robotank", "klax", "elevator_action"),
    *("pitfall2", "adventure", "pooyan", "journey_escape"),
)

# Their rules say `keeps_collisions`.
KEEP_COLLISIONS = ("crossbow", "gopher", "mr_do")
ALL_PAIRS = 2**15 - 1


def assert_equals_ale(name: str, frames: int, seed: int = 0, plain: bool = False) -> None:
    """Plays random actions in both; every frame's RAM, screen, reward, lives and end are equal."""
    from ale_py import Action

    oracle, game = ale(name), Game(name, plain=plain)
    oracle.reset_game()
    game.reset()  # as ALE does when it loads a cartridge
    game.reset()
    rng = np.random.default_rng(seed)
    action = ends = 0
    for frame in range(frames):
        if frame % 4 == 0:
            action = int(rng.integers(ACTIONS))
        expected = oracle.act(Action(action))
        reward = game.act(action)
        _, lives, over = game.progress
        where = f"{name}, frame {frame}"
        np.testing.assert_array_equal(game.ram, oracle.getRAM(), where)
        np.testing.assert_array_equal(game.screen, oracle.getScreen(), where)
        assert (reward, lives, over) == (expected, oracle.lives(), oracle.game_over()), where
        if over:
            ends += 1
            oracle.reset_game()
            game.reset()
    assert not game.doubtful, f"{name}: its rules must say keeps_collisions"
    game.close()


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", SAMPLE)
def test_games_equal_ale(name):
    assert_equals_ale(name, 600)


@pytest.mark.parametrize("name", ["pong", "qbert"])
def test_the_plain_interpreter_equals_ale(name):
    assert_equals_ale(name, 100, plain=True)


@pytest.mark.parametrize("name", KEEP_COLLISIONS)
def test_games_that_read_a_collision_late_keep_all_from_the_start(name):
    """They read one for the first time long after frames that would not have kept it."""
    game = Game(name)
    assert game.needed == ALL_PAIRS
    game.close()


@pytest.mark.slow
@pytest.mark.rotating(12)
@pytest.mark.parametrize("name", atari_games())
def test_every_game_equals_ale_for_long(name):
    assert_equals_ale(name, 3000 if name in atari57() else 600, seed=1)


def test_frames_that_are_not_drawn_change_nothing():
    """Collisions are computed only where they are read, pictures only where they are seen."""
    drawn, blind = Game("space_invaders"), Game("space_invaders")
    for game in (drawn, blind):
        game.reset()
    rng = np.random.default_rng(0)
    for frame in range(400):
        action = int(rng.integers(ACTIONS))
        seen = frame % 7 == 6
        assert drawn.act(action) == blind.act(action, draws=seen)
        np.testing.assert_array_equal(drawn.ram, blind.ram)
        if seen and frame % 14 == 13:
            np.testing.assert_array_equal(drawn.screen, blind.screen)


def test_a_copy_of_the_state_is_the_game():
    """What `memcpy` copies goes on as the original does, in another cartridge's handle too."""
    one, other = Game("seaquest"), Game("seaquest")
    one.reset()
    rng = np.random.default_rng(0)
    for _ in range(200):
        one.act(int(rng.integers(ACTIONS)))
    other.bytes[:] = one.bytes
    for _ in range(200):
        action = int(rng.integers(ACTIONS))
        assert one.act(action) == other.act(action)
    np.testing.assert_array_equal(one.bytes, other.bytes)


def test_a_state_is_small():
    assert Game("pong").bytes.size < 500
