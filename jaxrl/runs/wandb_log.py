"""Weights & Biases: the lines of metrics.jsonl in one run there, also across resumes.

A step is sent once. The run directory holds the run's id and the newest step that was sent, so that
a resumed run goes on there, sends the lines that are missing and repeats none: of steps that a kill
undid, the lines of the first time stay. Whatever fails there, training goes on without it. Its
files lie where it puts them, ./wandb or WANDB_DIR: they hold links that leave the run directory.
"""

import dataclasses
import importlib.util
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl.config.schema import Config
from jaxrl.errors import UserError, first_line
from jaxrl.runs import layout
from jaxrl.runs.files import replace_text
from jaxrl.runs.sinks import Row

SECONDS_TO_START, SECONDS_TO_END = 30.0, 60.0  # that training waits for the network


def check_installed(config: Config) -> None:
    """Raises `UserError` if the package is needed and missing."""
    # A folder "wandb", as the package itself leaves one behind, has no origin.
    spec = importlib.util.find_spec("wandb") if config.log.wandb else None
    if config.log.wandb and (spec is None or spec.origin is None):
        raise UserError(
            "log.wandb = true needs Weights & Biases: pip install -e '.[wandb]', or leave "
            "--log.wandb out"
        )


class WandbLog:
    """The sink that sends rows to Weights & Biases; after a failure it is silent."""

    def __init__(
        self, config: Config, run_dir: Path, rows: list[Row], say: Callable[[str], None]
    ) -> None:
        """Begins with the rows that are not there yet; `say` shows a line to the user."""
        self._file, self._say = run_dir / layout.WANDB, say
        self._run: Any = None
        self._guarded(self._start, config, run_dir, rows)

    def write(self, row: Row) -> None:
        """Sends a row, except for values that are missing."""
        if self._run is not None:
            self._guarded(self._send, row)

    def flush(self) -> None:
        """Does nothing: its service has each row, and the next resume sends those that it lost."""

    def close(self) -> None:
        """Waits until the rows are sent, but not for long."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run.finish()
        except Exception as error:
            self._say(
                f"warning: Weights & Biases did not take everything ({first_line(error)}): "
                f"`wandb sync {Path(run.dir).parent}` sends the rest"
            )

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        """Calls `step`; a failure ends the log, and a line says so."""
        try:
            step(*arguments)
        except Exception as error:  # another package's, its service's or its files'
            self._run = None
            self._say(
                f"warning: Weights & Biases failed ({first_line(error)}): training goes on "
                "without it, and the next resume sends the lines that are missing"
            )

    def _start(self, config: Config, run_dir: Path, rows: list[Row]) -> None:
        import wandb

        known = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._id, self._sent = known.get("id") or uuid.uuid4().hex[:8], known.get("step", -1)
        run = _open(wandb, run_dir, config, self._id, self._say)
        if run.disabled:  # WANDB_MODE=disabled
            return
        self._run = run
        self._record()
        for row in rows:
            self._send(row)

    def _send(self, row: Row) -> None:
        step = int(row["step"])
        if step <= self._sent:
            return
        values = {k: v for k, v in row.items() if k != "step" and v is not None}
        self._run.log(values, step=step)
        self._sent = step
        self._record()

    def _record(self) -> None:
        text = json.dumps({"id": self._id, "step": self._sent})
        replace_text(self._file, text + "\n")


def _name_of(run_dir: Path) -> str:
    """Returns the name of a run; that of one of several seeds has the directory of all."""
    member = (run_dir.parent / layout.POPULATION).exists()
    return f"{run_dir.absolute().parent.name}-{run_dir.name}" if member else run_dir.name


def _open(wandb: Any, run_dir: Path, config: Config, name: str, say: Callable[[str], None]) -> Any:
    """Returns the run at Weights & Biases; it stays here without a login or a network."""
    limits = {"init_timeout": SECONDS_TO_START, "finish_timeout": SECONDS_TO_END}
    chosen = {
        key: value for key, value in limits.items() if f"WANDB_{key.upper()}" not in os.environ
    }
    # Its output would break the line of progress.
    settings = wandb.Settings(silent=True, console="off", finish_timeout_raises=True, **chosen)
    online = wandb.setup(settings=settings).settings.mode == "online"

    def start(**options: Any) -> Any:
        return wandb.init(
            id=name,
            resume="allow",
            reinit="create_new",
            project=config.log.wandb_project,
            name=os.environ.get("WANDB_NAME") or _name_of(run_dir),
            config=dataclasses.asdict(config),
            allow_val_change=True,
            settings=settings,
            **options,
        )

    if not online:
        return start()
    try:
        if wandb.login(prompt=False, verify=False):
            run = start()
            say(f"Weights & Biases: {run.url}")
            return run
        reason = "no login here (wandb login)"
    except wandb.errors.Error as error:
        reason = first_line(error)
        wandb.teardown()  # which ends the attempt: it holds the id
    run = start(mode="offline")
    say(
        f"warning: Weights & Biases: {reason}: the lines stay in a directory, which "
        f"`wandb sync {Path(run.dir).parent}` sends"
    )
    return run
