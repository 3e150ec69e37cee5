"""Keeps runs as the evidence of docs/results: `python -m tools.record_runs GROUP RUN...`.

Of each run docs/results/runs/GROUP/NAME has the configuration, the provenance, the evaluations and
some hundred lines of metrics.jsonl, the last among them; NAME is the run directory's. Paths of the
machine are left out. Without a RUN the pages' tables are written anew (tools/score_tables.py).
"""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxrl.cli.outcome import print_error
from jaxrl.errors import UserError
from jaxrl.runs import layout
from jaxrl.runs.directory import load_config
from jaxrl.runs.files import replace_text
from tools import score_tables

RUNS = Path("docs/results/runs")
LINES = 100  # of metrics.jsonl, about


def record(run_dir: Path, group: Path) -> Path:
    """Copies what a page needs of a finished run into the group; returns the new directory.

    Raises `UserError` where the policy at the end has not been evaluated.
    """
    lines = (run_dir / layout.METRICS).read_text(encoding="utf-8").splitlines(keepends=True)
    evaluation = run_dir / layout.EVALUATION
    ended = load_config(run_dir).total_steps <= json.loads(lines[-1])["step"]
    if not ended or not evaluation.is_file():
        raise UserError(f"'{run_dir}' has not ended, or has no {layout.EVALUATION}")
    target = group / run_dir.name
    target.mkdir(parents=True, exist_ok=True)
    every = max(1, len(lines) // LINES)
    thinned = [line for number, line in enumerate(lines, 1) if number % every == 0]
    if thinned[-1:] != lines[-1:]:
        thinned.append(lines[-1])
    replace_text(target / layout.METRICS, "".join(thinned))
    text = (run_dir / layout.CONFIG).read_text(encoding="utf-8")
    shown = f'run_dir = "runs/{run_dir.name}"'
    replace_text(target / layout.CONFIG, re.sub(r"^run_dir = .*$", shown, text, flags=re.M))
    provenance = json.loads((run_dir / layout.PROVENANCE).read_text(encoding="utf-8"))
    provenance["command"] = strip_paths(provenance["command"], run_dir.name)
    text = json.dumps(provenance, indent=2).replace(str(run_dir), f"runs/{run_dir.name}")
    replace_text(target / layout.PROVENANCE, text + "\n")  # resumes name the directory, too
    shutil.copy(evaluation, target)
    for other in sorted((run_dir / layout.EVALUATIONS).glob("*.json")):
        if other.read_bytes() != evaluation.read_bytes():
            (target / layout.EVALUATIONS).mkdir(exist_ok=True)
            shutil.copy(other, target / layout.EVALUATIONS)
    return target


def strip_paths(command: str, name: str) -> str:
    """Returns a command whose run directory is runs/NAME and whose configuration is a stem."""
    shown = {"--run-dir": lambda _: f"runs/{name}", "--config": lambda path: Path(path).stem}
    words: list[str] = []
    for word in shlex.split(command):
        option, equals, value = word.partition("=")
        words += [option, value] if equals and option in shown else [word]
    for place, option in enumerate(words[:-1]):
        if option in shown:
            words[place + 1] = shown[option](words[place + 1])
    return shlex.join(words)


def main(arguments: Sequence[str]) -> int:
    """Records the runs, if any are named, and writes the tables; returns the exit status."""
    try:
        for run in arguments[1:]:
            print(record(Path(run), RUNS / arguments[0]))
        for page in score_tables.write(RUNS):
            print(page)
    except UserError as error:
        return print_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
