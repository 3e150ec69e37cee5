"""The results of a suite: one JSON and one Markdown table."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl.experiments.suite.plan import SuiteMember
from jaxrl.experiments.suite.records import Record
from jaxrl.runs.files import replace_text

RESULTS, TABLE = "results.json", "results.md"
HEAD = """| member | measured | steps/s, median | lowest to highest | share of the loop | command |
|---|---|---|---|---|---|
"""
LONGEST = 200  # characters of a reason in the table

# --- results.json ---------------------------------------------------------------------------------


def write(
    output: Path,
    members: list[SuiteMember],
    records: dict[str, Record],
    machine: dict[str, Any],
    size: str,
) -> None:
    """Writes results.json and results.md, each whole or not at all."""
    suite = results(members, records, machine, size)
    replace_text(output / RESULTS, json.dumps(suite, indent=2) + "\n")
    title = "# Results of `jaxrl bench --suite`\n\n"
    replace_text(output / TABLE, title + markdown(suite))


def results(
    members: list[SuiteMember], records: dict[str, Record], machine: dict[str, Any], size: str
) -> dict[str, Any]:
    """Returns the object of results.json: the machine once, then every member in its order."""
    rows = []
    for member in members:
        record = records.get(member.name)
        if record is None or record.command != member.command:
            row = {"name": member.name, "kind": member.kind, "command": member.command}
            rows.append(row | {"state": "new"})
            continue
        whole = dataclasses.asdict(record)
        row = {key: whole[key] for key in whole if key not in ("machine", "process", "size")}
        rows.append(row | marked(software(record.machine), machine))
    newest = max((row["date"] for row in rows if "date" in row), default=machine["date"][:10])
    return {
        "machine": machine,
        "commit": machine.get("commit"),
        "date": newest,
        "size": size,
        "members": rows,
    }


def software(machine: dict[str, Any]) -> dict[str, str | None]:
    """Returns the versions that a figure depends on, by name."""
    python, driver = machine.get("python"), machine.get("driver")
    return {"Python": python, "driver": driver, **machine.get("versions", {})}


def marked(versions: dict[str, str | None], machine: dict[str, Any]) -> dict[str, Any]:
    """Returns `software` for a row that was measured with other versions than the machine has."""
    return {} if versions == software(machine) else {"software": versions}


# --- as a table -----------------------------------------------------------------------------------


def outcome(record: Record) -> str:
    """Returns the result of a member in one line."""
    row = dataclasses.asdict(record)
    if record.state != "done":
        return f"{record.state}: {record.reason}"
    return "; ".join(f"{what} {figure}" for what, figure, *_ in _cells(row))


def markdown(suite: dict[str, Any]) -> str:
    """Returns the machine, the table and the names of the members without a result."""
    lines = [describe(suite), "", HEAD.rstrip()]
    for row in suite["members"]:
        name = row["name"]
        if others := _others(row, suite):
            name += f" ({', '.join(others)})"
        if row["state"] == "failed":
            lines.append(_line(name, "failed", _plain(row["reason"]), "-", "-", row["command"]))
        elif row["state"] == "done":
            for number, cells in enumerate(_cells(row)):
                first = number == 0
                lines.append(_line(name if first else "", *cells, row["command"] if first else ""))
    waiting = [row["name"] for row in suite["members"] if row["state"] not in ("failed", "done")]
    if waiting:
        lines += ["", f"Not measured yet: {', '.join(waiting)}."]
    return "\n".join(lines) + "\n"


def _others(row: dict[str, Any], suite: dict[str, Any]) -> list[str]:
    """Returns the commit and the versions of a row that are not those above the table."""
    commit = row.get("commit", suite["commit"])
    others = [f"commit {_short(commit)}"] if commit != suite["commit"] else []
    here = software(suite["machine"])
    there = row.get("software", here)
    for name in [*there, *(name for name in here if name not in there)]:
        if there.get(name) != here.get(name):
            others.append(f"{name} {there[name]}" if there.get(name) else f"no {name}")
    return others


def describe(suite: dict[str, Any]) -> str:
    """Returns the machine, its versions, the commit and the date in one paragraph."""
    machine, versions = suite["machine"], suite["machine"]["versions"]
    memory = machine.get("device_memory_gb")
    devices = f"{machine['num_devices']} x {machine['device_kind']}"
    parts = [
        "no accelerator" if machine["platform"] == "cpu" else devices,
        f"{memory:g} GB each for JAX" if memory else "",
        f"driver {machine['driver']}" if machine.get("driver") else "",
        f"{machine['cores']} cores of {machine['cpu'] or 'an unknown CPU'}",
    ]
    installed = ["Python " + machine["python"], *(f"{k} {v}" for k, v in versions.items())]
    return (
        f"Machine: {', '.join(part for part in parts if part)}. Versions: {', '.join(installed)}. "
        f"Commit {_short(suite['commit'])}, {suite['date']}, size {suite['size']}. Members "
        "are measured one after another, minutes apart: only their shares compare."
    )


def _short(commit: str | None) -> str:
    """Returns seven digits of a commit; a changed working tree stays marked."""
    if not commit:
        return "unknown"
    return commit[:7] + "-dirty" * commit.endswith("-dirty")


def _line(name: str, what: str, figure: str, spread: str, share: str, command: str) -> str:
    shown = f"`{command}`" if command else ""
    return f"| {name} | {what} | {figure} | {spread} | {share} | {shown} |"


def _plain(text: str) -> str:
    """Returns a text that breaks no table and no page."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")
    return plain if len(plain) <= LONGEST else plain[:LONGEST] + " ..."


def _cells(row: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yields for each load: its name, the median, the spread and the share of the loop's rate."""
    if row["kind"] == "score":
        yield (*_score_cells(row["result"]), "-", "-")
        return
    loads = {k: v for k, v in row["result"].items() if isinstance(v, dict) and "share" in v}
    loop = loads.pop("loop", None)
    for load, rate in loads.items():
        lowest, highest = rate["lowest"], rate["highest"]  # equal after a single repeat
        spread = "-" if lowest == highest else f"{lowest:,.0f} to {highest:,.0f}"
        share = f"{rate['share']:.2f} of {loop['steps_per_second']:,.0f}" if loop else "-"
        yield load, f"{rate['steps_per_second']:,.0f}", spread, share


def _score_cells(result: dict[str, Any]) -> tuple[str, str]:
    goal = f"mean of 100 games {result['score']:g}"
    if result["step"] is not None:
        return goal, f"after {result['step']:,.0f} steps, {result['seconds']:,.0f} s of training"
    if result.get("unknown"):  # older records do not have it
        return goal, f"unknown: {result['unknown']}"
    ran = f"{result['steps']:,.0f} steps, {result['trained_seconds']:,.0f} s of training"
    if result["best"] is not None:
        return goal, f"not reached: {result['best']:.1f} at best in {ran}"
    return goal, f"not reached: {result['games']} games ended in {ran}"
