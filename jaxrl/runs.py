"""Run directories: made, described, and read again."""

import contextlib
import dataclasses
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl import config as configuration
from jaxrl.config import Config
from jaxrl.errors import UserError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
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
        if run_dir.exists() and (not run_dir.is_dir() or _names(run_dir)):
            raise UserError(
                f"'{run_dir}' exists: choose another --run-dir, or `jaxrl resume {run_dir}`"
            )
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the run directory '{run_dir}': {error}") from None
    return run_dir


def _names(run_dir: Path) -> set[str]:
    """What lies in the directory, but for the lock and what a kill left half written."""
    return {p.name for p in run_dir.iterdir() if p.name != LOCK and p.suffix != ".tmp"}


def create(config: Config, held: contextlib.ExitStack) -> Path:
    """Makes the directory, locks it and writes config.toml.

    Raises `UserError` rather than overwrite.
    """
    run_dir = check_new(config)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        check_inside(run_dir)
        held.enter_context(hold(run_dir))
        check_new(config)  # another may have come first
        write_config(run_dir, config)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the run directory '{run_dir}': {error}") from None
    return run_dir


def write_config(run_dir: Path, config: Config) -> None:
    """Writes config.toml whole or not at all."""
    replace_text(run_dir / "config.toml", configuration.to_toml(config))


def replace_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    # A name of its own: two may write the same file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _lock(file: Any) -> None:
    if fcntl is None:
        return
    for patience in (0.05, 0.2, 0.5, 0.0):  # `is_held` may look at this moment
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not patience:
                raise
            time.sleep(patience)


def is_held(run_dir: Path) -> bool:
    """Whether a process trains in the directory, as far as this machine can tell."""
    path = run_dir / LOCK
    try:
        if fcntl is None or not path.is_file():  # a pipe would keep us waiting
            return False
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, or no file system for it
        return False
    return False


@contextlib.contextmanager
def hold(run_dir: Path) -> Iterator[None]:
    """Keeps other processes from training in the directory; the system lets go when this one ends.

    Raises `UserError` where another trains there.
    """
    with (run_dir / LOCK).open("a+", encoding="utf-8") as file:
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            holder = " ".join(file.read(200).split()) or "another process"
            raise UserError(
                f"'{run_dir}' is in use by {holder}: wait for it, stop it, or choose another "
                "--run-dir"
            ) from None
        except OSError as error:
            print(f"warning: '{run_dir}' cannot be locked ({error.strerror}): train there only "
                  "once at a time", file=sys.stderr)  # fmt: skip
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        yield


def load_config(run_dir: Path) -> Config:
    """The configuration of a run. Raises `UserError` where there is none."""
    try:
        present = (run_dir / "config.toml").is_file()
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        raise UserError(f"cannot read '{run_dir}': {error}") from None
    if not present:
        raise UserError(f"'{run_dir}' is no run directory: it has no config.toml")
    check_inside(run_dir)
    return configuration.load(run_dir / "config.toml")


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by their key as a flag has it, optimizer.learning_rate."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and len(prefix) < 200:  # a hostile file's may be endless
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def differences(configs: list[Config]) -> list[dict[str, Any]]:
    """Of each configuration the settings, by key, that are not alike in all that have them."""
    tables = [flat(dataclasses.asdict(config)) for config in configs]
    found: dict[str, set[Any]] = {}
    for table in tables:
        for key, value in table.items():
            found.setdefault(key, set()).add(value)
    varying = [key for key, values in found.items() if len(values) > 1]
    return [{key: table[key] for key in varying if key in table} for table in tables]


def told_apart(run_dirs: Sequence[Path]) -> list[str]:
    """The directories' names, where two are alike with as much of the path as differs.

    Raises `UserError` where one is given twice.
    """
    paths = [Path(os.path.abspath(run_dir)) for run_dir in run_dirs]  # a link keeps its name
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UserError(f"'{twice.name}' is given twice: name each run directory once")
    names, depth = [path.name for path in paths], 1
    while len(set(names)) < len(names):
        depth += 1
        names = [
            "/".join(path.parts[-depth:]) if names.count(name) > 1 else name
            for path, name in zip(paths, names, strict=True)
        ]
    return names


def load_table(run_dirs: Iterable[Path]) -> "pandas.DataFrame":
    """Every line of the runs' metrics.jsonl as a row of one table; needs pandas.

    Columns: `run`, the directory's name, with its parent's before it where two are alike; `game`,
    `algorithm` and `seed`; the settings that are not alike in all runs that have them, by their
    keys (`optimizer.learning_rate`); every key of the lines; `minutes`, which is `seconds` / 60.
    What a line does not have, or is no finite number there, is NaN. Raises `UserError` for what is
    no run directory or cannot be read.
    """
    import pandas

    from jaxrl import metrics  # imports JAX, which most users of this module do without

    run_dirs = list(run_dirs)
    if not run_dirs:
        raise UserError("a table needs at least one run directory")
    configs = [load_config(run_dir) for run_dir in run_dirs]
    rows: list[dict[str, Any]] = []
    columns = dict.fromkeys(["run", "game", "algorithm", "seed"])
    parts = zip(run_dirs, told_apart(run_dirs), configs, differences(configs), strict=True)
    for run_dir, name, config, settings in parts:
        about = {"run": name, "game": config.game, "algorithm": config.algorithm}
        about |= {"seed": config.seed} | settings
        about.pop("run_dir", None)
        columns |= dict.fromkeys(about)
        for line in metrics.read(run_dir):
            rows.append({key: _number(value) for key, value in line.items()} | about)
            rows[-1]["minutes"] = _number(line["seconds"]) / 60
    columns |= dict.fromkeys(["step", "frames", "seconds", "minutes", "return_mean"])
    columns |= dict.fromkeys(key for row in rows for key in row)
    return pandas.DataFrame(rows, columns=list(columns))


def _number(value: Any) -> float:
    """NaN for what is no finite number, or too large for a table."""
    return value if type(value) in (int, float) and abs(value) < 2**63 else float("nan")


def _leads_inside(link: Path, home: Path) -> bool:
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a loop
        return False


def check_inside(run_dir: Path) -> None:
    """Refuses a run directory with links that lead out of it: what is written there would too."""
    try:
        home = run_dir.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop
        raise UserError(f"cannot read '{run_dir}': {error}") from None
    for folder, folders, files in os.walk(run_dir):  # does not follow links
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink() and not _leads_inside(path, home):
                raise UserError(f"'{path}' is a link out of the run directory: replace it by what "
                                "it links to")  # fmt: skip


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


def overridden(run_dir: Path) -> dict[str, Any]:
    """Values by key that the resumes of a run have been told to change."""
    try:
        provenance = json.loads((run_dir / "provenance.json").read_text(encoding="utf-8"))
        changes = [resumed.get("overridden", {}) for resumed in provenance.get("resumed", [])]
        return {key: now for change in changes for key, (_, now) in change.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def write_provenance(run_dir: Path, devices: list[Any], changes: dict[str, Any]) -> None:
    """Where a run comes from: commit, packages, devices, command line; every resume is added.

    `changes` of the configuration are those of this resume, by key: [before, now].
    """
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
    if changes:
        provenance["overridden"] = changes
    if path.is_file():
        try:
            first = dict(json.loads(path.read_text(encoding="utf-8")))
            provenance = first | {"resumed": [*first.get("resumed", []), provenance]}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            print(f"warning: '{path}' cannot be read ({error}): written anew", file=sys.stderr)
    replace_text(path, json.dumps(provenance, indent=2) + "\n")
