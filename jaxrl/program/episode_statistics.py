"""Statistics of whole games, which stay on the device during play."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.types import WINDOW, TimeStep


class Episodes(NamedTuple):
    """The games in progress, and the last WINDOW that ended on this device.

    Those of a population hold the entries of the first member, then the second's: scores has
    f32[M · WINDOW].
    """

    score: jax.Array  # f32[E], unclipped, of the game in progress
    length: jax.Array  # i32[E], agent steps of the game in progress
    counted: jax.Array  # b[E], whether the policy has played the game from its start
    vector_step: jax.Array  # i32[1], steps of every environment so far
    ended: jax.Array  # i32[1], games ended so far on this device, modulo 2³²
    scores: jax.Array  # f32[WINDOW], ring of ended games
    lengths: jax.Array  # i32[WINDOW], agent steps
    ended_at: jax.Array  # i32[WINDOW], vector step of the end; -1 where the ring is empty


class EpisodeSummary(NamedTuple):
    """The last WINDOW games over all devices; None before the first.

    The first games to end are the shortest of those that began together, so early means favor short
    games; `jaxrl.runs.metrics.games_needed` says for how long.
    """

    episodes: int  # ended so far; of a state's statistics modulo 2³², as `games_between` reads it
    return_mean: float | None
    return_min: float | None
    return_max: float | None
    length_mean: float | None  # agent steps


def new_games(num_envs: int, counted: bool) -> dict[str, jax.Array]:
    """Returns the fields of new games; `counted` is False if others played their first steps."""
    return {
        "score": jnp.zeros(num_envs),
        "length": jnp.zeros(num_envs, jnp.int32),
        "counted": jnp.full(num_envs, counted),
    }


def init(num_envs: int, num_devices: int, counted: bool, members: int = 1) -> Episodes:
    """Returns empty statistics of all devices, joined along the first axis for sharding.

    `num_envs` are those of a device, of all members of a population together.
    """
    num_rings = num_devices * members
    ring = num_rings * WINDOW
    return Episodes(
        **new_games(num_envs * num_devices, counted),
        vector_step=jnp.zeros(num_rings, jnp.int32),
        ended=jnp.zeros(num_rings, jnp.int32),
        scores=jnp.zeros(ring),
        lengths=jnp.zeros(ring, jnp.int32),
        ended_at=jnp.full(ring, -1, jnp.int32),
    )


def update(episodes: Episodes, timestep: TimeStep) -> Episodes:
    """Adds one row of every environment on this device."""
    members = len(episodes.ended)
    if members == 1:
        return _update(episodes, timestep)
    rows = jax.tree.map(
        lambda x: x.reshape(members, -1), (episodes, timestep._replace(frame=timestep.reset))
    )
    return jax.tree.map(jnp.ravel, jax.vmap(_update)(*rows))


def _update(episodes: Episodes, timestep: TimeStep) -> Episodes:
    """Adds one row of every environment of a run, or of a member of a population."""
    score = episodes.score + timestep.score
    length = episodes.length + ~timestep.reset
    over = timestep.game_over
    ends = over & episodes.counted
    order = jnp.cumsum(ends)  # 1 for the first game that ends in this row
    # If more than WINDOW games end at once, only the last are written.
    place = jnp.where(
        ends & (order > order[-1] - WINDOW), (episodes.ended + order - 1) % WINDOW, WINDOW
    )
    # writes[w, e]: environment e's game goes to ring slot w. XLA's scatter is a loop on CPUs.
    writes = place == jnp.arange(WINDOW)[:, None]

    def put(ring: jax.Array, values: jax.Array) -> jax.Array:
        return jnp.where(writes.any(1), jnp.where(writes, values, 0).sum(1), ring)

    return Episodes(
        score=jnp.where(over, 0, score),
        length=jnp.where(over, 0, length),
        counted=episodes.counted | over,
        vector_step=episodes.vector_step + 1,
        ended=episodes.ended + order[-1],
        scores=put(episodes.scores, score),
        lengths=put(episodes.lengths, length),
        ended_at=put(episodes.ended_at, episodes.vector_step),
    )


def split_members(episodes: Episodes, num_devices: int, members: int) -> list[Episodes]:
    """Returns the statistics of each member of a population, of all devices; on the host."""

    def part(number: int) -> Episodes:
        return jax.tree.map(
            lambda x: np.reshape(x, (num_devices, members, -1))[:, number].ravel(), episodes
        )

    return [part(number) for number in range(members)]


def merged(episodes: Episodes, num_devices: int) -> Episodes:
    """Returns statistics of all devices for another number of them; on the host.

    The first device gets the last WINDOW games that ended, and the number of all.
    """
    order = np.argsort(episodes.ended_at, kind="stable")
    last = order[np.asarray(episodes.ended_at)[order] >= 0][-WINDOW:]
    total = np.sum(episodes.ended, dtype=np.int32)  # wraps, as on the device
    places = (total - len(last) + np.arange(len(last))) % WINDOW

    def ring(values: Any, empty: int) -> Any:
        filled = np.full(num_devices * WINDOW, empty, np.asarray(values).dtype)
        filled[places] = np.asarray(values)[last]
        return filled

    vector_step: Any = np.full(num_devices, np.max(episodes.vector_step), np.int32)
    ended: Any = np.zeros(num_devices, np.int32)
    ended[0] = total
    return episodes._replace(
        vector_step=vector_step,
        ended=ended,
        scores=ring(episodes.scores, 0),
        lengths=ring(episodes.lengths, 0),
        ended_at=ring(episodes.ended_at, -1),
    )


def games_between(before: int, now: int) -> int:
    """Returns the games that ended between two counts of a state, each of which is modulo 2³²."""
    return (now - before) % 2**32


def summarize_members(summaries: Sequence[EpisodeSummary]) -> EpisodeSummary:
    """Summarizes the members of a population: the mean of their means, the lowest and the highest.

    A run alone is its only member.
    """
    if len(summaries) == 1:
        return summaries[0]
    total = sum(summary.episodes for summary in summaries)
    means = [summary.return_mean for summary in summaries if summary.return_mean is not None]
    lengths = [summary.length_mean for summary in summaries if summary.length_mean is not None]
    if not means:
        return EpisodeSummary(total, None, None, None, None)
    return EpisodeSummary(
        total, statistics.fmean(means), min(means), max(means), statistics.fmean(lengths)
    )


def summarize(*groups: Episodes) -> EpisodeSummary:
    """Summarizes the last WINDOW games of all devices and groups, by their end; on the host."""
    episodes = jax.tree.map(lambda *rings: np.concatenate(rings), *groups)
    order = np.argsort(episodes.ended_at, kind="stable")
    last = order[episodes.ended_at[order] >= 0][-WINDOW:]
    total = int(episodes.ended.sum())
    if not last.size:
        return EpisodeSummary(total, None, None, None, None)
    scores = episodes.scores[last].astype(float)
    lengths = episodes.lengths[last]
    return EpisodeSummary(
        total,
        float(scores.mean()),
        float(scores.min()),
        float(scores.max()),
        float(lengths.mean()),
    )
