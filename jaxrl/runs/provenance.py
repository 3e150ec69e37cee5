"""provenance.json: the machine, packages and changes of every start of a run."""

import json
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxrl.config import needs
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.runs import layout
from jaxrl.runs.files import read_object, replace_text
from jaxrl.runtime import cpus

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


def git_commit() -> str | None:
    """Returns the commit of the package's repository; None if there is none."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return finished.stdout.strip() or None


def overridden_values(run_dir: Path) -> dict[str, Any]:
    """Returns the values, by key, that the resumes of a run have overridden."""
    try:
        provenance = read_object(run_dir / layout.PROVENANCE) or {}
        changes = [resumed.get("overridden", {}) for resumed in provenance.get("resumed", [])]
        return {key: now for change in changes for key, (_, now) in change.items()}
    except (UserError, ValueError, TypeError, AttributeError):
        return {}


def write_provenance(
    config: Config,
    run_dir: Path,
    devices: list[Any],
    engine: str,
    changes: dict[str, Any],
    started: float,
) -> None:
    """Writes where a run comes from: commit, packages, devices, command line; a resume is added.

    `engine` plays the games. `changes` are the values that this resume overrides, by key: [before,
    now]. `started` is when the session began, in seconds since 1970: before its program compiled.
    """
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    others = [entry.dist for entry in needs.needed(config) if entry.dist]
    versions |= {package.name: package.version for package in others}
    provenance = {
        "git_commit": git_commit(),
        "packages": versions,
        "python": sys.version.split()[0],
        "devices": [f"{d.platform}:{d.id} {d.device_kind}" for d in devices],
        "cpu_cores": cpus.count(),
        "engine": engine,
        "command": shlex.join(["jaxrl", *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
    }
    path = run_dir / layout.PROVENANCE
    if changes:
        provenance["overridden"] = changes
    if path.is_file():
        try:
            first = dict(json.loads(path.read_text(encoding="utf-8")))
            provenance = first | {"resumed": [*first.get("resumed", []), provenance]}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            print(f"warning: '{path}' cannot be read ({error}): replaced", file=sys.stderr)
    replace_text(path, json.dumps(provenance, indent=2) + "\n")
