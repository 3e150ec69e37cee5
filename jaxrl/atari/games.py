"""The Atari games that EnvPool bundles, and their actions."""

import csv
import functools
import re
from importlib import resources

CATCH, CATCH_MEMORY = "catch", "catch_memory"
CATCH_GAMES = (CATCH, CATCH_MEMORY)  # in pure JAX: they need no emulator


# fmt: off
FULL_ACTIONS = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT",
    "UPFIRE", "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE",
    "DOWNLEFTFIRE",
)
# fmt: on
NO_FIRE = ("lost_luggage", "skiing")  # the only games whose full set has no FIRE


def rows(name: str) -> list[dict[str, str]]:
    """Reads a table of this package."""
    text = resources.files("jaxrl.atari").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def _minimal_actions() -> dict[str, tuple[str, ...]]:
    return {row["game"]: tuple(row["actions"].split()) for row in rows("atari_actions.csv")}


def minimal_actions(game: str) -> tuple[str, ...]:
    """Returns the actions that the game uses, in the Arcade Learning Environment's order."""
    return _minimal_actions()[game]


def full_actions(game: str) -> tuple[str, ...]:
    """Returns every action that EnvPool offers for the game."""
    return tuple(a for a in FULL_ACTIONS if game not in NO_FIRE or "FIRE" not in a)


@functools.cache
def _variants() -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {
        row["game"]: (
            tuple(map(int, row["modes"].split())),
            tuple(map(int, row["difficulties"].split())),
        )
        for row in rows("atari_modes.csv")
    }


def modes(game: str) -> tuple[int, ...]:
    """Returns the numbers of a cartridge's games, as the Arcade Learning Environment has them."""
    return _variants()[game][0]


def difficulties(game: str) -> tuple[int, ...]:
    """Returns the positions of the difficulty switches that make a difference, as ALE has them.

    Bit 0 of a number is the left switch on A, bit 1 the right one.
    """
    return _variants()[game][1]


def atari_games() -> tuple[str, ...]:
    """Returns every game whose ROM EnvPool bundles."""
    return tuple(_minimal_actions())


def game_name(name: str) -> str:
    """Returns the game that other libraries call `ALE/Pong-v5`, `PongNoFrameskip-v4` or `Pong`.

    An unknown name is returned as it came.
    """
    bare = re.sub(
        r"((NoFrameskip|Deterministic)?-v\d+)?$", "", re.sub("^(ALE|jaxrl)/", "", name), count=1
    )
    games = {game.replace("_", ""): game for game in known_games()}
    return games.get(bare.lower().replace("_", "").replace("-", ""), name)


def known_games() -> tuple[str, ...]:
    """Returns every value that `--game` accepts."""
    return (*atari_games(), *CATCH_GAMES)
