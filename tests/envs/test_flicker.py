"""Blank frames: how many, of which environments, and what they leave alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.envs.engines import make_engines
from jaxrl.envs.flicker import FlickerState
from jaxrl.evaluation import evaluate, protocols, trace
from jaxrl.evaluation.protocols import FireState
from jaxrl.runs.evaluation_record import describe, read, read_conditions, write
from jaxrl.runtime.mesh import SHARDED, make_mesh, map_over_devices, put
from jaxrl.types import AXIS
from tests.conftest import catch_config, planned
from tests.evaluation.test_trace import constant

ENVS, STEPS = 16, 120


def config(probability, **changes):
    env = {"flicker": probability, "frame_height": 36, "frame_width": 28} | changes.pop("env", {})
    return catch_config(env=env, **changes)


def play(config, devices=1, seed=3):
    """The rows of all steps, environment by environment: each field is [STEPS + 1, ENVS, ...]."""
    mesh, parts = make_mesh(devices), []
    groups = config.parallel.groups
    for engine in make_engines(planned(config, devices), devices):
        numbers = engine.env_ids.ravel()
        state, first = engine.init(seed)

        def steps(state, actions, engine=engine):
            return jax.lax.scan(lambda s, a: engine.recv(engine.send(s, a)), state, actions)

        by_env = PartitionSpec(None, AXIS)
        played = jax.jit(map_over_devices(steps, mesh, (SHARDED, by_env), (SHARDED, by_env)))
        actions = (np.arange(STEPS)[:, None] * (numbers + 1) // 7 % 3).astype(np.int32)
        rows = played(put(mesh, state, SHARDED), put(mesh, actions, by_env))[1]
        rows = jax.tree.map(lambda x, y: np.concatenate([x[None], y]), first, rows)
        engine.close()
        parts.append((numbers, rows))
    order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
    assert len(order) == ENVS
    assert len(parts) == groups
    return jax.tree.map(lambda *x: np.concatenate(x, 1)[:, order], *(rows for _, rows in parts))


def blank(rows):
    return ~rows.frame.any((2, 3))


SLOW = [pytest.param(engine, marks=pytest.mark.slow) for engine in ("catch", "envpool")]


@pytest.mark.parametrize("engine", ["atari2600", *SLOW])
def test_frames_are_blank_or_those_of_the_game_and_nothing_else_changes(engine):
    game = "catch" if engine == "catch" else "pong"
    env = {"engine": engine, "random_start_steps": 30, "max_episode_steps": 50}
    plain = play(config(0.0, game=game, env=env))
    rows = play(config(0.25, game=game, env=env))
    assert not blank(plain).any()
    np.testing.assert_array_equal(rows.frame[~blank(rows)], plain.frame[~blank(rows)])
    jax.tree.map(np.testing.assert_array_equal, rows._replace(frame=()), plain._replace(frame=()))
    assert rows.reset.any()
    # 16 x 121 draws: a standard deviation of (0.25 x 0.75 / 1936)^0.5 = 0.0098.
    assert abs(blank(rows).mean() - 0.25) < 0.04


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_every_frame_is_drawn_by_itself():
    blanks = blank(play(config(0.5)))
    # 16 x 120 and 15 x 121 pairs of which half are alike: a standard deviation of 0.0117.
    assert abs((blanks[1:] == blanks[:-1]).mean() - 0.5) < 0.05
    assert abs((blanks[:, 1:] == blanks[:, :-1]).mean() - 0.5) < 0.05
    assert 0 < blanks[0].sum() < ENVS  # the first frames too
    assert blank(play(config(1.0))).all()


@pytest.mark.slow
def test_the_seed_alone_decides_not_devices_and_groups():
    alone = play(config(0.5))
    jax.tree.map(np.testing.assert_array_equal, alone, play(config(0.5)))
    assert (blank(alone) != blank(play(config(0.5), seed=4))).mean() > 0.4
    for devices, groups in ((4, 1), (2, 2)):
        other = play(config(0.5, parallel={"groups": groups}), devices)
        jax.tree.map(np.testing.assert_array_equal, alone, other)


def test_without_flicker_the_engine_is_left_as_it_is():
    engine = make_engine(config(0.0), 2)
    assert engine.state_format == "catch 1"
    assert not isinstance(engine.init(0)[0], FlickerState)
    assert make_engine(config(0.5), 2).state_format == "catch 1 flicker 1"
    envpool = config(0.5, game="pong", env={"engine": "envpool"})
    assert make_engine(envpool, 2).state_format == ""  # its games cannot be saved


# --- evaluation -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluations_flicker_and_say_so(tmp_path):
    flickering = config(0.75)
    engine, _, conditions = protocols.set_up(flickering, "noop", ENVS)
    _, first = engine.init(0)
    assert 0.3 < 1 - np.asarray(first.frame).any((1, 2)).mean() <= 1
    assert conditions.flicker == 0.75
    evaluation = evaluate.evaluate(flickering, constant(flickering), "noop", 4)
    assert "no sticky actions, frames are blank with probability 0.75)" in describe(evaluation)
    write(tmp_path, evaluation)
    assert read(tmp_path) == evaluation
    # Files of an older jaxrl do not have it.
    older = {name: value for name, value in vars(conditions).items() if name != "flicker"}
    assert read_conditions(older).flicker == 0
    with pytest.raises(ValueError, match="make no sense"):
        read_conditions(older | {"flicker": 2})
    assert protocols.conditions(config(0.5, game="pong"), "sticky").flicker == 0.5


@pytest.mark.slow
def test_films_and_traces_show_the_screen():
    record = trace.trace(config(1.0), constant(config(1.0)), "noop", 0, 6)
    # 36 rows of pixels are seven of the board: the ball falls through them.
    ball = (record.frames[..., 0] == 255).any(2).argmax(1)
    np.testing.assert_array_equal(ball * 7 // 36, range(7))
    engine = make_engine(config(1.0), 2)
    agent = make_agent(resolve(config(1.0)), engine.spec)
    state = evaluate.start_games(agent, engine, 0)
    assert not np.asarray(state.observation).any()
    shown = protocols.screen(engine, state)
    assert shown.shape == (36, 28, 3)
    pressed = state._replace(env=FireState(state.env, jnp.zeros(2, jnp.int32)))
    np.testing.assert_array_equal(protocols.screen(engine, pressed), shown)
