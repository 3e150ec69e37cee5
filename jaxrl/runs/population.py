"""The directory of a population: a run directory seedSEED for each of its members, and their list.

Each member's directory is a whole run, which every command takes as any other.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from jaxrl.config.diff import differences
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.formatting import fault, shell_word
from jaxrl.runs import layout
from jaxrl.runs.directory import check_new_run, create_run
from jaxrl.runs.files import replace_text


def configs_of(config: Config, seeds: Sequence[int], root: Path) -> tuple[Config, ...]:
    """Returns the configuration of each member, in the population's directory `root`.

    That of all members has the default seed. Raises `UserError` where they cannot train together.
    """
    if len(seeds) < 2:
        raise UserError(f"--seeds {' '.join(map(str, seeds))}: must be two or more: one seed is "
                        "--seed")  # fmt: skip
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise UserError(f"--seeds: {seed} must be at least 0 and below 2147483648")
        if seeds.count(seed) > 1:
            raise UserError(f"--seeds: {seed} is there twice: name each seed once")
    if config.seed != Config().seed:
        raise UserError(f"seed = {config.seed}: --seeds names the seeds; leave --seed out")
    if config.parallel.sync_every:
        raise UserError(
            "parallel.sync_every: the runs of --seeds have one learner each; leave it at 0"
        )
    if config.parallel.groups > 1:
        raise UserError("parallel.groups: the runs of --seeds play in one group; leave it at 1")
    config = config.with_time_limit()
    return tuple(config.replaced(seed=seed, run_dir=str(root / f"seed{seed}")) for seed in seeds)


def check_alike(configs: Sequence[Config]) -> None:
    """Refuses members of other settings, as of one that was resumed alone. Raises `UserError`."""
    keys = {key for differing in differences(list(configs)) for key in differing}
    keys -= {"seed", "run_dir"}
    if keys:
        raise UserError(
            f"the runs of the seeds differ in {', '.join(sorted(keys))}: resume each by its own "
            "directory"
        )


def check_processes(count: int) -> None:
    """Refuses several processes. Raises `UserError`."""
    if count > 1:
        raise UserError(
            f"--seeds: {count} processes train together, and a population trains in one: give each "
            "seed processes of its own"
        )


def check_new(root: Path, configs: Sequence[Config]) -> None:
    """Refuses a directory that holds more than members that never trained. Raises `UserError`."""
    names = {layout.POPULATION, *(Path(config.run_dir).name for config in configs)}
    again = f", or `jaxrl resume {shell_word(root)}`" if is_population(root) else ""
    try:
        if root.exists() and not (
            root.is_dir()
            and {path.name for path in root.iterdir() if path.suffix != ".tmp"} <= names
        ):
            raise UserError(f"'{root}' exists: choose another --run-dir{again}")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the run directory '{root}': {error}") from None
    for config in configs:
        try:
            check_new_run(config)
        except UserError as error:
            raise UserError(
                f"{str(error).partition(':')[0]}: choose another --run-dir{again}"
            ) from None


def create(root: Path, configs: Sequence[Config], locks: contextlib.ExitStack) -> None:
    """Makes the run directories of all members, locks them until `locks` closes, and lists them."""
    check_new(root, configs)
    for config in configs:
        create_run(config, locks)
    listed = json.dumps({"seeds": [config.seed for config in configs]}) + "\n"
    replace_text(root / layout.POPULATION, listed)


def is_population(root: Path) -> bool:
    """Returns whether a directory is a population's."""
    try:
        return (root / layout.POPULATION).is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def seeds(root: Path) -> list[int]:
    """Returns the seeds of a population, in their order. Raises `UserError`."""
    path = root / layout.POPULATION
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))["seeds"]
        if isinstance(numbers, list) and numbers and all(type(seed) is int for seed in numbers):
            return numbers
        raise ValueError("'seeds' is not a list of whole numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"cannot read '{path}': {fault(error)}") from None


def run_dirs(path: Path) -> tuple[Path, ...]:
    """Returns the run directories of a population, or the path itself where it is none."""
    if not is_population(path) or (path / layout.CONFIG).exists():
        return (path,)
    return tuple(path / f"seed{seed}" for seed in seeds(path))
