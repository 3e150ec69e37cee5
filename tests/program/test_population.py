"""Several seeds in one program against a run of each: the same games, the same learning."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.envs import make_engines
from jaxrl.program import episode_statistics, population
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import WINDOW
from tests.conftest import catch_config, planned
from tests.integration.test_devices import NETWORKS, SETTINGS

SEEDS = (3, 1)


def config_of(recipe, num_devices=1, order="strict"):
    """Plain RMSProp that starts at 1: rounding stays small."""
    optimizer = {"name": "rmsprop", "learning_rate": 1.3e-3, "initial_scale": 1.0, "decay": 0.99}
    parallel = {"num_devices": num_devices, "order": order}
    config = catch_config(recipe, SETTINGS[recipe], num_envs=8, parallel=parallel)
    network = {"torso": "nips"} | NETWORKS.get(recipe, {})
    return config.replaced(optimizer=optimizer, network=network)


def build(config, seeds):
    num_devices = config.parallel.num_devices
    plan = planned(config, num_devices)
    engines = make_engines(plan, num_devices, len(seeds))
    agent = make_agent(plan, engines[0].spec._replace(num_envs=plan.envs_per_learner))
    return make_program(plan, agent, engines, make_mesh(num_devices), seeds)


def numbers(tree):
    """With random keys as their data."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    tree = jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)
    return jax.device_get(tree)


def assert_alike(config, turns):
    """Each member of a population, and the run that trains alone with its seed."""
    together = build(config, SEEDS)
    state = together.run(together.init(), np.int32(turns))
    for number, seed in enumerate(SEEDS):
        member = numbers(together.take(state, number))
        program = build(config, (seed,))
        alone = numbers(program.run(program.init(), np.int32(turns)))
        jax.tree.map(np.testing.assert_array_equal, member.games, alone.games)
        np.testing.assert_array_equal(member.key, alone.key)
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), member.agent, alone.agent
        )
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), member.metrics, alone.metrics
        )
    stacks = [numbers(together.take(state, n)).games[0].observation for n in range(2)]
    assert (stacks[0] != stacks[1]).any()  # the members play different games


@pytest.mark.slow
def test_members_equal_runs_alone():
    assert_alike(config_of("a2c_fast"), 12)


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize(
    ("recipe", "order", "turns", "num_devices"),
    [
        ("ppo_pong", "strict", 4, 1),
        ("vtrace_cpu", "overlapped", 20, 1),
        ("rainbow", "strict", 12, 1),
        ("btr_fast", "strict", 12, 1),
        ("pqn", "strict", 4, 1),
        ("pqn_hadamax", "strict", 2, 1),
        ("a2c_fast", "strict", 12, 2),
        ("vtrace_cpu", "overlapped", 12, 2),
    ],
)
def test_members_of_every_agent_equal_runs_alone(recipe, order, turns, num_devices):
    assert_alike(config_of(recipe, num_devices, order), turns)


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize("recipe", ["a2c_fast", "vtrace_cpu"])
def test_the_layout_of_accelerators_learns_the_same(recipe, monkeypatch):
    """Arrays with an axis of members, and one operation for all."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert_alike(config_of(recipe), 6)


@pytest.mark.parametrize("backend", ["cpu", pytest.param("gpu", marks=pytest.mark.slow)])
@pytest.mark.slow
@pytest.mark.rotating(2)
def test_a_population_taken_apart_and_joined_again_is_the_same(monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    program = build(config_of("vtrace_cpu", 2), SEEDS)
    state = program.init()
    joined = program.join(*(program.take(state, number) for number in range(len(SEEDS))))
    jax.tree.map(np.testing.assert_array_equal, numbers(joined), numbers(state))


@pytest.mark.parametrize("recipe", ["a2c_fast", pytest.param("vtrace_cpu", marks=pytest.mark.slow)])
@pytest.mark.slow
@pytest.mark.rotating(2)
def test_members_go_on_with_new_games(recipe):
    """As a resumed population on EnvPool does."""
    program = build(config_of(recipe), SEEDS)
    state = program.init()
    before = numbers((state.agent.actor, state.games[0].keys))
    games = numbers(state.games[0].env)
    state = program.restart(state, 13, 11)
    jax.tree.map(
        np.testing.assert_array_equal, before, numbers((state.agent.actor, state.games[0].keys))
    )
    assert (games.ball_column != numbers(state.games[0].env).ball_column).any()
    alone = build(config_of(recipe), SEEDS[1:2])
    games = numbers(alone.restart(alone.init(), 11).games)
    jax.tree.map(np.testing.assert_array_equal, games, numbers(program.take(state, 1).games))


# --- on the host ---------------------------------------------------------------------------------


def test_keys_are_those_of_each_run():
    """Environment 1 of the second run has its run's key and the number 1, on both devices."""
    keys = [jax.random.key(5), jax.random.key(9)]
    member_keys = population.env_keys(keys, np.array([[0, 1, 0, 1], [2, 3, 2, 3]]))
    expected = [(5, 0), (5, 1), (9, 0), (9, 1), (5, 2), (5, 3), (9, 2), (9, 3)]
    for key, (seed, number) in zip(member_keys, expected, strict=True):
        assert key == jax.random.fold_in(jax.random.key(seed), number)


def test_statistics_of_members_are_apart():
    """One game of two environments ends for the second member, and none for the first."""
    episodes = episode_statistics.init(4, 1, counted=True, members=2)
    no = jnp.zeros(4, bool)
    score = jnp.arange(4.0)
    over = jnp.array([False, False, False, True])
    frame = jnp.zeros((4, 84, 84), jnp.uint8)
    row = episode_statistics.TimeStep(frame, score, score, over, no, over, no)
    updated = jax.device_get(episode_statistics.update(episodes, row))
    assert updated.scores.shape == (2 * WINDOW,)
    first, second = episode_statistics.split_members(updated, 1, 2)
    assert episode_statistics.summarize(first).return_mean is None
    assert first.score.tolist() == [0.0, 1.0]
    assert episode_statistics.summarize(second) == (1, 3.0, 3.0, 3.0, 1.0)
    assert second.score.tolist() == [2.0, 0.0]


def test_figures_over_members():
    """The mean of 1 and 4 is 2.5; members without a game do not count, but for their games."""
    none = episode_statistics.EpisodeSummary(0, None, None, None, None)
    one = episode_statistics.EpisodeSummary(5, 1.0, -3.0, 9.0, 10.0)
    two = episode_statistics.EpisodeSummary(7, 4.0, 4.0, 4.0, 20.0)
    assert episode_statistics.summarize_members([one]) is one
    assert episode_statistics.summarize_members([none, none]) == none
    assert episode_statistics.summarize_members([one, none, two]) == (12, 2.5, 1.0, 4.0, 15.0)
