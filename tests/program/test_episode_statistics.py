import jax.numpy as jnp
import numpy as np

from jaxrl.program import episode_statistics
from jaxrl.training import member
from jaxrl.types import TimeStep


def row(score, over, reset):
    no = jnp.zeros(len(score), bool)
    return TimeStep(
        frame=jnp.zeros((len(score), 84, 84), jnp.uint8),
        reward=jnp.zeros(len(score)),
        score=jnp.array(score, jnp.float32),
        terminated=no,
        truncated=no,
        game_over=jnp.array(over),
        reset=jnp.array(reset),
    )


def test_scores_and_lengths_of_whole_games():
    state = episode_statistics.init(num_envs=2, num_devices=1, counted=True)
    state = episode_statistics.update(state, row([1, 5], [False, False], [False, False]))
    state = episode_statistics.update(state, row([2, 0], [True, False], [False, False]))
    state = episode_statistics.update(state, row([0, 0], [False, True], [True, False]))
    state = episode_statistics.update(state, row([7, 0], [True, False], [False, True]))
    # Environment 0: 1 + 2 in 2 steps, then a reset row and 7 in 1 step; environment 1: 5 in 3.
    summary = episode_statistics.summarize(state)
    assert summary == episode_statistics.EpisodeSummary(3, 5.0, 3.0, 7.0, 2.0)


def test_games_whose_start_others_played_are_not_counted():
    state = episode_statistics.init(num_envs=1, num_devices=1, counted=False)
    state = episode_statistics.update(state, row([4], [True], [False]))
    assert episode_statistics.summarize(state) == episode_statistics.EpisodeSummary(
        0, None, None, None, None
    )
    state = episode_statistics.update(state, row([0], [False], [True]))
    state = episode_statistics.update(state, row([6], [True], [False]))
    assert episode_statistics.summarize(state).return_mean == 6.0


def test_only_the_last_hundred_count_even_when_more_end_at_once():
    state = episode_statistics.init(num_envs=150, num_devices=1, counted=True)
    scores = np.arange(150.0)
    state = episode_statistics.update(state, row(scores, [True] * 150, [False] * 150))
    summary = episode_statistics.summarize(state)
    assert summary.episodes == 150
    assert (summary.return_min, summary.return_max) == (50.0, 149.0)


def test_rings_of_two_devices_merge_by_time():
    first = episode_statistics.init(1, 1, counted=True)
    second = episode_statistics.init(1, 1, counted=True)
    for turn in range(80):
        first = episode_statistics.update(first, row([turn], [True], [False]))
        second = episode_statistics.update(second, row([1000 + turn], [True], [False]))
    merged = episode_statistics.Episodes(
        *(np.concatenate([a, b]) for a, b in zip(first, second, strict=True))
    )
    summary = episode_statistics.summarize(merged)
    # The last 50 of each: turns 30 to 79, and 1030 to 1079.
    assert summary.episodes == 160
    assert (summary.return_min, summary.return_max) == (30.0, 1079.0)
    assert summary.return_mean == 554.5


def test_more_games_than_32_bits_count():
    """The count goes on from 2³¹ - 1 at -2³¹, and the host adds what came since it last looked."""
    state = episode_statistics.init(num_envs=3, num_devices=1, counted=True)
    state = state._replace(ended=jnp.full(1, 2**31 - 1, jnp.int32))
    before = episode_statistics.summarize(state).episodes
    state = episode_statistics.update(state, row([4, 6, 8], [True] * 3, [False] * 3))
    summary = episode_statistics.summarize(state)
    assert (before, summary.episodes) == (2**31 - 1, -(2**31) + 2)
    assert episode_statistics.games_between(before, summary.episodes) == 3
    assert summary.return_mean == 6.0
    two = episode_statistics.Episodes(*(np.concatenate([x, x]) for x in state))
    assert episode_statistics.summarize(two).episodes == 2 * (-(2**31) + 2)
    merged = episode_statistics.merged(two, 3)
    np.testing.assert_array_equal(merged.ended, [4, 0, 0])  # 2 (2³¹ + 2) modulo 2³²
    assert episode_statistics.summarize(merged).return_mean == 6.0


def test_the_best_checkpoint_needs_more_than_the_first_games():
    """With 16 environments 100 games, with 128 two of each: before, short games are favored."""
    means = {}
    for num_envs in (16, 128):
        for ended in (99, 100, 255, 256):
            games = episode_statistics.EpisodeSummary(ended, 5.0, 0.0, 9.0, 7.0)
            means[num_envs, ended] = member._fair_mean(games, 0, num_envs)
    fair = {(16, 100), (16, 255), (16, 256), (128, 256)}
    assert {key for key, mean in means.items() if mean == 5.0} == fair
    assert {mean for key, mean in means.items() if key not in fair} == {None}
    # Games that ended before those in progress began do not count.
    games = episode_statistics.EpisodeSummary(256, 5.0, 0.0, 9.0, 7.0)
    assert member._fair_mean(games, 1, 128) is None
