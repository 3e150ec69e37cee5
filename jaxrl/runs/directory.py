"""Run directories: made, described, and read again."""

import contextlib
import dataclasses
import itertools
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.config import bounds
from jaxrl.config.diff import flat
from jaxrl.config.schema import Config
from jaxrl.config.toml import load, to_toml
from jaxrl.errors import UserError
from jaxrl.formatting import shell_word
from jaxrl.runs import hints, layout
from jaxrl.runs.files import replace_text
from jaxrl.runs.lock import hold_lock


def new_run_dir(config: Config, seeds: Sequence[int] = ()) -> Path:
    """Makes runs/GAME-ALGORITHM-seedSEED-TIME, an empty directory of a new name at every start.

    Of the population of several seeds it is runs/GAME-ALGORITHM-seeds1-2-TIME. Of several starts
    within a second, all but the first add -2, -3 and so on. Raises `UserError`.
    """
    now = time.strftime("%Y%m%d-%H%M%S")
    named = f"seeds{'-'.join(map(str, seeds))}" if seeds else f"seed{config.seed}"
    first = Path(f"runs/{config.game}-{config.algorithm}-{named}-{now}")
    for number in itertools.count(1):
        run_dir = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            run_dir.mkdir(parents=True)
            return run_dir
        except OSError as error:
            if not os.path.lexists(run_dir):
                raise UserError(
                    f"cannot make the run directory '{run_dir}': {error.strerror}: choose another "
                    "by --run-dir"
                ) from None
    raise AssertionError


def check_new_run(config: Config) -> Path:
    """Returns the run directory. Raises `UserError` if it holds anything but a run's first files.

    Those of a run that ended before its first step, by a crash or a signal, are taken over.
    """
    run_dir = Path(config.run_dir)
    try:
        config.run_dir.encode()  # the configuration holds it, in UTF-8
        if not run_dir.exists() or (run_dir.is_dir() and never_trained(run_dir)):
            return run_dir
        if not run_dir.is_dir():
            raise UserError(f"'{run_dir}' is a file: choose another --run-dir")
        if _names(run_dir):
            raise UserError(
                f"'{run_dir}' exists: choose another --run-dir, or "
                f"`jaxrl resume {shell_word(run_dir)}`"
            )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot read the run directory '{run_dir}': {reason}: choose another --run-dir"
        ) from None
    return run_dir


def _names(run_dir: Path) -> set[str]:
    """Returns the names in the directory, without the lock and half-written files of a kill."""
    return {p.name for p in run_dir.iterdir() if p.name != layout.LOCK and p.suffix != ".tmp"}


def never_trained(run_dir: Path) -> bool:
    """Returns whether a directory holds nothing but what a run writes before its first step."""
    names = _names(run_dir)
    files = {layout.CONFIG, layout.PROVENANCE, layout.METRICS, layout.CHECKPOINTS, layout.WANDB}
    began = (run_dir / layout.LOCK).is_file() and layout.CONFIG in names
    if not began or any(n not in files and not n.startswith(layout.EVENTS) for n in names):
        return False
    log, checkpoints = run_dir / layout.METRICS, run_dir / layout.CHECKPOINTS
    saved = checkpoints.is_dir() and any(p.name.isdecimal() for p in checkpoints.iterdir())
    return not saved and not (log.exists() and log.stat().st_size)


def _clear(run_dir: Path) -> None:
    """Deletes the files of a run that never trained, but for its lock and its configuration."""
    print(f"'{run_dir}': the run there ended before its first step; this one takes its place",
          file=sys.stderr)  # fmt: skip
    for path in run_dir.iterdir():
        if path.name == layout.CHECKPOINTS:
            shutil.rmtree(path)
        elif path.name not in (layout.LOCK, layout.CONFIG):
            path.unlink()


def create_run(config: Config, locks: contextlib.ExitStack) -> Path:
    """Makes the directory, locks it until `locks` closes and writes config.toml.

    Without a `run_dir` in the configuration it is a new one. Raises `UserError` rather than
    overwrite anything.
    """
    if not config.run_dir:
        config = config.replaced(run_dir=str(new_run_dir(config)))
    run_dir = check_new_run(config)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        check_links(run_dir)
        locks.enter_context(hold_lock(run_dir))
        check_new_run(config)  # another process may have been first
        if _names(run_dir):
            _clear(run_dir)
        write_config(run_dir, config)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error  # without the path once more
        raise UserError(
            f"cannot write the run directory '{run_dir}': {reason}: choose another --run-dir"
        ) from None
    return run_dir


def write_config(run_dir: Path, config: Config) -> None:
    """Writes config.toml whole or not at all."""
    replace_text(run_dir / layout.CONFIG, to_toml(config))


def load_config(run_dir: Path) -> Config:
    """Reads the configuration of a run. Raises `UserError` if there is none."""
    bounds.check_local(run_dir)
    try:
        present = (run_dir / layout.CONFIG).is_file()
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        raise UserError(f"cannot read '{run_dir}': {error}") from None
    if not present and os.path.isfile(run_dir / layout.POPULATION):
        first = min(run_dir.glob("seed*"), default=run_dir / "seed1")
        raise UserError(
            f"'{run_dir}' holds the runs of several seeds: name one of them, as {first}"
        )
    if not present:
        hint = hints.remedy(run_dir) or f"it has no {layout.CONFIG}"
        raise UserError(f"'{run_dir}' is no run directory: {hint}")
    check_links(run_dir)
    config = load(run_dir / layout.CONFIG)
    try:
        bounds.check(config)  # readers compute sizes with its values
    except UserError as error:
        raise UserError(f"'{run_dir / layout.CONFIG}': {error}") from None
    return config


def settings_by_key(run_dir: Path) -> dict[str, Any]:
    """Returns the settings of a run by dotted key ("agent.gamma"), for readers of its figures.

    A file that `load_config` refuses, as one of an older version, gives its values as they stand;
    empty where there is none to read.
    """
    try:
        return flat(dataclasses.asdict(load_config(run_dir)))
    except UserError:
        pass
    path = run_dir / layout.CONFIG
    try:
        check_links(run_dir)
        # A pipe would block.
        return flat(tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (UserError, OSError, ValueError, RecursionError):
        return {}


def _leads_inside(link: Path, home: Path) -> bool:
    """Returns whether a link stays inside `home`."""
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a loop
        return False


def check_links(run_dir: Path) -> None:
    """Raises `UserError` if a link leads out of the run directory: writes would follow it."""
    try:
        home = run_dir.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop
        raise UserError(f"cannot read '{run_dir}': {error}") from None
    for folder, folders, files in os.walk(run_dir):  # does not follow links
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink() and not _leads_inside(path, home):
                raise UserError(f"'{path}' is a link out of the run directory: replace it by its "
                                "target")  # fmt: skip
