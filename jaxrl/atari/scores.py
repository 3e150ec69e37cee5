"""Scores of random play, of humans and of published agents, by game."""

import functools
from typing import NamedTuple

from jaxrl.atari.games import rows


class PublishedScore(NamedTuple):
    """A mean score of whole games, as a paper or a project reports it."""

    algorithm: str
    frames: int  # emulator frames of training
    score: float
    source: str


class ReferenceScore(NamedTuple):
    """Mean scores of whole games (Badia 2020, table of human-normalized scores)."""

    random: float  # score of uniform random actions
    human: float  # score of a professional tester


@functools.cache
def reference_scores() -> dict[str, ReferenceScore]:
    """Returns the random and human scores of the games that have published ones."""
    return {
        row["game"]: ReferenceScore(float(row["random"]), float(row["human"]))
        for row in rows("atari_scores.csv")
    }


def human_normalized(game: str, score: float) -> float | None:
    """Returns (score - random) / (human - random): 0 is random play, 1 a human; None if unknown."""
    reference = reference_scores().get(game)
    if reference is None:
        return None
    return (score - reference.random) / (reference.human - reference.random)


@functools.cache
def _published() -> dict[tuple[str, str], list[PublishedScore]]:
    """Reads the published scores, by game and protocol."""
    published: dict[tuple[str, str], list[PublishedScore]] = {}
    for row in rows("published_scores.csv"):
        score = PublishedScore(
            row["algorithm"], int(row["frames"]), float(row["score"]), row["source"]
        )
        published.setdefault((row["game"], row["protocol"]), []).append(score)
    return published


def published_scores(game: str, protocol: str) -> list[PublishedScore]:
    """Returns the published scores of a game by one protocol of evaluation; empty if unknown.

    noop: 1 to 30 no-ops, no sticky actions, 108,000 frames at most (Mnih 2015); scores after
    40,000,000 frames are of games of training, in which FIRE is pressed. sticky: actions repeat
    with probability 0.25, nothing is pressed for the agent (Machado 2018). The table leaves out
    scores by other protocols: human starts, single lives, or an unknown protocol.
    """
    return list(_published().get((game, protocol), []))
