"""The engine of a GPU against that of a CPU, row by row, on a stand-in for the driver.

What runs is the kernels' own source, the calls that launch them and the engine; what does not is
NVIDIA's compiler and driver.
"""

import ctypes
import shutil
import subprocess
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.atari.games import atari_games
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.envs.atari2600 import build, build_gpu, games, gpu_engine, gpu_library, roms
from jaxrl.envs.atari2600.gpu_library import mask_bus
from tests.envs.atari2600.gpu import standin
from tests.envs.atari2600.native import compiled
from tests.rotation import THOROUGH

BASE = Config().replaced(
    game="breakout", env={"engine": "atari2600", "random_start_steps": 30, "num_threads": 1}
)
# A game of each kind of bank, and of a European television.
KINDS = {
    "2K": "breakout", "4K": "seaquest", "F8": "ms_pacman", "F8SC": "elevator_action",
    "F6": "solaris", "E0": "montezuma_revenge", "FE": "robotank", "DPC": "pitfall2",
    "PAL": "air_raid",
}  # fmt: skip
OTHER_CARD = build_gpu.Kernels(b"of another card", "/cache/other.cubin")


@pytest.fixture
def driver(monkeypatch):
    return standin.install(monkeypatch)


def actions_for(engine, steps):
    shape = (steps, engine.spec.num_envs)
    return np.random.default_rng(1).integers(0, engine.spec.num_actions, shape).astype(np.int32)


def play(engine, state, actions, **options):
    """The state after the actions, and the rows; the options are those of `send`."""
    send = partial(engine.send, **options)

    @jax.jit
    def run(state, actions):
        return jax.lax.scan(lambda s, a: engine.recv(send(s, a)), state, actions)

    state, rows = run(state, jnp.asarray(actions))
    return jax.device_get((state, rows))


def both_play(config, steps, num_envs=2, **options):
    """Rows and snapshots of the engine of threads and of the other; they must be alike."""
    config_of_threads = config.replaced(env={"exact_resets": False})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standin.engine, "plays_on_gpu", lambda env: False)
        threads = make_engine(config_of_threads, num_envs)
    gpu = make_engine(config, num_envs)
    states, first = zip(*(engine.init(config.seed) for engine in (threads, gpu)), strict=True)
    jax.tree.map(np.testing.assert_array_equal, *first)
    actions = actions_for(gpu, steps)
    _, expected = play(threads, states[0], actions)
    state, got = play(gpu, states[1], actions, **options)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    saved, packed = threads.save(), gpu.pack(state)
    np.testing.assert_array_equal(mask_bus(packed), mask_bus(saved))
    for engine in (threads, gpu):
        engine.close()
    return got


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gpu_plays_the_rows_of_a_cpu(driver):
    before, _ = driver.launches(), driver.most_again()
    rows = both_play(BASE.replaced(env={"max_episode_steps": 12}), 40)
    assert rows.reset.any()
    assert rows.truncated.any()
    assert [after - old for after, old in zip(driver.launches(), before, strict=True)] == [40] * 3
    assert driver.most_again() == 0


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_plays_every_kind_of_cartridge(driver, kind):
    both_play(BASE.replaced(game=KINDS[kind], env={"max_episode_steps": 60}), 100)


@pytest.mark.slow
@pytest.mark.parametrize("game", atari_games() if THOROUGH else [])
def test_a_gpu_plays_every_game(driver, game):
    both_play(BASE.replaced(game=game), 60)


@pytest.mark.slow
@pytest.mark.parametrize("games_per_warp", [0, 32])
def test_the_lanes_of_a_warp_play_their_own_games(driver, games_per_warp):
    """35 games in warps of 16 or 32: in each some reset, some end."""
    env = {"max_episode_steps": 9}
    rows = both_play(BASE.replaced(env=env), 24, num_envs=35, games_per_warp=games_per_warp)
    ends = rows.reset.sum(axis=0)
    assert ends.min() < ends.max()


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "settings",
    [
        {"repeat_action_probability": 0.25, "max_episode_steps": 30},
        {"episodic_life": False, "reward_clip": False},
        {"fire_reset": False, "noop_max": 3, "max_episode_steps": 5},
        {"frame_height": 105, "frame_width": 80, "frame_skip": 2},
        {"frame_height": 42, "frame_width": 40, "frame_skip": 1},
        {"frame_height": 70, "frame_width": 52, "full_action_space": True},
    ],
    ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()),
)
def test_settings_mean_on_a_gpu_what_they_mean_on_a_cpu(driver, settings):
    both_play(BASE.replaced(env=settings), 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "frame_skip"), [("tic_tac_toe_3d", 4), ("tic_tac_toe_3d", 1), ("video_checkers", 4)]
)
def test_frames_that_are_cut_short_show_what_was_below(driver, game, frame_skip):
    """These games think for so long that a frame has no end, or no lower lines."""
    both_play(
        BASE.replaced(game=game, env={"frame_skip": frame_skip}), 60 if frame_skip > 1 else 100
    )


@pytest.mark.slow
def test_more_rows_are_played_again_than_there_are_threads(driver, monkeypatch):
    """Games that think, at times several at once, and one slot."""
    monkeypatch.setattr(gpu_library, "MOST_SLOTS", 1)
    driver.most_again()
    both_play(BASE.replaced(game="tic_tac_toe_3d"), 30, num_envs=9, games_per_warp=2)
    assert driver.most_again() > 1


@pytest.mark.slow
def test_a_warp_has_32_games_at_most(driver):
    engine = make_engine(BASE, 1)
    state, _ = engine.init(1)
    with pytest.raises(Exception, match="another size than the engine's"):
        play(engine, state, actions_for(engine, 1), games_per_warp=33)
    engine.close()


def test_the_world_is_the_same_bytes_in_every_process(tmp_path, monkeypatch):
    """The library twice, at other addresses."""
    rules = gpu_library.library.rules(BASE.env, (0, 1, 3, 4), True)
    again = shutil.copy(build.gpu_library(), tmp_path / "again.so")
    first, second = gpu_library.load(), ctypes.CDLL(str(again))
    for name in ("jaxrl_gpu_world", "jaxrl_gpu_sizes"):
        getattr(second, name).argtypes = getattr(first, name).argtypes
        getattr(second, name).restype = getattr(first, name).restype
    worlds = []
    for functions in (first, second):
        monkeypatch.setattr(gpu_library, "load", lambda found=functions: found)
        worlds.append(gpu_library.world("breakout", roms.rom("breakout"), rules, (84, 84)))
    np.testing.assert_array_equal(*worlds)


@pytest.mark.slow
def test_what_the_driver_refuses_is_said(driver, monkeypatch):
    monkeypatch.setattr(standin.build_gpu, "kernels", lambda: OTHER_CARD)
    engine = make_engine(BASE, 1)
    state, _ = engine.init(1)
    said = "cuModuleLoadData: CUDA_ERROR_INVALID_VALUE; delete '/cache/other.cubin'"
    with pytest.raises(Exception, match=said):
        play(engine, state, actions_for(engine, 1))
    engine.close()


@pytest.mark.slow
def test_random_programs_play_alike(driver, tmp_path, monkeypatch):
    """A cartridge with a second chip; hardly any of its frames is as a game's."""
    command = [compiled("fuzz.cc", tmp_path, "-O0"), "7", "1", "1", "program"]
    image = subprocess.run(command, capture_output=True, check=True).stdout
    for module in (games, gpu_engine):
        monkeypatch.setattr(module, "rom", lambda _: image)
    both_play(BASE.replaced(game="boxing", env={"random_start_steps": 0}), 6, num_envs=1)
