"""Modes, difficulties and RAM as ALE's single environment has them."""

import numpy as np
import pytest

from jaxrl.atari.games import FULL_ACTIONS, atari_games, difficulties, modes
from jaxrl.envs import VectorEnv
from jaxrl.envs.atari2600.vector_library import screen_height
from jaxrl.errors import DamagedError, UserError
from tests.envs.atari2600.played import ale
from tests.rotation import THOROUGH

# One of every way to choose a mode: by a byte, by one that shows more or decimal digits, by a rule;
# with a press or RESET before, by a menu of options, by the stick; the end shown meanwhile; and one
# that thinks in a dozen frames that are cut short.
SAMPLE = (
    *(("pong", 1, 3), ("surround", 2, 1), ("space_war", 10, 0), ("ms_pacman", 3, 0)),
    *(("yars_revenge", 96, 1), ("gopher", 2, 1), ("double_dunk", 11, 0), ("video_cube", 302, 1)),
    *(("demon_attack", 5, 1), ("casino", 3, 2), ("amidar", 0, 3)),
    ("tic_tac_toe_3d", 2, 0),
)
# ALE holds SELECT for a random time: in these the rooms are others.
DRAWN = (("adventure", 1), ("adventure", 2))


def plain(game, **options):
    """An environment whose steps are ALE's frames."""
    return VectorEnv(
        game, 1, frameskip=1, maxpool=False, stack_num=1, noop_max=0, use_fire_reset=False,
        full_action_space=True, reward_clipping=False, img_height=screen_height(game),
        img_width=160, **options,
    )  # fmt: skip


def assert_equals_ale(game, mode, difficulty, frames):
    """Plays random actions in ALE and in both kinds of environment."""
    from ale_py import Action

    oracle = ale(game)
    oracle.setMode(mode)
    oracle.setDifficulty(difficulty)
    oracle.reset_game()
    seen, ram = (plain(game, mode=mode, difficulty=difficulty, ram=ram) for ram in (False, True))
    observations, infos = seen.reset(seed=1)
    (rams, _), over = ram.reset(seed=1), False
    rng = np.random.default_rng(mode)
    for frame in range(frames):
        where = f"{game}, mode {mode}, difficulty {difficulty}, frame {frame}"
        numbers = oracle.lives(), oracle.getFrameNumber(), oracle.getEpisodeFrameNumber()
        assert tuple(infos[name][0] for name in infos if name != "env_id") == numbers, where
        np.testing.assert_array_equal(rams[0, 0], oracle.getRAM(), where)
        if not over:  # the frame of an end is not seen
            np.testing.assert_array_equal(observations[0, 0], oracle.getScreenGrayscale(), where)
        number = rng.integers(0, seen.single_action_space.n, 1)
        observations, rewards, ends, _, infos = seen.step(number)
        rams, *others = ram.step(number)
        assert others[0] == rewards
        assert others[1] == ends
        if over:
            oracle.reset_game()
            reward = 0
        else:
            action = FULL_ACTIONS.index(seen.options.action_meanings[number[0]])
            reward = oracle.act(Action(action))
        over = not over and oracle.game_over()
        assert (rewards[0], ends[0]) == (reward, over), where
    seen.close()
    ram.close()


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("game", "mode", "difficulty"), SAMPLE)
def test_a_variant_equals_ales(game, mode, difficulty):
    assert_equals_ale(game, mode, difficulty, 200)


@pytest.mark.slow
@pytest.mark.rotating(12)
@pytest.mark.parametrize("game", atari_games())
def test_every_variant_of_every_game_equals_ales(game):
    oracle = ale(game)
    assert modes(game) == tuple(oracle.getAvailableModes())
    assert difficulties(game) == tuple(oracle.getAvailableDifficulties())
    # Video Cube has 153: three games with each cube.
    few = len(modes(game)) < 100 or THOROUGH
    for mode in modes(game) if few else (*modes(game)[::20], *modes(game)[-3:]):
        if (game, mode) not in DRAWN:
            for difficulty in difficulties(game):
                assert_equals_ale(game, mode, difficulty, 60)


@pytest.mark.parametrize("mode", modes("adventure"))
def test_adventures_modes_are_chosen_without_a_draw(mode):
    envs = plain("adventure", mode=mode, ram=True)
    first, _ = envs.reset(seed=1)
    assert first[0, 0, 0x5D] >> 1 & 3 == mode
    np.testing.assert_array_equal(first, envs.reset(seed=2)[0])
    envs.close()


def test_the_first_mode_is_played_without_a_number():
    both = [VectorEnv("space_invaders", 1), VectorEnv("space_invaders", 1, mode=0, difficulty=0)]
    (first, _), (second, _) = (envs.reset(seed=1) for envs in both)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(both[0].load(both[1].save())[0], second)
    for envs in both:
        envs.close()


def test_fast_resets_begin_in_the_mode():
    """Their copies show it as games that are started exactly do."""
    shown = []
    for fast in (False, True):
        envs = plain("freeway", mode=3, difficulty=1, ram=True, fast_resets=fast)
        observations, infos = envs.reset(seed=1)
        shown.append((observations[0, 0, 0], infos["episode_frame_number"][0]))
        envs.close()
    assert shown[0] == shown[1]
    assert shown[0][0] == 3


