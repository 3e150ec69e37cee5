"""What evaluations found: read, written, told; and their aggregates over games and seeds.

Scores of different games are compared when they are human-normalised: 0 is random play, 1 a human.
A cell is a game and a configuration; it holds one score for each seed. Aggregates are those of
Agarwal et al. 2021 ("Deep Reinforcement Learning at the Edge of the Statistical Precipice").
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from jaxrl.config import Config
from jaxrl.errors import UserError
from jaxrl.games import human_normalised, known_games
from jaxrl.runs import replace_text

FILE = "evaluation.json"
# Both play whole games of at most 27,000 agent steps (30 minutes of the console).
PROTOCOLS = {
    "noop": "up to 30 no-ops, no sticky actions",
    "sticky": "sticky actions, probability 0.25",
}
# What the published scores beside them were played by.
PUBLISHED = {
    "noop": "1 to 30 no-ops at the start of a game, no sticky actions, nothing pressed for the "
    "agent, at most 108,000 frames",
    "sticky": "sticky actions with probability 0.25; actions, starts and time limit as each "
    "source has them",
}
STICKINESS = {"noop": 0.0, "sticky": 0.25}  # probability that an action is repeated
LARGEST = 1e12  # no score of any game is near it
FEW_GAMES = 10  # below it, scores that are all alike say nothing of chance
REPETITIONS = 10_000  # of the bootstrap
INTERVAL = (2.5, 97.5)  # percentiles: 95 % lie between
Cells = dict[str, np.ndarray]  # game -> human-normalised scores f64[seeds]


@dataclass(frozen=True)
class Conditions:
    """Starts, resets, stickiness, actions and time limit of an evaluation's games."""

    noops: tuple[int, int]  # fewest and most that a game begins with
    fire: bool  # pressed after them
    fire_steps: int  # agent steps with FIRE that follow, where it may be ignored
    life_resets: bool  # all of this again after every lost life, as in training
    stickiness: float  # probability that an action is repeated
    all_actions: bool  # 18 instead of those that the game uses
    max_steps: int  # agent steps of a game; 0 without a limit

    def describe(self) -> str:
        """Returns one phrase: "0 to 29 no-ops and FIRE at the start, no sticky actions"."""
        fewest, most = self.noops
        noops = f"{most} no-op{'s' * (most > 1)}" if most else ""
        if fewest < most:
            noops = f"{fewest} to {noops}"
        fire = "FIRE" * self.fire
        if self.fire_steps:  # the emulator may ignore one
            fire += f" held for {self.fire_steps} steps more"
        begins = " and ".join(filter(None, [noops, fire])) or "nothing is pressed"
        when = "at the start" + " and after every lost life" * self.life_resets
        sticks = "no sticky actions"
        if self.stickiness:
            sticks = f"actions repeat with probability {self.stickiness:g}"
        return ", ".join([f"{begins} {when}", sticks] + ["all 18 actions"] * self.all_actions)


@dataclass(frozen=True)
class Evaluation:
    """What evaluation.json holds."""

    game: str
    protocol: str
    step: int | None  # agent steps of training that the policy has seen
    episodes: int
    mean: float
    median: float
    std: float
    human_normalised_mean: float | None  # None where the game has no published human score
    scores: list[float]
    lengths: list[int]  # agent steps
    epsilon: float | None = None  # how often a value-based agent acted at random; None of others
    conditions: Conditions | None = None  # None in files of an older jaxrl


def protocol_of(config: Config) -> str:
    """Returns the protocol whose games are like those of training."""
    return "sticky" if config.repeat_action_probability > 0 else "noop"


def summarise(
    game: str,
    protocol: str,
    step: int | None,
    scores: np.ndarray,
    lengths: np.ndarray,
    epsilon: float | None = None,
    conditions: Conditions | None = None,
) -> Evaluation:
    """The evaluation of games with these unclipped scores f[N] and lengths i[N]."""
    scores = scores.astype(float)
    return Evaluation(
        game=game,
        protocol=protocol,
        step=step,
        episodes=len(scores),
        mean=float(scores.mean()),
        median=float(np.median(scores)),
        std=float(scores.std()),
        human_normalised_mean=human_normalised(game, float(scores.mean())),
        scores=scores.tolist(),
        lengths=lengths.tolist(),
        epsilon=epsilon,
        conditions=conditions,
    )


