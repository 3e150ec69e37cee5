"""The result of a suite's member, which its process printed or left in a run directory."""

import contextlib
import dataclasses
import json
import re
import signal
from pathlib import Path
from typing import Any, Literal

from jaxrl.errors import UserError
from jaxrl.experiments.runner import last_line, log_tail, printable
from jaxrl.experiments.suite.plan import SCORE
from jaxrl.experiments.suite.records import Record
from jaxrl.runs import layout, metrics
from jaxrl.runs.directory import settings_by_key

LOG_TAIL = 100_000  # bytes at the end of a log that may name the error
ERROR = re.compile(r"RESOURCE_EXHAUSTED|^jaxrl: (?!warning)|^\S*(Error|Exception)\b")

End = Literal["ended", "limit", "deadline", "signal", "reached"]


def named_status(status: int | None) -> str:
    """Returns how a process ended."""
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"status {status}"


def last_error(log: Path) -> str:
    """Returns the line of a log that names its last error, or else its last line."""
    errors = [line for line in log_tail(log, LOG_TAIL) if ERROR.search(line)]
    return printable(errors[-1]) if errors else last_line(log)


def record_rates(record: Record, how: End, printed: Path) -> Record:
    """Returns the record with the object that `bench --json` has printed."""
    if how != "ended" or record.exit_status != 0:
        return _unfinished(record, how)
    for line in reversed(printed.read_text(encoding="utf-8", errors="replace").splitlines()):
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            if isinstance(result, dict):
                return _done(record, result)
    return dataclasses.replace(record, state="failed", reason="printed no result")


def record_score(record: Record, how: End, run_dir: Path) -> Record:
    """Returns the record with the steps and seconds to SCORE, or with how far it came."""
    score = score_of(run_dir)
    ran_out = how == "limit" and score["steps"] > 0
    if score["step"] is not None or ran_out or (how == "ended" and record.exit_status == 0):
        return _done(record, score)
    return dataclasses.replace(_unfinished(record, how), result=score)


def _done(record: Record, result: dict[str, Any]) -> Record:
    return dataclasses.replace(record, state="done", reason="", result=result)


def _unfinished(record: Record, how: End) -> Record:
    """Returns the record as stopped by the suite, or as failed."""
    if how not in ("signal", "deadline"):
        return dataclasses.replace(record, state="failed")
    why = "stopped by a signal" if how == "signal" else "the time was up"
    attempts = record.attempts - 1  # it has not failed
    return dataclasses.replace(record, state="stopped", attempts=attempts, reason=why)


def score_of(run_dir: Path) -> dict[str, Any]:
    """Returns when the mean of 100 games first reached SCORE, and how far the run came.

    `step`, `frames` and `seconds` (of training, without compilation) are None where it has not.
    Means of first games, which favor short ones, do not count; `unknown` says why they cannot be
    distinguished from the others.
    """
    try:
        rows = metrics.read(run_dir)
    except UserError:  # none yet, or a line is half written
        rows = []
    settings = settings_by_key(run_dir)
    known = not rows or metrics.num_envs_in(settings) is not None
    means = metrics.fair_means(rows, settings)
    reached = metrics.first_reaching(rows, means, SCORE)
    last = rows[-1] if rows else {}
    return {
        "score": SCORE,
        "unknown": "" if known else f"{layout.CONFIG} does not say num_envs",
        **{key: reached and reached[key] for key in ("step", "frames", "seconds")},
        "best": max((mean for mean in means if mean is not None), default=None),
        "steps": last.get("step", 0),
        "trained_seconds": last.get("seconds", 0.0),
        "games": last.get("episodes") or 0,
        "compile_seconds": rows[0].get("compile_seconds") if rows else None,
    }
