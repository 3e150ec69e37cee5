"""Games of a checkpoint from another number of devices, laid out for this one.

An environment keeps its number, its game and its random key. Environments are counted device by
device, then group by group (`jaxrl.envs.base.env_ids`), so a game may come to another group too.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrl.program import episode_statistics
from jaxrl.program.rollout import GroupStates, RolloutState
from jaxrl.runs.checkpoint_tables import is_key
from jaxrl.runtime.mesh import REPLICATED, SHARDED, put_rows
from jaxrl.types import PyTree


def saved_shapes(groups: GroupStates, num_devices: int) -> GroupStates:
    """Returns groups in the shapes that `num_devices` devices had, all rows on every device."""

    def shapes(group: RolloutState) -> RolloutState:
        games = len(group.episodes.score) // num_devices
        episodes = episode_statistics.init(games, num_devices, counted=False)
        return group._replace(episodes=episodes)

    mesh = groups[0].keys.sharding.mesh  # type: ignore[attr-defined]
    everywhere = jax.sharding.NamedSharding(mesh, REPLICATED)
    return tuple(jax.jit(shapes, out_shardings=everywhere)(group) for group in groups)


def lay_out(groups: GroupStates, num_devices: int, mesh: Mesh) -> GroupStates:
    """Returns groups that `num_devices` devices saved, as the devices of the mesh hold them.

    The statistics of ended games are merged; the first device has them.
    """
    count = len(groups)

    def regroup(*rows: Any) -> tuple[np.ndarray, ...]:
        by_device = [np.reshape(x, (num_devices, -1, *np.shape(x)[1:])) for x in rows]
        numbered = np.concatenate(by_device, axis=1).reshape(-1, *np.shape(rows[0])[1:])
        parts = numbered.reshape(mesh.size, count, -1, *numbered.shape[1:])
        return tuple(parts[:, group].reshape(-1, *numbered.shape[1:]) for group in range(count))

    rows = [jax.tree.map(_host_array, _environment_rows(group)) for group in groups]
    leaves = [jax.tree.leaves(tree) for tree in rows]
    regrouped = zip(*(regroup(*same) for same in zip(*leaves, strict=True)), strict=True)
    shape = jax.tree.structure(rows[0])
    return tuple(
        _placed(group, jax.tree.unflatten(shape, moved), mesh)
        for group, moved in zip(groups, regrouped, strict=True)
    )


def _environment_rows(group: RolloutState) -> RolloutState:
    """Returns what has a row for each environment, with random keys as their data."""
    started: Any = (group.episodes.score, group.episodes.length, group.episodes.counted)
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if is_key(x) else x, group._replace(episodes=started)
    )


def _host_array(x: jax.Array) -> np.ndarray:
    """Returns an array of which every device has all rows."""
    return np.asarray(x.addressable_data(0))


def _placed(group: RolloutState, rows: Any, mesh: Mesh) -> RolloutState:
    """Returns a group of these rows on the mesh."""
    score, length, counted = rows.episodes
    ended = episode_statistics.merged(jax.tree.map(_host_array, group.episodes), mesh.size)
    episodes = ended._replace(score=score, length=length, counted=counted)
    placed: PyTree = put_rows(mesh, rows._replace(episodes=episodes), SHARDED)
    return jax.tree.map(
        lambda x, was: jax.random.wrap_key_data(x) if is_key(was) else x, placed, group
    )
