import ale_py
import envpool
import pytest
from ale_py import roms

from jaxrl.envs.envpool import task_id
from jaxrl.games import (
    NO_FIRE,
    atari_games,
    full_actions,
    human_normalised,
    known_games,
    minimal_actions,
    reference_scores,
)


def test_every_game_that_envpool_bundles_is_listed():
    tasks = {name for name in envpool.list_all_envs() if name in map(task_id, atari_games())}
    assert len(tasks) == len(atari_games()) > 100
    from envpool.atari.registration import atari_game_list

    assert list(atari_games()) == atari_game_list


def test_numbers_of_actions_equal_envpools():
    for game in {*atari_games()[::9], *NO_FIRE}:
        for full, ours in ((False, minimal_actions(game)), (True, full_actions(game))):
            spec = envpool.make_spec(task_id(game), full_action_space=full)
            assert spec.action_space.n == len(ours), game


@pytest.mark.parametrize("game", ["pong", "breakout", "skiing", "montezuma_revenge"])
def test_meanings_equal_those_of_the_arcade_learning_environment(game):
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()
    emulator.loadROM(roms.get_rom_path(game))
    assert tuple(a.name for a in emulator.getMinimalActionSet()) == minimal_actions(game)


def test_human_normalised_scores():
    assert human_normalised("pong", -20.7) == 0.0
    assert human_normalised("pong", 14.6) == 1.0
    assert human_normalised("catch", 1.0) is None
    assert set(reference_scores()) <= set(known_games())
