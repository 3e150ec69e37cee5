"""metrics.jsonl and TensorBoard: one line per interval, none lost or repeated across a resume."""

import json
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

FILE = "metrics.jsonl"


def read(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run, oldest first."""
    text = (run_dir / FILE).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _cut(path: Path, step: int) -> None:
    """Drops the lines after `step`, which training will write again, and a torn last one."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # torn by a crash; its step lies after the checkpoint
        if row["step"] <= step:
            kept.append(line + "\n")
    replacement = path.with_suffix(".tmp")
    replacement.write_text("".join(kept), encoding="utf-8")
    replacement.replace(path)


class MetricsLog:
    """Writes a run's lines, from agent step `step` on."""

    def __init__(self, run_dir: Path, step: int) -> None:
        _cut(run_dir / FILE, step)
        self._file = (run_dir / FILE).open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run_dir), purge_step=step + 1 if step else None)

    def write(self, row: dict[str, Any]) -> None:
        """Appends one line; numbers go to TensorBoard by the agent step."""
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
