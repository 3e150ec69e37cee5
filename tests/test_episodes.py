import jax.numpy as jnp
import numpy as np

from jaxrl import episodes, loop
from jaxrl.config import Config
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
    state = episodes.init(num_envs=2, num_devices=1, counted=True)
    state = episodes.update(state, row([1, 5], [False, False], [False, False]))
    state = episodes.update(state, row([2, 0], [True, False], [False, False]))
    state = episodes.update(state, row([0, 0], [False, True], [True, False]))
    state = episodes.update(state, row([7, 0], [True, False], [False, True]))
    # Environment 0: 1 + 2 in 2 steps, then a reset row and 7 in 1 step; environment 1: 5 in 3.
    summary = episodes.summarise(state)
    assert summary == episodes.Summary(3, 5.0, 3.0, 7.0, 2.0)


def test_games_whose_start_others_played_are_not_counted():
    state = episodes.init(num_envs=1, num_devices=1, counted=False)
    state = episodes.update(state, row([4], [True], [False]))
    assert episodes.summarise(state) == episodes.Summary(0, None, None, None, None)
    state = episodes.update(state, row([0], [False], [True]))
    state = episodes.update(state, row([6], [True], [False]))
    assert episodes.summarise(state).return_mean == 6.0


def test_only_the_last_hundred_count_even_when_more_end_at_once():
    state = episodes.init(num_envs=150, num_devices=1, counted=True)
    scores = np.arange(150.0)
    state = episodes.update(state, row(scores, [True] * 150, [False] * 150))
    summary = episodes.summarise(state)
    assert summary.episodes == 150
    assert (summary.return_min, summary.return_max) == (50.0, 149.0)


def test_rings_of_two_devices_merge_by_time():
    first = episodes.init(1, 1, counted=True)
    second = episodes.init(1, 1, counted=True)
    for turn in range(80):
        first = episodes.update(first, row([turn], [True], [False]))
        second = episodes.update(second, row([1000 + turn], [True], [False]))
    merged = episodes.Episodes(
        *(np.concatenate([a, b]) for a, b in zip(first, second, strict=True))
    )
    summary = episodes.summarise(merged)
    # The last 50 of each: turns 30 to 79, and 1030 to 1079.
    assert summary.episodes == 160
    assert (summary.return_min, summary.return_max) == (30.0, 1079.0)
    assert summary.return_mean == 554.5


def test_the_best_checkpoint_needs_more_than_the_first_games():
    """With 16 environments 100 games, with 128 two of each: before, short games are favored."""
    found = {}
    for num_envs in (16, 128):
        for ended in (99, 100, 255, 256):
            games = episodes.Summary(ended, 5.0, 0.0, 9.0, 7.0)
            found[num_envs, ended] = loop._mean_to_keep(games, 0, Config(num_envs=num_envs))
    fair = {(16, 100), (16, 255), (16, 256), (128, 256)}
    assert {key for key, mean in found.items() if mean == 5.0} == fair
    assert {mean for key, mean in found.items() if key not in fair} == {None}
    # Games that ended before those in progress began do not count.
    games = episodes.Summary(256, 5.0, 0.0, 9.0, 7.0)
    assert loop._mean_to_keep(games, 1, Config(num_envs=128)) is None
