"""Aggregates of scores: worked out by hand, and as rliable has them."""

import dataclasses
import json
import os

import numpy as np
import pytest
import scipy.stats
from rliable import library
from rliable import metrics as oracle

from jaxrl.analysis import statistics
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record, layout

# Two games, four seeds: 8 scores, of which the middle half is 2, 3, 4, 5.
SCORES = {"a": np.array([0.0, 1.0, 2.0, 3.0]), "b": np.array([4.0, 5.0, 6.0, 7.0])}
BY_GAME = list(SCORES.values())


def test_aggregates_by_hand():
    # Means of the games: 1.5 and 5.5.
    assert statistics.median(BY_GAME) == 3.5
    assert statistics.mean(BY_GAME) == 3.5
    assert statistics.interquartile_mean(BY_GAME) == (2 + 3 + 4 + 5) / 4
    assert statistics.optimality_gap(BY_GAME) == (1 + 0 * 7) / 8
    three = [np.array([0.0]), np.array([1.0]), np.array([8.0])]
    assert statistics.median(three) == 1
    assert statistics.mean(three) == 3
    assert statistics.interquartile_mean(three) == 3  # 3 // 4 = 0 are cut


def test_aggregates_are_those_of_rliable():
    matrix = np.random.default_rng(0).exponential(size=(5, 13))  # runs x games
    rows = list(matrix.T)
    np.testing.assert_allclose(statistics.median(rows), oracle.aggregate_median(matrix))
    np.testing.assert_allclose(statistics.mean(rows), oracle.aggregate_mean(matrix))
    np.testing.assert_allclose(statistics.interquartile_mean(rows), oracle.aggregate_iqm(matrix))
    np.testing.assert_allclose(
        statistics.optimality_gap(rows), oracle.aggregate_optimality_gap(matrix)
    )


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_intervals_are_those_of_rliable():
    """But for the noise of 10,000 draws."""
    matrix = np.random.default_rng(1).normal(size=(6, 10))
    cells = {str(game): row for game, row in enumerate(matrix.T)}
    _, (low, high) = (
        computed["x"]
        for computed in library.get_interval_estimates(
            {"x": matrix}, lambda x: np.array([oracle.aggregate_iqm(x)]), reps=10_000
        )
    )
    estimate = statistics.aggregate(cells)["IQM"]
    np.testing.assert_allclose([estimate.low, estimate.high], [low[0], high[0]], atol=0.02)


def test_the_bootstrap_draws_within_each_game():
    drawn = statistics.resample(SCORES, seed=0, repetitions=500)
    assert [x.shape for x in drawn] == [(500, 4), (500, 4)]
    for x, original in zip(drawn, BY_GAME, strict=True):
        assert set(np.unique(x)) == set(original)


def test_intervals_of_a_mean_are_as_wide_as_theory_has_them():
    x = np.random.default_rng(2).normal(size=400)
    estimate = statistics.aggregate({"a": x})["mean"]
    half = 1.96 * x.std() / 20
    np.testing.assert_allclose(
        [estimate.low, estimate.high], [x.mean() - half, x.mean() + half], rtol=0.2
    )


def test_one_seed_each_has_no_interval():
    computed = statistics.aggregate({"a": np.array([1.0]), "b": np.array([3.0])})
    assert computed["mean"] == (2.0, None, None)
    assert statistics.profile({"a": np.array([1.0])}, np.array([0.0]))[1] is None


def test_a_performance_profile_is_the_share_above():
    shares, (low, high) = statistics.profile(SCORES, np.array([-1, 0, 3.5, 6.5, 7]))
    np.testing.assert_allclose(shares, [1, 7 / 8, 4 / 8, 1 / 8, 0])
    np.testing.assert_array_equal(np.stack([low, high])[:, [0, 2, 4]], [[1, 0.5, 0], [1, 0.5, 0]])
    assert low[1] < shares[1] < high[1] == 1


