"""Run directories: made, described, and read again."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxrl import config as configuration
from jaxrl.config import Config, UserError

PACKAGES = (
    "jaxrl",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "chex",
    "envpool",
    "numpy",
    "orbax-checkpoint",
)


def default_name(config: Config) -> str:
    """runs/GAME-ALGORITHM-seedSEED-TIME, new at every start."""
    now = time.strftime("%Y%m%d-%H%M%S")
    return f"runs/{config.game}-{config.algorithm}-seed{config.seed}-{now}"


def settings(config: Config) -> str:
    """All but the directory, as lines of TOML: alike for two that train the same run."""
    return configuration.to_toml(dataclasses.replace(config, run_dir=""))


def check_new(config: Config) -> Path:
    """Refuses a directory that holds something. Raises `UserError`."""
    run_dir = Path(config.run_dir)
    try:
        if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
            raise UserError(
                f"'{run_dir}' exists: choose another --run-dir, or `jaxrl resume {run_dir}`"
            )
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the run directory '{run_dir}': {error}") from None
    return run_dir


def create(config: Config) -> Path:
    """Makes the directory and writes config.toml. Raises `UserError` rather than overwrite."""
    run_dir = check_new(config)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.toml").write_text(configuration.to_toml(config), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the run directory '{run_dir}': {error}") from None
    return run_dir


def load_config(run_dir: Path) -> Config:
    """The configuration of a run. Raises `UserError` where there is none."""
    if not (run_dir / "config.toml").is_file():
        raise UserError(f"'{run_dir}' is no run directory: it has no config.toml")
    return configuration.load(run_dir / "config.toml")


def _git_commit() -> str | None:
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def write_provenance(run_dir: Path, devices: list[Any]) -> None:
    """Where a run comes from: commit, packages, devices, command line; every resume is added."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    provenance = {
        "git_commit": _git_commit(),
        "packages": versions,
        "python": sys.version.split()[0],
        "devices": [f"{d.platform}:{d.id} {d.device_kind}" for d in devices],
        "cpu_cores": os.cpu_count(),
        "command": shlex.join(["jaxrl", *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    path = run_dir / "provenance.json"
    if path.is_file():
        first = json.loads(path.read_text(encoding="utf-8"))
        provenance = first | {"resumed": [*first.get("resumed", []), provenance]}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
