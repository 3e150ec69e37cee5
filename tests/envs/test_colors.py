"""Frames in color, which EnvPool shows: three planes, one below the other."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.agents import make_agent
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.envs.atari2600 import engine as atari2600
from jaxrl.errors import UserError
from jaxrl.networks.torsos import planes_last
from jaxrl.runs import metrics
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget
from jaxrl.types import EnvSpec
from tests.conftest import catch_config, chosen, planned

LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue (Rec. 601)


def test_planes_become_channels():
    """Two frames of 1 x 2 pixels: rows are red, green, blue; channels are frames, then planes."""
    stack = jnp.array([[[[1, 11], [2, 12]], [[3, 13], [4, 14]], [[5, 15], [6, 16]]]])
    expected = [[[[1, 3, 5, 11, 13, 15], [2, 4, 6, 12, 14, 16]]]]
    np.testing.assert_array_equal(planes_last(stack, 3), expected)
    np.testing.assert_array_equal(planes_last(stack, 1), stack)


@pytest.mark.parametrize("interface", ["xla", "callback"])
@pytest.mark.slow
def test_the_planes_are_red_green_and_blue(interface):
    """Their luminance is the gray frame of the same game, as no other order's is."""
    config = Config(game="qbert").replaced(
        env={"engine": "envpool", "interface": interface, "random_start_steps": 12}
    )
    shown = []
    for grayscale in (True, False):
        engine = make_engine(config.replaced(env={"grayscale": grayscale}), 2)
        assert engine.spec.planes == (1 if grayscale else 3)
        state, _ = engine.init(1)
        for action in (2, 3, 1):
            _, rows = engine.recv(engine.send(state, jnp.full(2, action, jnp.int32)))
        shown.append(np.asarray(rows.frame, float))
        engine.close()
    gray, colors = shown[0], shown[1].reshape(2, 3, 84, 84)
    distance = {
        order: np.abs(np.tensordot(LUMINANCE[list(order)], colors, (0, 1)) - gray).mean()
        for order in itertools.permutations(range(3))
    }
    assert min(distance, key=distance.__getitem__) == (0, 1, 2)
    assert distance[0, 1, 2] < 1 < min(distance[order] for order in distance if order != (0, 1, 2))


def test_our_emulator_refuses_them_and_auto_takes_envpool(capsys):
    config = Config(game="pong").replaced(env={"grayscale": False})
    with pytest.raises(UserError, match=r"env.grayscale = false: .* --env.engine envpool"):
        atari2600.check_game(config.game, config.env)
    atari2600._say_envpool.cache_clear()
    assert chosen(config).engine == "envpool"
    assert "env.grayscale = false" in capsys.readouterr().err


@pytest.mark.parametrize(
    "recipe",
    ["a2c_fast", "ppo_pong", "vtrace_lstm_cpu", "c51_fast", "nstep_q", "pqn", "r2d2_fast"],
)
def test_every_agents_first_layer_has_a_channel_for_each_plane_of_each_frame(recipe):
    config = catch_config(recipe, game="pong", env={"grayscale": False}, num_envs=4)
    height, width = config.env.frame_shape
    spec = EnvSpec(4, 6, ("NOOP",) * 6, "pong", (height, width), 4, config.env.planes)
    agent = make_agent(resolve(config), spec)
    state = jax.eval_shape(agent.init, jax.random.key(0))
    assert state.actor.params["Torso_0"]["Conv_0"]["kernel"].shape[2] == 12


def test_memory_is_counted_in_color(monkeypatch):
    config = Config(game="pong").replaced(env={"engine": "envpool"})
    rollout = (config.agent.rollout_length + 1) * 84 * 84 * 4 * config.num_envs  # of gray bytes
    monkeypatch.setattr(memory_budget, "_free", lambda mesh: (2 * rollout, 1))
    memory_budget._check_play(planned(config), make_mesh(1), 1)
    color = config.replaced(env={"grayscale": False})
    with pytest.raises(UserError, match="a rollout needs"):
        memory_budget._check_play(planned(color), make_mesh(1), 1)


def test_an_engine_that_shows_gray_frames_is_refused():
    """As one of another package may; Catch is refused before."""
    with pytest.raises(UserError, match=r"env.grayscale = false: the engine 'catch' shows 1 byte"):
        make_engine(Config(game="catch").replaced(env={"grayscale": False}), 2)


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.rotating(5)
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("vtrace_lstm_cpu", "--num-envs 20"),
        ("c51_fast", "--num-envs 4 --agent.learning-starts 0 --agent.replay-capacity 400"),
    ],
)
def test_agents_train_evaluate_and_play_in_color(tmp_path, recipe, settings):
    run = tmp_path / "x"
    words = (
        f"train --config {recipe} --game pong --env.no-grayscale --env.engine envpool {settings}"
    )
    short = "--total-steps 400 --log.interval 200 --env.max-episode-steps 100"
    words = [*words.split(), *short.split(), "--evaluation.episodes", "1"]
    assert main([*words, "--run-dir", str(run)]) == 0
    assert metrics.read(run)[-1]["step"] >= 400
    assert len(json.loads((run / "evaluation.json").read_text())["scores"]) == 1
    policy = jaxrl.load_policy(run)
    height, width = policy.config.env.frame_shape
    assert (height, width) == (3 * policy.config.env.frame_height, policy.config.env.frame_width)
    assert policy.actor.params["Torso_0"]["Conv_0"]["kernel"].shape[2] == 12
    assert main(["play", str(run), "-o", str(tmp_path / "x.gif")]) == 0
