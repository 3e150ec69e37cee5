"""The section of docs/results/by_machine.md, from the results of suites.

`python -m tools.suite_page [SUITE [NAME]]` copies the results of SUITE to
docs/results/measurements/ as those of the machine NAME, and writes the section of all machines.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.cli.outcome import print_error
from jaxrl.errors import UserError
from jaxrl.experiments.suite.records import SAME
from jaxrl.experiments.suite.table import LONGEST, RESULTS, markdown, marked, software
from jaxrl.runs.files import replace_text
from tools.pages import marked_section

PAGE, MEASUREMENTS = Path("docs/results/by_machine.md"), Path("docs/results/measurements")
# What the page says of a machine; the rest differs from hour to hour.
MACHINE_KEYS = ("platform", "device_kind", "num_devices", "device_memory_gb", "driver", "cpu",
                "cores", "python", "versions")  # fmt: skip
# A path begins where no character of a path stands before it.
BEGINS, ENDS = r"(?<![\w./~-])", r"(?![\w-]|\.\w)"
PERSONAL = re.compile(rf"{BEGINS}(?:/[\w.-]+)*?/(?:home|Users)/[^/\s]+")


def section(folder: Path) -> str:
    """Returns the section: every machine of the folder, the newest first."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    files.sort(key=lambda results: results["date"], reverse=True)
    parts = [f"### {results['name']}\n\n{markdown(results)}" for results in files]
    return "\n".join(parts) or "No machine has been measured yet.\n"


def take_in(suite: Path, folder: Path, name: str = "") -> Path:
    """Copies the results of a suite into the folder as those of a machine; returns the file.

    Members of the file that the suite lacks stay. Raises `UserError` where
    the file is of another machine or size.

    Args:
      suite: output of `jaxrl bench --suite`.
      folder: holds one file for each machine.
      name: the machine's; by default its devices, or its cores.
    """
    try:
        results = json.loads((suite / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"'{suite}' holds no results of a suite: {error}") from None
    machine = results["machine"]
    accelerated = f"{machine['num_devices']} x {machine['device_kind']}"
    named = name or (f"{machine['cores']} cores" if machine["platform"] == "cpu" else accelerated)
    description = {key: machine.get(key) for key in MACHINE_KEYS}
    path = folder / f"{re.sub('[^a-z0-9]+', '-', named.lower()).strip('-')}.json"
    folder.mkdir(parents=True, exist_ok=True)
    results = {"name": named} | results | {"machine": description}
    results["members"] = [_hide_paths(row) for row in results["members"]]
    if path.exists():
        results["members"] = _merged(json.loads(path.read_text(encoding="utf-8")), results, path)
    replace_text(path, json.dumps(results, indent=2) + "\n")
    return path


def _merged(old: dict[str, Any], new: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Returns the new rows, with old ones that are done in place of those that are not."""
    same = all(old["machine"].get(key) == new["machine"].get(key) for key in SAME)
    if not same or old["size"] != new["size"]:
        raise UserError(f"'{path}' is of another machine or size: choose another NAME")
    done = {row["name"]: row for row in old["members"] if row["state"] == "done"}
    rows = []
    for row in new["members"]:
        before = done.get(row["name"])
        if row["state"] == "done" or before is None or before["command"] != row["command"]:
            rows.append(row)
            continue
        measured = before.pop("software", software(old["machine"]))
        rows.append(before | marked(measured, new["machine"]))
    return rows


def _hide_paths(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row whose reason holds no path of a person, and is no longer than the table's."""
    if not row.get("reason"):
        return row
    reason = row["reason"]
    for folder, shown in ((Path.cwd(), "."), (Path.home(), "~")):
        if folder != Path(folder.anchor):
            reason = re.sub(f"{BEGINS}{re.escape(str(folder))}{ENDS}", shown, reason)
    return row | {"reason": PERSONAL.sub("~", reason)[:LONGEST]}


def main(arguments: Sequence[str]) -> int:
    """Takes results in, if any are named, and writes the section; returns the exit status."""
    try:
        if arguments:
            print(take_in(Path(arguments[0]), MEASUREMENTS, " ".join(arguments[1:])))
        page = PAGE.read_text(encoding="utf-8")
        replace_text(PAGE, marked_section(page, "suite", section(MEASUREMENTS)))
    except UserError as error:
        return print_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
