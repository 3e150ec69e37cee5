"""Trains the members of a sweep, one after another, and writes their results.

A member that fails does not stop the others. The same sweep again skips members that are done and
continues the rest.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.errors import UserError
from jaxrl.experiments import runner
from jaxrl.experiments.members import Member, copy_recipes, last_row, state
from jaxrl.experiments.runner import SignalRelay, Turn
from jaxrl.formatting import duration
from jaxrl.runs import checkpoint_files, layout
from jaxrl.runs.files import replace_text
from jaxrl.runs.lock import is_locked

if TYPE_CHECKING:
    from jaxrl.training.display import Display

REPORT = "report.html"

Row = dict[str, Any]  # the object of one member in sweep.json


def run(members: list[Member], root: Path, display: "Display", stop: SignalRelay) -> list[Row]:
    """Trains the members that are not done, in their order; returns the rows of sweep.json.

    That file, in the sweep's directory `root`, is rewritten after every member.
    """
    for member in members:
        if is_locked(member.run_dir):  # a killed sweep's member takes a moment to save
            raise UserError(
                f"'{member.run_dir}' is in training by another process: wait for it, or stop it"
            )
    copy_recipes(members)
    rows = {member.name: describe(member, state(member)) for member in members}
    write(root, rows.values())
    if done := sum(row["status"] == "done" for row in rows.values()):
        display.say(f"{done} of {len(rows)} done already")
    for turn, member in runner.turns({member.name: member for member in members}, display, stop):
        if rows[member.name]["status"] == "done":
            continue
        turn.begin("goes on" if rows[member.name]["status"] == "begun" else "begins")
        rows[member.name] = row = _train(member, turn, stop)
        write(root, rows.values())
        turn.end(f"{_outcome(row, member, turn.seconds)}{_rest(rows.values())}")
    return list(rows.values())


def _train(member: Member, turn: Turn, stop: SignalRelay) -> Row:
    """Trains a member, and returns its row."""
    exit_status = runner.train(member, stop, lambda: turn.show(member.log))
    status = "done" if exit_status == 0 else "failed" if stop.signal is None else "stopped"
    return describe(member, status, exit_status)


def _outcome(row: Row, member: Member, seconds: float) -> str:
    """Returns how a member ended, in one line."""
    took = duration(seconds)
    if row["status"] == "failed":
        return (
            f"failed after {took} with status {row['exit_status']} "
            f"({runner.last_line(member.log)}): see {member.log}"
        )
    if row["status"] == "stopped":
        return f"stopped after {took} at step {row['step']:,}"
    figures = {"return": row["return_mean"], "evaluation": row["evaluation_mean"]}
    shown = [f", {name} {value:.1f}" for name, value in figures.items() if value is not None]
    return f"done in {took}{''.join(shown)}"


def _rest(rows: Collection[Row]) -> str:
    """Returns how many members are left, and for how long, where that is known."""
    more, seconds = sum(row["status"] in ("new", "begun") for row in rows), seconds_left(rows)
    about = f", about {duration(seconds)} of training" if seconds is not None else ""
    return f"; {more} more{about}" if more else ""


# --- results --------------------------------------------------------------------------------------


def describe(member: Member, status: str, exit_status: int | None = None) -> Row:
    """Returns the object of a member in sweep.json; its exit status if this sweep trained it.

    Its status is new, begun, done, failed or stopped.
    """
    from jaxrl.runs import evaluation_record

    last = last_row(member.run_dir)
    try:
        evaluation = evaluation_record.read(member.run_dir)
    except UserError:
        evaluation = None
    return {
        "name": member.name,
        "config": str(member.file),
        "settings": dict(member.settings),
        "algorithm": member.config.algorithm,
        "game": member.config.game,
        "seed": member.config.seed,
        "run_dir": str(member.run_dir),
        "status": status,
        "exit_status": exit_status,
        # A checkpoint of the end comes without a line where it was stopped within an interval.
        "step": max([last.get("step", 0), *checkpoint_files.steps(member.run_dir)[-1:]]),
        "total_steps": member.total_steps,
        "wall_seconds": last.get("wall_seconds"),
        "return_mean": last.get("return_mean"),
        "evaluation_protocol": evaluation and evaluation.protocol,
        "evaluation_mean": evaluation and evaluation.mean,
        "human_normalized_mean": evaluation and evaluation.human_normalized_mean,
    }


def write(root: Path, rows: Collection[Row]) -> None:
    """Writes sweep.json, whole or not at all: a list with one object per member."""
    replace_text(root / layout.SWEEP, json.dumps([*rows], indent=2, allow_nan=False) + "\n")


def seconds_left(rows: Collection[Row]) -> float | None:
    """Returns the seconds of the remaining members, by the pace of their configurations.

    A configuration without a pace takes that of all others; None where there is none at all.
    """
    paced = [row for row in rows if row["wall_seconds"] and row["step"]]
    left = [row for row in rows if row["status"] in ("new", "begun")]
    if not paced:
        return None if left else 0.0
    seconds = 0.0
    for row in left:
        same = [other for other in paced if other["config"] == row["config"]]
        alike = [x for x in same if x.get("settings") == row.get("settings")] or same or paced
        pace = sum(x["wall_seconds"] for x in alike) / sum(x["step"] for x in alike)
        seconds += pace * max(row["total_steps"] - row["step"], 0)
    return seconds


def report(members: list[Member], root: Path) -> Path | None:
    """Writes ROOT/report.html of the members with metrics; None where there are none."""
    from jaxrl.analysis.report import page

    run_dirs = [x.run_dir for x in members if (x.run_dir / layout.METRICS).is_file()]
    if not run_dirs:
        return None
    left_out = {x.run_dir: "not trained" for x in members if x.run_dir not in run_dirs}
    page.write(run_dirs, root / REPORT, left_out=left_out)
    return root / REPORT
