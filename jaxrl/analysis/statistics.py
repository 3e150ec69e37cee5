"""Aggregates of scores over games and seeds (Agarwal 2021), with their intervals."""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats

FEW_GAMES = 10  # below it, scores that are all alike say nothing of chance
REPETITIONS = 10_000  # of the bootstrap
INTERVAL = (2.5, 97.5)  # percentiles: 95 % lie between
Cells = dict[str, np.ndarray]  # game -> human-normalized scores f64[seeds]


# --- aggregates ----------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A figure and its 95 % interval, None where no game has two seeds."""

    value: float
    low: float | None
    high: float | None


def median(rows: list[np.ndarray]) -> np.ndarray:
    """The median over games of the means over seeds; `rows` are f[..., seeds], one per game."""
    return np.median(np.stack([row.mean(-1) for row in rows]), axis=0)


def mean(rows: list[np.ndarray]) -> np.ndarray:
    """The mean over games of the means over seeds."""
    return np.mean(np.stack([row.mean(-1) for row in rows]), axis=0)


def interquartile_mean(rows: list[np.ndarray]) -> np.ndarray:
    """The mean of the middle half of all scores of all games (Agarwal 2021, section 4.3)."""
    values = np.sort(np.concatenate(rows, axis=-1), axis=-1)
    cut = values.shape[-1] // 4
    return values[..., cut : values.shape[-1] - cut].mean(-1)


def optimality_gap(rows: list[np.ndarray]) -> np.ndarray:
    """How far scores stay below 1, a human: mean of max(0, 1 - score) over all of them."""
    return np.maximum(0, 1 - np.concatenate(rows, axis=-1)).mean(-1)


AGGREGATES = {
    "median": median,
    "IQM": interquartile_mean,
    "mean": mean,
    "optimality gap": optimality_gap,
}


def resampled(cells: Cells, seed: int, repetitions: int = REPETITIONS) -> list[np.ndarray]:
    """Stratified bootstrap: every game's seeds drawn anew, f[repetitions, seeds] per game."""
    rng = np.random.default_rng(seed)
    return [x[rng.integers(len(x), size=(repetitions, len(x)))] for x in cells.values()]


def _estimate(value: Any, drawn: np.ndarray | None) -> Estimate:
    if drawn is None:
        return Estimate(float(value), None, None)
    low, high = np.percentile(drawn, INTERVAL)
    return Estimate(float(value), float(low), float(high))


def aggregate(cells: Cells, seed: int = 0) -> dict[str, Estimate]:
    """Median, interquartile mean, mean and optimality gap, with stratified bootstrap intervals.

    They say what other seeds of the same games would make of it, and nothing of other games.
    """
    rows = list(cells.values())
    drawn = resampled(cells, seed) if max(map(len, rows)) > 1 else None
    return {
        name: _estimate(function(rows), None if drawn is None else function(drawn))
        for name, function in AGGREGATES.items()
    }


def profile(
    cells: Cells, thresholds: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """The performance profile: the share of scores above each threshold (Agarwal 2021, eq. 1).

    Returns f[thresholds], and the bounds f[2, thresholds] of its pointwise 95 % band, or None.
    """

    def above(rows: list[np.ndarray]) -> np.ndarray:
        values = np.concatenate(rows, axis=-1)
        return (values[..., None] > thresholds).mean(-2)

    rows = list(cells.values())
    if max(map(len, rows)) == 1:
        return above(rows), None
    return above(rows), np.percentile(above(resampled(cells, seed, 2000)), INTERVAL, axis=0)


def probability_of_improvement(x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
    """P(X > Y) + P(X = Y) / 2 of two scores of the same game, averaged over games.

    Args:
      x: scores f[..., n] of each game.
      y: scores f[..., m] of each game, in the same order.
    """
    games = [
        np.mean((a[..., :, None] > b[..., None, :]) + 0.5 * (a[..., :, None] == b[..., None, :]),
                axis=(-2, -1))
        for a, b in zip(x, y, strict=True)
    ]  # fmt: skip
    return np.mean(games, axis=0)


class Comparison(NamedTuple):
    """How much better the first is than the second."""

    difference: Estimate  # of the means over games, with Welch's interval
    improvement: Estimate  # probability that a score of the first is higher; by the bootstrap


def difference(x: list[np.ndarray], y: list[np.ndarray]) -> Estimate:
    """The difference of means over games, with Welch's interval: t₀.₉₇₅(ν) · √(Σ s²/n) / games.

    A bootstrap of three or five seeds would call one of two equals better in a fifth of cases, and
    not in a twentieth. No interval where a game has a single score, or few that are all alike.
    """
    value = float(mean(x) - mean(y))
    cells = [*x, *y]
    if min(map(len, cells)) < 2:
        return Estimate(value, None, None)
    parts = np.array([cell.var(ddof=1) / len(cell) for cell in cells]) / len(x) ** 2
    variance = parts.sum()
    if not variance:
        bound = value if min(map(len, cells)) >= FEW_GAMES else None
        return Estimate(value, bound, bound)
    freedom = variance**2 / np.sum(parts**2 / [len(cell) - 1 for cell in cells])  # Satterthwaite
    half = float(scipy.stats.t.ppf(INTERVAL[1] / 100, freedom) * np.sqrt(variance))
    return Estimate(value, value - half, value + half)


def compare(first: Cells, second: Cells, seed: int = 0) -> Comparison:
    """Both over the same games; scores need not be normalized."""
    second = {game: second[game] for game in first}
    x, y = list(first.values()), list(second.values())
    drawn = None
    if min(map(len, [*x, *y])) > 1:
        drawn = probability_of_improvement(resampled(first, seed), resampled(second, seed + 1))
    return Comparison(difference(x, y), _estimate(probability_of_improvement(x, y), drawn))


def is_sure(found: Estimate) -> bool:
    """Whether the 95 % interval of a difference leaves zero out."""
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high
