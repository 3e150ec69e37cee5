"""Engines that the runs of several seeds share: each run has the games that it has alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.schema import Config
from jaxrl.envs import engines, make_engine
from jaxrl.envs.base import EnvGroup, env_ids, first_env_seed, first_env_seeds
from jaxrl.errors import UserError

SEEDS, ENVS = (5, 9), 3


def play(engine, *seeds):
    """The first rows and 150 more; environment e of every run repeats action e."""
    state, first = engine.init(*seeds)
    actions = jnp.tile(jnp.arange(ENVS, dtype=jnp.int32), len(seeds))
    run = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: engine.recv(engine.send(s, actions)), s, length=150)
    )
    rows = jax.device_get(run(state)[1])
    engine.close()
    return jax.tree.map(lambda row, later: np.concatenate([row[None], later]), first, rows)


@pytest.mark.parametrize(
    ("engine", "env"),
    [
        ("catch", {"flicker": 0.5}),
        ("catch", {}),
        ("atari2600", {}),
        ("atari2600", {"exact_resets": True}),
        pytest.param("envpool", {}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
@pytest.mark.rotating(3)
def test_each_run_has_the_games_that_it_has_alone(engine, env):
    game = "catch" if engine == "catch" else "breakout"
    config = Config(game=game).replaced(env={"engine": engine, "random_start_steps": 60} | env)
    shared = play(make_engine(config, len(SEEDS) * ENVS, 1, EnvGroup(members=len(SEEDS))), *SEEDS)
    assert shared.game_over.any()
    for number, seed in enumerate(SEEDS):
        member = jax.tree.map(lambda x, n=number: x[:, n * ENVS : (n + 1) * ENVS], shared)
        jax.tree.map(np.testing.assert_array_equal, member, play(make_engine(config, ENVS), seed))


def test_environments_of_members_are_counted_apart():
    """Two devices of 2 members with 2 environments each, in the second of two groups."""
    numbers = env_ids(4, 2, EnvGroup(1, 2, members=2))
    assert numbers.tolist() == [[2, 3, 2, 3], [6, 7, 6, 7]]
    seeds = [first_env_seed(seed) for seed in (5, 9)]
    assert first_env_seeds((5, 9), 4).tolist() == [seeds[0], seeds[0], seeds[1], seeds[1]]


def test_engines_of_other_packages_start_games_of_one_seed():
    engines.check_starts_many("catch")
    with pytest.raises(UserError, match="--seeds: the engine 'lights' starts games of one seed"):
        engines.check_starts_many("lights")
