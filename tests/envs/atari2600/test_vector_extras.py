"""What the vector environment has beside ale-py's: names, presets, resets by hand, forks."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import jaxrl.gymnasium
from jaxrl.atari.games import atari_games
from jaxrl.envs import VectorEnv
from jaxrl.envs.atari2600 import build, roms, vector_options
from jaxrl.errors import UserError
from jaxrl.runtime import native_library

SHORT = {"max_num_frames_per_episode": 48}
NOTHING = np.zeros(2, np.int64)


def test_every_game_of_ale_py_is_in_the_registry_by_its_name():
    gymnasium.register_envs(jaxrl.gymnasium)
    gymnasium.register_envs(ale_py)
    names = [name.split("/") for name in gymnasium.registry if "/" in name]
    ours = {name for namespace, name in names if namespace == "jaxrl"}
    ales = {name for namespace, name in names if namespace == "ALE"}
    assert ours == ales
    assert len(ours) == len(atari_games())


def test_make_vec_opens_a_game_with_its_options():
    envs = gymnasium.make_vec("jaxrl/MsPacman-v5", num_envs=2, grayscale=False, img_height=70)
    assert (envs.options.game, envs.num_envs) == ("ms_pacman", 2)
    assert envs.single_observation_space.shape == (4, 70, 84, 3)
    assert envs.spec.id == "jaxrl/MsPacman-v5"
    envs.close()


def test_the_registry_imports_neither_jax_nor_the_emulator():
    code = """
import sys, jaxrl.gymnasium
assert not {"jax", "jaxlib", "envpool", "jaxrl.envs.atari2600"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name", ["ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4", "jaxrl/SpaceInvaders-v5"]
)
def test_games_have_the_names_of_other_libraries_too(name):
    envs = VectorEnv(name, 1)
    assert envs.options.game == "space_invaders"
    envs.close()


# --- presets -------------------------------------------------------------------------------------


def test_a_preset_says_what_it_sets_and_options_come_first(capsys):
    envs = VectorEnv("breakout", 1, preset="machado2018", noop_max=7)
    said = capsys.readouterr().err
    assert said.startswith("preset machado2018: repeat_action_probability=0.25, ")
    assert "noop_max" not in said
    options = envs.options
    assert (options.repeat_action_probability, options.full_action_space) == (0.25, True)
    assert (options.noop_max, options.use_fire_reset) == (7, False)
    assert envs.single_action_space.n == 18
    envs.close()


@pytest.mark.parametrize("name", vector_options.PRESETS)
def test_a_preset_plays_as_its_options_do(name):
    """And sets the same options as the others, so that none depends on a default."""
    assert vector_options.PRESETS[name].keys() == vector_options.PRESETS["mnih2015"].keys()
    both = [
        VectorEnv("breakout", 2, preset=name),
        VectorEnv("breakout", 2, **vector_options.PRESETS[name]),
    ]
    for envs in both:
        envs.reset(seed=1)
    for action in np.random.default_rng(0).integers(0, 4, (40, 2)):
        first, second = (envs.step(action) for envs in both)
        for mine, other in zip(first[:4], second[:4], strict=True):
            np.testing.assert_array_equal(mine, other)
    for envs in both:
        envs.close()


def test_a_preset_that_is_unknown_names_the_others():
    with pytest.raises(UserError, match="preset = 'nature': must be one of mnih2015, machado2018"):
        VectorEnv("pong", 1, preset="nature")


# --- autoreset -----------------------------------------------------------------------------------


def test_without_autoreset_a_reset_with_a_mask_begins_the_next_episode():
    """The same episodes as where the next step begins them."""
    by_hand = VectorEnv("pong", 2, autoreset_mode="Disabled", **SHORT)
    by_itself = VectorEnv("pong", 2, **SHORT)
    assert by_hand.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    for envs in (by_hand, by_itself):
        envs.reset(seed=1)
    ends = 0
    for _ in range(60):
        observations, _, terminated, truncated, infos = by_hand.step(NOTHING)
        others = by_itself.step(NOTHING)
        np.testing.assert_array_equal(observations, others[0])
        np.testing.assert_array_equal(truncated, others[3])
        if not (done := terminated | truncated).any():
            continue
        ends += 1
        with pytest.raises(RuntimeError, match=r"environments \[.*\] have ended: reset them"):
            by_hand.step(NOTHING)
        assert done.all()  # their time limits fall together, as the other plays resets in a step
        observations, infos = by_hand.reset(options={"reset_mask": done})
        others = by_itself.step(NOTHING)
        np.testing.assert_array_equal(observations, others[0])
        np.testing.assert_array_equal(infos["frame_number"], others[4]["frame_number"])
    assert ends > 2
    by_hand.close()
    by_itself.close()


