"""Durations, counts and paths for people."""

import shlex
from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Formats a duration as hours:minutes:seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def count(number: float) -> str:
    """Formats a count with about three digits: 1.25M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return str(round(number))


def games(number: int) -> str:
    """Returns "1 game", "30 games"."""
    return f"{number} game{'s' * (number != 1)}"


def no_game(ended: bool) -> str:
    """Returns the text in place of the return of a run in which no game has ended."""
    return "no game ended in this run: train longer" if ended else "no game over yet"


def listed(names: Sequence[str]) -> str:
    """Returns names as a sentence has them: "a", "a and b", "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def numbers_of(numbers: Sequence[int]) -> str:
    """Returns numbers as a sentence has them, of very many the first ones and the last."""
    most = 24
    shown = [str(number) for number in numbers]
    if len(shown) > most:
        shown[most - 2 : -1] = ["..."]
    return listed(shown)


def no_option(path: object) -> str:
    """Returns a path as a word of a command line, which no command takes for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def shell_word(path: object) -> str:
    """Returns a path as a shell takes it, for commands in messages."""
    return shlex.quote(no_option(path))


def fault(error: Exception) -> str:
    """Returns in one line why a file cannot be read, such as a missing key for a `KeyError`."""
    return f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