def test_ram_is_stacked_and_saved():
    envs = VectorEnv("breakout", 2, ram=True)
    assert envs.observation_space.shape == (2, 4, 128)
    envs.reset(seed=1)
    for _ in range(5):
        observations, *_ = envs.step(np.array([1, 3]))
    saved = envs.save()
    following = envs.step(np.array([2, 2]))[0]
    np.testing.assert_array_equal(following[:, :3], observations[:, 1:])
    np.testing.assert_array_equal(envs.load(saved)[0], observations)
    np.testing.assert_array_equal(envs.step(np.array([2, 2]))[0], following)
    envs.close()


def test_a_snapshot_is_of_its_mode():
    first, second = VectorEnv("pong", 1), VectorEnv("pong", 1, mode=1)
    for envs in (first, second):
        envs.reset(seed=1)
    with pytest.raises(DamagedError, match="of other options"):
        second.load(first.save())
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": 7}, "mode = 7: pong has 0 and 1; leave it out for the default"),
        ({"difficulty": 4}, "difficulty = 4: pong has 0, 1, 2 and 3"),
        ({"mode": "hard"}, "mode = 'hard': must be an integer"),
        ({"difficulty": True}, "difficulty = True: must be an integer"),
    ],
)
def test_a_variant_that_ale_does_not_have_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        VectorEnv("pong", 1, **options)


def test_a_long_list_of_modes_is_shortened():
    with pytest.raises(UserError, match=r"video_cube has 0, 1, 2, 100, .*, \.\.\. and 5002"):
        VectorEnv("video_cube", 1, mode=7)


# --- several games -------------------------------------------------------------------------------

SEVERAL = ("pong", "skiing", "adventure")  # one without FIRE, one with a taller screen


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_several_games_play_as_each_alone_does(mode):
    options = {
        "repeat_action_probability": 0.25, "autoreset_mode": mode, "full_action_space": True,
        "max_num_frames_per_episode": 400,
    }  # fmt: skip
    together = VectorEnv(SEVERAL, 6, **options)
    assert together.single_action_space.n == 18
    alone = [VectorEnv(game, 2, **options) for game in SEVERAL]
    observations, infos = together.reset(seed=1)
    assert infos["game_id"].tolist() == [0, 0, 1, 1, 2, 2]
    for number, envs in enumerate(alone):
        expected, _ = envs.reset(seed=1 + 2 * number)
        np.testing.assert_array_equal(observations[2 * number : 2 * number + 2], expected)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(150):
        actions = rng.integers(0, 18, 6)
        batch = together.step(actions)
        for number, envs in enumerate(alone):
            rows = slice(2 * number, 2 * number + 2)
            # Alone, skiing has no actions with FIRE: they do nothing.
            meanings = envs.options.action_meanings
            known = [FULL_ACTIONS[action] for action in actions[rows]]
            codes = [meanings.index(name) if name in meanings else 0 for name in known]
            expected = envs.step(np.array(codes))
            for mine, other in zip(batch[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine[rows], other)
            for name in expected[4].keys() - {"env_id"}:
                np.testing.assert_array_equal(batch[4][name][rows], expected[4][name])
            ends += expected[3].sum()
    assert ends > 3
    for envs in (together, *alone):
        envs.close()


def test_a_preset_says_that_several_games_take_all_actions(capsys):
    envs = VectorEnv(("pong",), 2, preset="cleanrl")
    assert "full_action_space" not in capsys.readouterr().err
    assert envs.options.full_action_space
    assert envs.single_action_space.n == 18
    assert envs.reset(seed=1)[1]["game_id"].tolist() == [0, 0]
    envs.close()


def test_flags_of_numpy_are_flags():
    """As a comparison of arrays gives them."""
    flags = ("ram", "maxpool", "reward_clipping", "life_loss_info", "fast_resets", "grayscale")
    envs = VectorEnv("pong", 1, **{name: np.bool_(True) for name in flags})
    assert envs.reset(seed=1)[0].shape == (1, 4, 128)
    envs.close()


def test_several_games_are_saved_and_only_forked_within_their_own():
    envs = VectorEnv(["ALE/Pong-v5", "breakout"], 4)
    envs.reset(seed=1)
    envs.step(np.arange(4))
    saved = envs.save()
    following = envs.step(np.arange(4))[0]
    envs.load(saved)
    np.testing.assert_array_equal(envs.step(np.arange(4))[0], following)
    with pytest.raises(ValueError, match="fork stays within a game, which has 2 environments"):
        envs.fork(0, 2)
    with pytest.raises(DamagedError, match="of another cartridge"):
        envs.load(saved[[0, 0, 0, 0]])
    envs.fork([0, 2], [1, 3])
    envs.close()


@pytest.mark.parametrize(
    ("games", "options", "message"),
    [
        (("pong", "breakout"), {"num_envs": 3}, "num_envs = 3: must be a multiple of the 2 games"),
        ((), {}, r"game = \(\): must be a name or several"),
        (("pong", "breakout"), {"full_action_space": False}, "several games take all 18 actions"),
        (("pong", 3), {}, "VectorEnv does not play 3"),
        (("pong", "breakout"), {"difficulty": 3}, "difficulty = 3: breakout has 0 and 1"),
        (("pong", "adventure"), {"img_height": 250}, "img_height = 250: must be from 16 to 210"),
        ({"pong"}, {}, "VectorEnv does not play|must be a name or several"),
    ],
)
def test_several_games_that_do_not_go_together_are_refused(games, options, message):
    with pytest.raises(UserError, match=message):
        VectorEnv(games, **{"num_envs": 2, **options})