def test_probability_of_improvement_by_hand_and_as_rliable_has_it():
    x, y = [np.array([1.0, 3.0])], [np.array([2.0, 3.0])]
    # 1 > 2, 1 > 3, 3 > 2, 3 = 3: (0 + 0 + 1 + 1/2) / 4
    assert statistics.probability_of_improvement(x, y) == 1.5 / 4
    a, b = np.random.default_rng(3).normal(size=(2, 6, 5))
    np.testing.assert_allclose(
        statistics.probability_of_improvement(list(a.T), list(b.T)),
        oracle.probability_of_improvement(a, b),
    )


def test_compare():
    better = {game: x + 10 for game, x in SCORES.items()}
    computed = statistics.compare(better, SCORES)
    assert computed.difference.value == 10
    assert computed.improvement == (1.0, 1.0, 1.0)
    assert statistics.excludes_zero(computed.difference)
    same = statistics.compare(SCORES, dict(reversed(SCORES.items())))  # games are found by name
    assert (same.difference.value, same.improvement.value) == (0.0, 0.5)
    assert not statistics.excludes_zero(same.difference)


@pytest.mark.slow
def test_two_equals_are_called_different_in_a_twentieth_of_cases():
    """Also with few seeds, where a bootstrap would do so in a fifth."""
    rng = np.random.default_rng(4)

    def cells(games, seeds):
        return {str(game): rng.normal(size=seeds) for game in range(games)}

    for games, first, second in ((1, 3, 3), (1, 5, 5), (4, 2, 2), (1, 4, 30)):
        pairs = [(cells(games, first), cells(games, second)) for _ in range(2000)]
        computed = [statistics.difference(list(x.values()), list(y.values())) for x, y in pairs]
        share = np.mean([statistics.excludes_zero(difference) for difference in computed])
        assert 0.01 < share < 0.09, (games, first, second, share)


def test_a_difference_has_welchs_interval():
    x, y = np.array([1.0, 2.0, 4.0]), np.array([3.0, 3.5, 7.0, 8.0])
    computed = statistics.difference([x], [y])
    oracle_interval = scipy.stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    np.testing.assert_allclose([computed.low, computed.high], oracle_interval)
    assert statistics.difference([x], [np.array([1.0])]) == (x.mean() - 1, None, None)


def test_an_evaluation_of_the_end(tmp_path):
    assert not evaluation_record.is_of_end(tmp_path, 100)
    for step, expected in ((99, False), (100, True), (None, False)):
        evaluation_record.write(
            tmp_path, evaluation_record.summarize("pong", "noop", step, np.ones(1), np.ones(1))
        )
        assert evaluation_record.is_of_end(tmp_path, 100) == expected


def test_a_pipe_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / layout.EVALUATION)
    with pytest.raises(UserError, match="it is not a file"):
        evaluation_record.read(tmp_path)


@pytest.mark.parametrize("chosen", [{"mode": 0}, {"difficulty": 1}])
def test_a_game_of_another_mode_has_no_human_score(chosen):
    played = evaluation_record.Conditions((1, 30), False, 0, True, 0.0, False, 27_000)
    results = [
        evaluation_record.summarize(
            "pong", "noop", 1000, np.array([14.6]), np.array([900]), conditions=conditions
        )
        for conditions in (played, dataclasses.replace(played, **chosen))
    ]
    assert [result.human_normalized_mean for result in results] == [1.0, None]


def test_an_evaluation_is_read_as_it_was_written(tmp_path):
    result = evaluation_record.summarize(
        "pong", "noop", 1000, np.array([21.0, 19.0]), np.array([900, 901])
    )
    assert (result.mean, result.median, result.std) == (20, 20, 1)
    np.testing.assert_allclose(result.human_normalized_mean, (20 + 20.7) / (14.6 + 20.7))
    evaluation_record.write(tmp_path, result)
    assert evaluation_record.read(tmp_path) == result
    assert "pong after 1,000 steps, protocol noop (up to 30 no-ops" in evaluation_record.describe(
        result
    )
    assert "epsilon" not in evaluation_record.describe(result)
    explores = evaluation_record.summarize(
        "pong", "noop", 1000, np.ones(2), np.ones(2), epsilon=0.05
    )
    evaluation_record.write(tmp_path, explores)
    assert evaluation_record.read(tmp_path) == explores
    assert "no sticky actions), epsilon 0.05, 2 games" in evaluation_record.describe(explores)


