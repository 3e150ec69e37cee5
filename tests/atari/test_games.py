from pathlib import Path

import ale_py
import envpool
import pytest
from ale_py import roms

from jaxrl.atari.games import (
    NO_FIRE,
    atari_games,
    full_actions,
    game_name,
    known_games,
    minimal_actions,
)
from jaxrl.atari.scores import human_normalized, published_scores, reference_scores
from jaxrl.config.toml import load
from jaxrl.envs.envpool.engine import task_id


def test_every_game_that_envpool_bundles_is_listed():
    tasks = {name for name in envpool.list_all_envs() if name in map(task_id, atari_games())}
    assert len(tasks) == len(atari_games()) > 100
    from envpool.atari.registration import atari_game_list

    assert list(atari_games()) == atari_game_list


@pytest.mark.slow
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


def test_names_of_other_libraries():
    """Those of Gymnasium for every game of ale-py, older ones, and EnvPool's."""
    for game in atari_games():
        camel = "".join(part.capitalize() for part in game.split("_"))
        for name in (f"ALE/{camel}-v5", f"{camel}NoFrameskip-v4", f"{camel}Deterministic-v0",
                     task_id(game), f"{camel}-v4", game.replace("_", "-"), game):  # fmt: skip
            assert game_name(name) == game, name
    assert game_name("ALE/UpNDown-v5") == "up_n_down"
    assert game_name("ALE/Pong-ram-v5") == "ALE/Pong-ram-v5"  # the memory as observation
    assert game_name("pogn") == "pogn"
    assert load(Path("ppo_pong")).replaced(game="ALE/Breakout-v5").game == "breakout"


def test_human_normalized_scores():
    assert human_normalized("pong", -20.7) == 0.0
    assert human_normalized("pong", 14.6) == 1.0
    assert human_normalized("catch", 1.0) is None
    assert set(reference_scores()) <= set(known_games())


def test_published_scores_are_of_one_protocol():
    noop = {entry.algorithm: entry.score for entry in published_scores("breakout", "noop")}
    sticky = {entry.algorithm: entry.score for entry in published_scores("breakout", "sticky")}
    # Rainbow's paper, its table of no-op starts; C51's own paper
    assert (noop["DQN"], noop["Rainbow"], noop["C51"]) == (385.5, 417.5, 748.0)
    assert noop["DQN"] > 3 * sticky["DQN"]  # sticky actions are far harder there
    assert set(noop) == {
        "DQN", "Double DQN", "Dueling Double DQN", "C51", "Rainbow", "A2C", "ACER", "PPO"
    }  # fmt: skip
    assert set(sticky) == {"DQN", "C51", "Rainbow", "IQN", "IMPALA", "PPO"}
    frames = {(entry.algorithm, entry.frames) for entry in published_scores("pong", "noop")}
    assert {("Rainbow", 200_000_000), ("A2C", 40_000_000), ("PPO", 40_000_000)} < frames
    # The table of Schulman 2017, and CleanRL's, after a fifth of the frames
    short = {
        (entry.algorithm, entry.source.split()[0].strip(",")): entry.score
        for entry in published_scores("breakout", "noop")
        if entry.frames == 40_000_000
    }
    assert short == {
        ("A2C", "Schulman"): 303.0,
        ("ACER", "Schulman"): 456.4,
        ("PPO", "Schulman"): 274.8,
        ("PPO", "CleanRL"): 430.09,
    }


def test_published_scores_are_of_known_games_and_none_is_invented():
    played = [game for game in known_games() if published_scores(game, "noop")]
    assert 55 <= len(played) <= 57
    assert all(entry.source for game in played for entry in published_scores(game, "sticky"))
    assert published_scores("catch", "noop") == []
    assert published_scores("pong", "human starts") == []
