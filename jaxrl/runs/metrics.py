"""metrics.jsonl: one line per interval, none lost or repeated across a resume."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl.atari.games import CATCH_GAMES
from jaxrl.errors import UserError
from jaxrl.runs import hints, layout
from jaxrl.runs.sinks import Row, RowFile
from jaxrl.types import WINDOW, Count, Mean, Metrics

ROUNDS = 2  # games of each environment after which long ones have ended as often as they begin
LARGEST = 2.0**63


def games_needed(num_envs: int) -> int:
    """Returns how many games must have ended before their mean stops favoring short ones.

    The first games to end are the shortest of those that began together: of scores that grow with
    length, the mean of the first 100 was 0.98 of the truth with 16 environments, 0.71 with 128 and
    0.43 with 1,200. Where lengths vary strongly it stays low for longer.
    """
    return max(WINDOW, ROUNDS * num_envs)


def num_envs_in(settings: dict[str, Any]) -> int | None:
    """Returns the number of environments in a run's settings by key; None if it is unknown."""
    number = settings.get("num_envs")
    return number if type(number) is int and 0 < number < LARGEST else None


def covers_first_games(rows: list[dict[str, Any]], settings: dict[str, Any]) -> list[bool]:
    """Returns for each row whether its mean covers first games of a session.

    Games began together where the row's `new_games` is 1. Rows of older versions lack it: there
    they did with every session, whose first row has `compile_seconds`, except Catch's, because no
    other games could be saved. Where the settings have no number of environments, every row counts
    as early.
    """
    num_envs, restarted = num_envs_in(settings), settings.get("game") not in CATCH_GAMES
    if num_envs is None:
        return [True] * len(rows)
    early, ended, before = [], 0, 0  # games, now and when the session began
    for row in rows:
        if row.get("new_games", "compile_seconds" in row and restarted):
            before = ended
        ended = int(row.get("episodes") or 0)
        early.append(ended - before < games_needed(num_envs))
    return early


def fair_means(rows: list[dict[str, Any]], settings: dict[str, Any]) -> list[float | None]:
    """Returns the mean return of each row; None also where it covers first games.

    Those favor short games, the more the more environments there are.
    """
    early = covers_first_games(rows, settings)
    return [None if first else row["return_mean"] for row, first in zip(rows, early, strict=True)]


def first_reaching(
    rows: list[dict[str, Any]], means: list[float | None], score: float
) -> dict[str, Any] | None:
    """Returns the first row whose mean is at or above a score; None if there is none."""
    pairs = zip(rows, means, strict=True)
    return next((row for row, mean in pairs if mean is not None and mean >= score), None)


def read(run_dir: Path) -> list[dict[str, Any]]:
    """Reads the rows of a run, oldest first, without a last line that a crash cut off.

    Raises `UserError` if the file is missing, or if a line is not a row of metrics.
    """
    try:
        if (run_dir / layout.METRICS).exists() and not (run_dir / layout.METRICS).is_file():
            raise OSError("it is not a file")
        text = (run_dir / layout.METRICS).read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "" if (run_dir / layout.CONFIG).exists() else hints.remedy(run_dir)
        reason = hint or f"it has no {layout.METRICS}"
        raise UserError(f"'{run_dir}' is no run directory: {reason}") from None
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no path
        raise UserError(f"cannot read '{run_dir / layout.METRICS}': {error}") from None
    rows = []
    # A cut line comes after the newest checkpoint, so a resumed run writes it again.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UserError(f"'{run_dir / layout.METRICS}', line {number}: {error}") from None
    return rows


def lacks_lines(run_dir: Path) -> str:
    """Returns why a run cannot be drawn yet, as one that still compiles; empty if it can."""
    try:
        return "" if read(run_dir) else f"no line in {layout.METRICS} yet"
    except UserError as error:
        return str(error) if (run_dir / layout.METRICS).exists() else f"no {layout.METRICS} yet"


def _row(row: Any) -> dict[str, Any]:
    """Returns the row. Raises `ValueError` if it cannot be plotted."""
    if not isinstance(row, dict):
        raise ValueError("is not an object")
    for name in ("step", "frames", "seconds"):
        if _finite(row.get(name)) is None:
            raise ValueError(f"has no number '{name}'")
    if type(row.get("return_mean")) not in (int, float, type(None)):
        raise ValueError("'return_mean' is not a number")
    return {"return_mean": None} | {name: _finite(value) for name, value in row.items()}


def _finite(value: Any) -> float | None:
    """Returns the value if it is a number that a plot can hold, else None."""
    fits = type(value) in (int, float) and abs(value) < LARGEST  # also not NaN
    return value if fits else None


def means(sums: Metrics, updates: int) -> dict[str, float | None]:
    """Returns the means of metrics summed over `updates` updates; None if no update had one."""

    def mean(value: Any) -> float | None:
        if isinstance(value, Count):
            return float(value.total)
        total, number = value if isinstance(value, Mean) else (value, updates)
        return float(total) / float(number) if number else None

    return {name: mean(value) for name, value in sums.items()}


def rows_before(run_dir: Path, step: int) -> tuple[list[Row], float]:
    """Returns the rows of a run up to an agent step, and the seconds that it took altogether.

    A resumed run writes later rows again; the seconds are those of steps that a kill undid too.
    """
    rows = read(run_dir) if (run_dir / layout.METRICS).exists() else []
    seconds = float(rows[-1].get("wall_seconds") or 0) if rows else 0.0
    return [row for row in rows if row["step"] <= step], seconds


def make_row(values: dict[str, Any]) -> Row:
    """Returns a row for sinks, with None for values that are not finite."""
    return {k: None if v is None or not math.isfinite(v) else v for k, v in values.items()}


def open_sink(run_dir: Path, rows: list[Row], say: Callable[[str], None]) -> RowFile:
    """Returns metrics.jsonl as a sink, which begins with the given rows."""
    return RowFile(
        run_dir / layout.METRICS, rows, lambda row: (json.dumps(row) + "\n").encode(), say
    )