def write(run_dir: Path, result: Evaluation) -> None:
    """Writes evaluation.json whole or not at all."""
    replace_text(run_dir / FILE, json.dumps(dataclasses.asdict(result), indent=2) + "\n")


def read(run_dir: Path) -> Evaluation:
    """The newest evaluation of a run. Raises `UserError` where there is none, or none to read."""
    path = run_dir / FILE
    try:
        if path.exists() and not path.is_file():  # a pipe would keep us waiting
            raise ValueError("it is no file")
        found = json.loads(path.read_text(encoding="utf-8"))
        scores, lengths = _numbers(found["scores"]), _numbers(found["lengths"])
        step, protocol, game = found["step"], found["protocol"], found["game"]
        if len(lengths) != len(scores):
            raise ValueError("not as many lengths as scores")
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}")
        if game not in known_games():
            raise ValueError(f"unknown game {game!r}")
        if not (step is None or type(step) is int):
            raise ValueError("'step' is no number")
        epsilon = found.get("epsilon")  # older files have none
        if not (epsilon is None or (type(epsilon) in (int, float) and 0 <= epsilon <= 1)):
            raise ValueError("'epsilon' is no probability")
        conditions = read_conditions(found.get("conditions"))
        return summarise(game, protocol, step, scores, lengths.astype(int), epsilon, conditions)
    except FileNotFoundError:
        raise UserError(f"'{run_dir}' has no {FILE}: run `jaxrl evaluate {run_dir}`") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"'{path}' cannot be read ({reason}): run `jaxrl evaluate {run_dir}`"
        ) from None


def _numbers(given: Any) -> np.ndarray:
    if not (isinstance(given, list) and given):
        raise ValueError("no list of scores")
    if not all(type(x) in (int, float) and abs(x) < LARGEST for x in given):  # also not NaN
        raise ValueError("a score is no number")
    return np.asarray(given, float)


def read_conditions(given: Any) -> Conditions | None:
    """Returns the conditions that a file names; an older file has none.

    Raises `ValueError`, `KeyError` or `TypeError` where they make no sense.
    """
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("'conditions' is no object")
    found = Conditions(**given | {"noops": tuple(given["noops"])})
    flags = found.fire, found.life_resets, found.all_actions
    counts = *found.noops, found.fire_steps, found.max_steps
    if not (
        len(found.noops) == 2
        and all(type(x) is bool for x in flags)
        and all(type(x) is int and 0 <= x < 2**31 for x in counts)
        and type(found.stickiness) in (int, float)
        and 0 <= found.stickiness <= 1
    ):
        raise ValueError("'conditions' make no sense")
    return found


def is_of_end(run_dir: Path, total_steps: int) -> bool:
    """Whether a run's evaluation is of a policy that was trained to the end."""
    try:
        step = read(run_dir).step
    except UserError:
        return False
    return step is not None and step >= total_steps


def describe(result: Evaluation) -> str:
    """One line for a person."""
    human = result.human_normalised_mean
    normalised = "" if human is None else f", human-normalised {human:.2f}"
    trained = "" if result.step is None else f" after {result.step:,} steps"
    random = "" if result.epsilon is None else f"epsilon {result.epsilon:g}, "
    played = result.conditions.describe() if result.conditions else PROTOCOLS[result.protocol]
    return (
        f"{result.game}{trained}, protocol {result.protocol} ({played}), "
        f"{random}{result.episodes} games: mean {result.mean:.1f} "
        f"(standard deviation {result.std:.1f}), "
        f"median {result.median:.1f}{normalised}"
    )


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
    """Both over the same games; scores need not be normalised."""
    second = {game: second[game] for game in first}
    x, y = list(first.values()), list(second.values())
    drawn = None
    if min(map(len, [*x, *y])) > 1:
        drawn = probability_of_improvement(resampled(first, seed), resampled(second, seed + 1))
    return Comparison(difference(x, y), _estimate(probability_of_improvement(x, y), drawn))


def is_sure(found: Estimate) -> bool:
    """Whether the 95 % interval of a difference leaves zero out."""
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high
