"""Aggregates of scores over games and seeds (Agarwal 2021), with their intervals."""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats

FEW_GAMES = 10  # fewer equal scores give no interval: they say nothing about chance
REPETITIONS = 10_000  # bootstrap samples
INTERVAL = (2.5, 97.5)  # percentiles that bound a 95 % interval
GameScores = dict[str, np.ndarray]  # game -> scores f64[seeds], mostly human-normalized


# --- aggregates ----------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A figure and its 95 % interval, which is None where no game has two seeds."""

    value: float
    low: float | None
    high: float | None


def median(scores: list[np.ndarray]) -> np.ndarray:
    """Returns the median over games of the means over seeds.

    Like the other aggregates it takes scores f[..., seeds] of each game, and returns f[...].
    """
    return np.median(np.stack([seeds.mean(-1) for seeds in scores]), axis=0)


def mean(scores: list[np.ndarray]) -> np.ndarray:
    """Returns the mean over games of the means over seeds."""
    return np.mean(np.stack([seeds.mean(-1) for seeds in scores]), axis=0)


def interquartile_mean(scores: list[np.ndarray]) -> np.ndarray:
    """Returns the mean of the middle half of all games' scores (Agarwal 2021, section 4.3)."""
    return np.asarray(scipy.stats.trim_mean(np.concatenate(scores, axis=-1), 0.25, axis=-1))


def optimality_gap(scores: list[np.ndarray]) -> np.ndarray:
    """Returns the mean of max(0, 1 - score) over all games and seeds; 1 is a human's score."""
    return np.maximum(0, 1 - np.concatenate(scores, axis=-1)).mean(-1)


AGGREGATES = {
    "median": median,
    "IQM": interquartile_mean,
    "mean": mean,
    "optimality gap": optimality_gap,
}


def resample(scores: GameScores, seed: int, repetitions: int = REPETITIONS) -> list[np.ndarray]:
    """Draws seeds with replacement within each game: f[repetitions, seeds] per game.

    This is the stratified bootstrap; games are never drawn.
    """
    rng = np.random.default_rng(seed)
    return [x[rng.integers(len(x), size=(repetitions, len(x)))] for x in scores.values()]


def _estimate(value: Any, drawn: np.ndarray | None) -> Estimate:
    """Returns the value with the percentile interval of its bootstrap."""
    if drawn is None:
        return Estimate(float(value), None, None)
    low, high = np.percentile(drawn, INTERVAL)
    return Estimate(float(value), float(low), float(high))


def aggregate(scores: GameScores, seed: int = 0) -> dict[str, Estimate]:
    """Returns all `AGGREGATES` with their stratified bootstrap intervals.

    The intervals say how other seeds of the same games would turn out; they do not cover other
    games.
    """
    by_game = list(scores.values())
    drawn = resample(scores, seed) if max(map(len, by_game)) > 1 else None
    return {
        name: _estimate(function(by_game), None if drawn is None else function(drawn))
        for name, function in AGGREGATES.items()
    }


def profile(
    scores: GameScores, thresholds: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the performance profile: the share of scores above each threshold.

    See Agarwal 2021, equation 1. The shares are f[thresholds]; the bounds of their pointwise 95 %
    band are f[2, thresholds], or None where no game has two seeds.
    """
    by_game = list(scores.values())
    shares = _shares_above(by_game, thresholds)
    if max(map(len, by_game)) == 1:
        return shares, None
    drawn = _shares_above(resample(scores, seed, 2000), thresholds)
    return shares, np.percentile(drawn, INTERVAL, axis=0)


def _shares_above(scores: list[np.ndarray], thresholds: np.ndarray) -> np.ndarray:
    """Returns the share of all scores above each threshold, f[..., thresholds]."""
    values = np.concatenate(scores, axis=-1)
    return (values[..., None] > thresholds).mean(-2)


def mean_over_seeds(scores: np.ndarray) -> Estimate:
    """Returns the mean of scores f[seeds] ± t₀.₉₇₅(seeds - 1) · s/√seeds (Student).

    A single score has no interval, nor have fewer than `FEW_GAMES` equal scores.
    """
    value, number = float(scores.mean()), len(scores)
    # The deviation of equal scores may be a rounding error.
    equal = not np.ptp(scores)
    if equal and number < FEW_GAMES:
        return Estimate(value, None, None)
    deviation = 0.0 if equal else float(scores.std(ddof=1))
    half = float(scipy.stats.t.ppf(INTERVAL[1] / 100, number - 1)) * deviation / number**0.5
    return Estimate(value, value - half, value + half)


# --- comparison of two ---------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The advantage of the first over the second."""

    difference: Estimate  # difference of the means over games, with Welch's interval
    improvement: Estimate  # probability that a score of the first is higher; by the bootstrap


def compare(first: GameScores, second: GameScores, seed: int = 0) -> Comparison:
    """Compares scores of the same games, which need not be normalized."""
    second = {game: second[game] for game in first}
    x, y = list(first.values()), list(second.values())
    gap, drawn = difference(x, y), None
    if gap.low is not None:  # else the scores are too few
        drawn = probability_of_improvement(resample(first, seed), resample(second, seed + 1))
    return Comparison(gap, _estimate(probability_of_improvement(x, y), drawn))


def probability_of_improvement(x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
    """Returns P(X > Y) + P(X = Y) / 2 of two scores of the same game, averaged over games.

    `x` has scores f[..., n] of each game, `y` f[..., m], in the same order.
    """
    games = [
        np.mean((a[..., :, None] > b[..., None, :]) + 0.5 * (a[..., :, None] == b[..., None, :]),
                axis=(-2, -1))
        for a, b in zip(x, y, strict=True)
    ]  # fmt: skip
    return np.mean(games, axis=0)


def difference(x: list[np.ndarray], y: list[np.ndarray]) -> Estimate:
    """Returns the difference of means over games, ± t₀.₉₇₅(ν) · √(Σ s²/n) / games (Welch).

    With three or five seeds a bootstrap would call one of two equals better in a fifth of cases,
    where a twentieth is right. The interval is missing if a game has a single score, or fewer than
    `FEW_GAMES` which are all equal.
    """
    value = float(mean(x) - mean(y))
    samples = [*x, *y]
    if min(map(len, samples)) < 2:
        return Estimate(value, None, None)
    # The variance of equal scores may be a rounding error.
    variances = [sample.var(ddof=1) if np.ptp(sample) else 0.0 for sample in samples]
    parts = np.array(variances) / [len(sample) for sample in samples] / len(x) ** 2
    variance = parts.sum()
    if not variance:
        value = float(np.mean([a[0] - b[0] for a, b in zip(x, y, strict=True)]))  # no rounding
        bound = value if min(map(len, samples)) >= FEW_GAMES else None
        return Estimate(value, bound, bound)
    # Satterthwaite's degrees of freedom
    freedom = variance**2 / np.sum(parts**2 / [len(sample) - 1 for sample in samples])
    half = float(scipy.stats.t.ppf(INTERVAL[1] / 100, freedom) * np.sqrt(variance))
    return Estimate(value, value - half, value + half)


def excludes_zero(estimate: Estimate) -> bool:
    """Returns whether the 95 % interval of a difference excludes zero."""
    _, low, high = estimate
    return low is not None and high is not None and not low <= 0 <= high