def test_without_autoreset_a_part_is_reset_and_the_others_stay_ended():
    envs = VectorEnv("pong", 2, autoreset_mode="Disabled", **SHORT)
    envs.reset(seed=1)
    while not (ends := envs.step(NOTHING)[3]).any():
        pass
    assert ends.all()
    envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(RuntimeError, match=r"environments \[1\] have ended"):
        envs.step(NOTHING)
    envs.load(envs.save())
    with pytest.raises(RuntimeError, match=r"environments \[1\] have ended"):
        envs.step(NOTHING)
    envs.reset(options={"reset_mask": np.array([False, True])})
    assert not envs.step(NOTHING)[3].any()
    envs.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1}, "'Disabled': needs batch_size = num_envs"),
        ({"life_loss_info": True}, "'Disabled': takes no life_loss_info"),
    ],
)
def test_what_resets_by_hand_cannot_do_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        VectorEnv("pong", 2, autoreset_mode="Disabled", **options)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasiums_wrapper_counts_the_same_episodes_in_every_mode(mode):
    envs = RecordEpisodeStatistics(VectorEnv("pong", 2, autoreset_mode=mode, **SHORT))
    envs.reset(seed=1)
    lengths = []
    for _ in range(50):
        _, _, terminated, truncated, infos = envs.step(NOTHING)
        if (done := terminated | truncated).any():
            lengths += infos["episode"]["l"][done].tolist()
            if mode == AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": done})
    assert set(lengths) == {12}  # 48 frames are 12 steps of 4
    envs.close()


# --- forks ---------------------------------------------------------------------------------------


def test_forked_games_go_on_from_their_source():
    envs, alone = (VectorEnv("seaquest", 3, repeat_action_probability=0.25) for _ in range(2))
    actions = np.random.default_rng(0).integers(0, 18, (60, 3))
    for some in (envs, alone):
        some.reset(seed=1)
        for action in actions[:30]:
            some.step(action)
    observations, infos = envs.fork(1, [0, 2])
    assert infos["env_id"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(observations, observations[[1, 1, 1]])
    for action in actions[30:]:
        forked, expected = envs.step(action[[1, 1, 1]]), alone.step(action)
        for mine, other in zip(forked[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(mine, other[[1, 1, 1]])
    before = envs.save()
    envs.fork([0, 1], [1, 2])
    np.testing.assert_array_equal(envs.save(), before[[0, 0, 1]])
    envs.close()
    alone.close()


@pytest.mark.parametrize(
    ("source", "targets", "error"),
    [
        (0, 3, "environments are from 0 to 2: fork was given 0 and 3"),
        (-1, 0, "environments are from 0 to 2"),
        (0, True, "fork takes numbers of environments, not 0 and True"),
        (0, None, "fork takes numbers of environments"),
        ([0, 1], [2], "fork takes one source, or one for each of 1 targets, not 2"),
    ],
)
def test_forks_of_other_things_are_refused_and_change_nothing(source, targets, error):
    envs = VectorEnv("pong", 3)
    envs.reset(seed=1)
    before = envs.save()
    with pytest.raises((TypeError, ValueError), match=error):
        envs.fork(source, targets)
    np.testing.assert_array_equal(envs.save(), before)
    envs.close()


def test_an_action_of_eight_bytes_is_not_cut_to_another():
    envs = VectorEnv("pong", 2)
    envs.reset(seed=1)
    with pytest.raises(ValueError, match="actions are from 0 to 5"):
        envs.step(NOTHING + 2**32)
    envs.step(NOTHING)
    envs.close()


def test_true_is_no_number_of_environments():
    with pytest.raises(UserError, match="num_envs = True: must be an integer"):
        VectorEnv("pong", True)


# --- installation --------------------------------------------------------------------------------


def without(monkeypatch, *packages):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in packages else find_spec(name)
    )


def test_ale_pys_cartridges_are_envpools(monkeypatch):
    ours = {game: roms.rom(game) for game in atari_games()}
    without(monkeypatch, "envpool_assets")
    assert roms.path("pong").parts[-3:-1] == ("ale_py", "roms")
    for game, image in ours.items():
        assert roms.rom(game) == image, game


def test_without_either_package_there_is_one_line(monkeypatch):
    without(monkeypatch, "envpool_assets", "ale_py")
    with pytest.raises(UserError, match=r"no cartridge of pong: .*pip install ale-py"):
        roms.path("pong")


def test_its_library_needs_no_headers_of_jaxlib(monkeypatch, tmp_path):
    """And says what needs the compiler, and what plays without."""
    without(monkeypatch, "jaxlib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\necho "$@" >> $0.calls\nwhile [ "$1" != -o ]; do shift; done\necho > "$2"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build.vector_library.__wrapped__().name.startswith("atari2600-vector-")
    assert "isystem" not in Path(f"{compiler}.calls").read_text()
    monkeypatch.setattr(native_library, "compiler", lambda: None)
    with pytest.raises(UserError, match=r"VectorEnv: needs a C\+\+ compiler.*ale_py"):
        build.vector_library.__wrapped__()
