"""metrics.jsonl and TensorBoard: one line per interval, none lost or repeated across a resume."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from jaxrl.types import Mean, Metrics

FILE = "metrics.jsonl"


def read(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run, oldest first, without a last one that a crash tore."""
    lines = (run_dir / FILE).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:-1]]
    # A torn line lies after the newest checkpoint, so a resumed run writes it again.
    with contextlib.suppress(json.JSONDecodeError):
        rows += [json.loads(line) for line in lines[-1:]]
    return rows


def means(sums: Metrics, updates: int) -> dict[str, float | None]:
    """The means of metrics that were summed over so many updates; None where none had one."""

    def mean(value: Any) -> float | None:
        total, number = value if isinstance(value, Mean) else (value, updates)
        return float(total) / float(number) if number else None

    return {name: mean(value) for name, value in sums.items()}


def _cut(run_dir: Path, step: int) -> None:
    """Drops the lines after `step`, which training will write again."""
    if not (run_dir / FILE).exists():
        return
    kept = [json.dumps(row) + "\n" for row in read(run_dir) if row["step"] <= step]
    replacement = run_dir / (FILE + ".tmp")
    replacement.write_text("".join(kept), encoding="utf-8")
    replacement.replace(run_dir / FILE)


class MetricsLog:
    """Writes a run's lines, from agent step `step` on."""

    def __init__(self, run_dir: Path, step: int) -> None:
        goes_on = (run_dir / FILE).exists()
        _cut(run_dir, step)
        self._file = (run_dir / FILE).open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run_dir), purge_step=step + 1 if goes_on else None)

    def write(self, row: dict[str, Any]) -> None:
        """Appends one line, null for what is not finite; TensorBoard gets it by the agent step."""
        row = {k: None if v is None or not math.isfinite(v) else v for k, v in row.items()}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in row.items():
            if value is not None and name != "step":
                tag = name if "/" in name else f"run/{name}"
                self._board.add_scalar(tag, value, row["step"])

    def close(self) -> None:
        """Writes out what is left."""
        self._file.close()
        self._board.close()
