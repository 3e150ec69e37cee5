"""Games on another number of devices: every environment keeps its number and its rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.base import EnvGroup, env_ids
from jaxrl.program import episode_statistics, moved_games
from jaxrl.program.rollout import RolloutState
from jaxrl.runtime.mesh import SHARDED, make_mesh, put
from jaxrl.types import WINDOW, TimeStep

ENVS = 16


def groups_of(num_devices: int, count: int, mesh) -> tuple[RolloutState, ...]:
    """Groups whose every row is the number of its environment."""
    groups = []
    for index in range(count):
        num_envs = ENVS // num_devices // count
        ids = env_ids(num_envs, num_devices, EnvGroup(index, count)).ravel()
        rows = jnp.asarray(ids, jnp.float32)
        episodes = episode_statistics.init(num_envs, num_devices, counted=True)
        state = RolloutState(
            env=(jnp.stack([rows, rows], axis=1), jax.vmap(jax.random.key)(jnp.asarray(ids))),
            timestep=TimeStep(*[rows] * len(TimeStep._fields)),
            observation=rows[:, None, None],
            keys=jax.vmap(jax.random.key)(jnp.asarray(ids)),
            episodes=episodes._replace(score=rows, length=jnp.asarray(ids, jnp.int32)),
        )
        groups.append(put(mesh, state, SHARDED))
    return tuple(groups)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("saved_on", "here"), [(1, 4), (2, 4), (4, 2), (2, 1)])
def test_environments_keep_their_rows(saved_on, here, count):
    mesh = make_mesh(here)
    on_here = groups_of(here, count, mesh)
    shapes = moved_games.saved_shapes(on_here, saved_on)
    saved = groups_of(saved_on, count, make_mesh(saved_on))
    read = jax.tree.map(lambda x, place: jax.device_put(x, place.sharding), saved, shapes)
    moved = moved_games.lay_out(read, saved_on, mesh)
    for group, expected in zip(moved, on_here, strict=True):
        for got, wanted in zip(jax.tree.leaves(group), jax.tree.leaves(expected), strict=True):
            assert got.sharding == wanted.sharding
            if jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
                got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("here", [1, 4])
def test_statistics_of_ended_games_are_merged(here):
    """The last hundred by their end come from all devices, and the next game follows them."""
    ended_at = np.concatenate([np.arange(0, 300, 3)[-WINDOW:], np.arange(250, 250 + WINDOW)])
    episodes = episode_statistics.init(4, 2, counted=True)._replace(
        vector_step=np.array([400, 400], np.int32),
        ended=np.array([130, 110], np.int32),
        scores=ended_at.astype(np.float32),
        lengths=ended_at.astype(np.int32),
        ended_at=ended_at.astype(np.int32),
    )
    merged = episode_statistics.merged(episodes, here)
    assert episode_statistics.summarize(merged) == episode_statistics.summarize(episodes)
    assert merged.ended.tolist() == [240] + [0] * (here - 1)
    assert merged.vector_step.tolist() == [400] * here
    last = np.sort(ended_at, kind="stable")[-WINDOW:]
    # Slot by slot as if one device had played them: game number n is in slot n % WINDOW.
    np.testing.assert_array_equal(np.roll(merged.scores[:WINDOW], -(240 % WINDOW)), last)
    assert (merged.ended_at[WINDOW:] == -1).all()
