"""The Atari games that EnvPool bundles, their actions, and published scores to compare with."""

import csv
import functools
from importlib import resources
from typing import NamedTuple

from jaxrl.config import CATCH

# fmt: off
FULL_ACTIONS = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT",
    "UPFIRE", "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE",
    "DOWNLEFTFIRE",
)
# fmt: on
NO_FIRE = ("lost_luggage", "skiing")  # the only games whose full set has no FIRE


class PublishedScore(NamedTuple):
    """A mean score of whole games, as a paper or a project reports it."""

    algorithm: str
    frames: int  # emulator frames of training
    score: float
    source: str


class ReferenceScore(NamedTuple):
    """Mean scores of whole games (Badia 2020, table of human-normalised scores)."""

    random: float  # of uniform random actions
    human: float  # of a professional tester


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("jaxrl.data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def _minimal_actions() -> dict[str, tuple[str, ...]]:
    return {row["game"]: tuple(row["actions"].split()) for row in _rows("atari_actions.csv")}


def minimal_actions(game: str) -> tuple[str, ...]:
    """The actions that the game uses, in the Arcade Learning Environment's order."""
    return _minimal_actions()[game]


def full_actions(game: str) -> tuple[str, ...]:
    """Every action that the game's console understands."""
    return tuple(a for a in FULL_ACTIONS if game not in NO_FIRE or "FIRE" not in a)


def atari_games() -> tuple[str, ...]:
    """Every game whose ROM EnvPool bundles."""
    return tuple(_minimal_actions())


def known_games() -> tuple[str, ...]:
    """Everything `--game` takes."""
    return (*atari_games(), CATCH)


@functools.cache
def reference_scores() -> dict[str, ReferenceScore]:
    """Random and human scores of the games that have published ones."""
    return {
        row["game"]: ReferenceScore(float(row["random"]), float(row["human"]))
        for row in _rows("atari_scores.csv")
    }


def human_normalised(game: str, score: float) -> float | None:
    """(score - random) / (human - random): 0 is random play, 1 a human; None if unknown."""
    reference = reference_scores().get(game)
    if reference is None:
        return None
    return (score - reference.random) / (reference.human - reference.random)


@functools.cache
def _published() -> dict[tuple[str, str], list[PublishedScore]]:
    """By game and protocol."""
    found: dict[tuple[str, str], list[PublishedScore]] = {}
    for row in _rows("published_scores.csv"):
        score = PublishedScore(
            row["algorithm"], int(row["frames"]), float(row["score"]), row["source"]
        )
        found.setdefault((row["game"], row["protocol"]), []).append(score)
    return found


def published_scores(game: str, protocol: str) -> list[PublishedScore]:
    """What others reached in the game by this protocol of evaluation; none where none is known.

    noop: 1 to 30 no-ops, no sticky actions, 108,000 frames at most (Mnih 2015). sticky: actions
    repeat with probability 0.25, nothing is pressed for the agent (Machado 2018). Scores by other
    protocols are left out of the table: human starts, single lives, or no word on how the games
    were played.
    """
    return list(_published().get((game, protocol), []))