def test_an_older_run_keeps_the_evaluation_by_its_other_protocol(tmp_path):
    """Such a run has evaluation.json alone; a newer one has a file for each protocol."""

    def result(protocol, mean):
        return evaluation_record.summarize("pong", protocol, 1, np.array([mean]), np.ones(1, int))

    sticky, noop, later = result("sticky", 3.0), result("noop", 5.0), result("noop", 7.0)
    evaluation_record.write(tmp_path, sticky)
    (tmp_path / layout.EVALUATIONS / "sticky.json").unlink()
    evaluation_record.write(tmp_path, noop)
    assert evaluation_record.read_all(tmp_path) == {"noop": noop, "sticky": sticky}
    evaluation_record.write(tmp_path, later)  # the newest by each protocol stays
    assert evaluation_record.read_all(tmp_path) == {"noop": later, "sticky": sticky}


GOOD = {"game": "pong", "protocol": "noop", "step": 1, "scores": [1.0], "lengths": [2]}


@pytest.mark.parametrize(
    "change",
    [
        {"scores": []}, {"scores": "x"}, {"scores": [None]}, {"scores": [float("nan")]},
        {"scores": [[1.0]]}, {"lengths": [1, 2]}, {"protocol": "human"}, {"protocol": ["noop"]},
        {"step": "1"}, {"step": True}, {"lengths": [10**400]}, {"scores": [1e300]},
        {"scores": ["1"]}, {"scores": [True]}, {"game": "\x1b[2J"}, {"game": None},
        {"epsilon": 2.0}, {"epsilon": "0.1"}, {"epsilon": float("nan")},
    ],
)  # fmt: skip
def test_a_damaged_evaluation_is_refused(change, tmp_path):
    (tmp_path / layout.EVALUATION).write_text(json.dumps(GOOD))
    assert evaluation_record.read(tmp_path).mean == 1
    (tmp_path / layout.EVALUATION).write_text(json.dumps(GOOD | change))
    with pytest.raises(UserError, match=r"cannot be read .*: run `jaxrl evaluate"):
        evaluation_record.read(tmp_path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"\xa9\xdc\x00", b"[" * 10_000])
def test_what_is_no_evaluation_is_refused(text, tmp_path):
    (tmp_path / layout.EVALUATION).write_bytes(text)
    with pytest.raises(UserError, match="cannot be read"):
        evaluation_record.read(tmp_path)


def test_without_an_evaluation_the_advice_is_to_make_one(tmp_path):
    with pytest.raises(UserError, match=r"has no evaluation\.json: run `jaxrl evaluate"):
        evaluation_record.read(tmp_path)


def test_the_mean_over_seeds_has_students_interval():
    """1, 2, 3: s = 1, t₀.₉₇₅(2) = 4.3027, and 4.3027 / √3 = 2.4841."""
    estimate = statistics.mean_over_seeds(np.array([1.0, 2.0, 3.0]))
    assert estimate == pytest.approx((2.0, 2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert statistics.mean_over_seeds(np.array([5.0])) == (5.0, None, None)
    assert statistics.mean_over_seeds(np.array([5.0, 5.0])) == (5.0, None, None)
    assert statistics.mean_over_seeds(np.full(10, 5.0)) == (5.0, 5.0, 5.0)


def test_equal_scores_have_no_deviation_by_rounding():
    for seeds in range(2, 10):  # the deviation of three times 0.7 is computed as 1.4e-16
        equal = np.full(seeds, 0.7)
        assert statistics.mean_over_seeds(equal)[1:] == (None, None)
        assert statistics.difference([equal], [np.full(3, 0.6)])[1:] == (None, None)
    assert statistics.difference([np.full(10, 0.7)], [np.full(13, 0.7)]) == (0.0, 0.0, 0.0)
