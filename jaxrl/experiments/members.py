"""A plan of runs: the configuration and the directory of each member, and how far it is.

JAX is imported only where metrics are read, because a mistake must be reported at once.
"""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxrl.config import variations
from jaxrl.config.diff import changes, flat
from jaxrl.config.overrides import FREE
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table, to_toml
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, layout
from jaxrl.runs.directory import check_new_run, load_config
from jaxrl.runs.files import replace_text

State = Literal["new", "begun", "done"]


@dataclass(frozen=True)
class Member:
    """One run of a sweep or a search."""

    file: Path  # TOML of the user: the configuration's, or the study's
    config: Config  # with its game, seed and run directory
    settings: tuple[tuple[str, Any], ...] = ()  # keys that vary, with this member's values

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return Path(self.config.run_dir)

    @property
    def name(self) -> str:
        """LABEL-GAME-seedSEED."""
        return self.run_dir.name

    @property
    def label(self) -> str:
        """The part of the name that all games and seeds share."""
        return self.name.removesuffix(f"-{self.config.game}-seed{self.config.seed}")

    @property
    def log(self) -> Path:
        """The output of its processes."""
        return self.run_dir.with_name(f"{self.name}.log")

    @property
    def recipe(self) -> Path:
        """The copy of its configuration, made when the sweep or the trial began."""
        return self.run_dir.with_name(f"{self.label}.toml")

    def recipe_text(self) -> str:
        """Returns the contents of `recipe`: the file, or all keys where some of them vary."""
        if not self.settings:
            return self.file.read_text(encoding="utf-8")
        varied = ", ".join(f"{key} = {variations.shown(value)}" for key, value in self.settings)
        unshared = ("game", "seed", "run_dir")  # the command of each member has them
        return f"# {self.file} with {varied}\n{to_toml(self.config, without=unshared)}"

    @property
    def total_steps(self) -> int:
        """Agent steps of the whole run, which ends with a whole update."""
        return resolve(self.config).total_steps


# --- progress -------------------------------------------------------------------------------------


def last_row(run_dir: Path) -> dict[str, Any]:
    """Returns the last line of a run's metrics; empty where none can be read."""
    from jaxrl.runs import metrics

    if not (run_dir / layout.METRICS).is_file():
        return {}
    try:
        return (metrics.read(run_dir) or [{}])[-1]
    except UserError:
        return {}  # `jaxrl resume` reports the fault


def state(member: Member) -> State:
    """Returns whether something is left to train, evaluate or draw, as `jaxrl resume` sees it."""
    from jaxrl.runs import evaluation_record

    run_dir, total = member.run_dir, member.total_steps
    if not (run_dir / layout.CONFIG).is_file():
        return "new"
    saved = checkpoint_files.steps(run_dir)  # may have been removed since, to make room
    trained = last_row(run_dir).get("step", 0) >= total and (not saved or saved[-1] >= total)
    evaluated = not member.config.evaluation.episodes or evaluation_record.is_of_end(run_dir, total)
    return (
        "done" if trained and evaluated and (run_dir / layout.LEARNING_CURVE).is_file() else "begun"
    )


# --- files ----------------------------------------------------------------------------------------


def check_directory(member: Member) -> None:
    """Refuses a directory that holds something other than this member. Raises `UserError`."""
    run_dir, config = member.run_dir, member.config
    try:
        if not (run_dir / layout.CONFIG).is_file():
            check_new_run(config)
            return
    except (OSError, ValueError, UserError) as error:
        reason = f"{error}" if isinstance(error, OSError | ValueError) else "it holds no run"
        raise UserError(f"cannot train in '{run_dir}' ({reason}): choose another --root") from None
    begun = load_config(run_dir)
    # Training writes down how many learners there are.
    if config.parallel.sync_every and not config.parallel.num_learners:
        begun = begun.replaced(parallel={"num_learners": 0})
    if differing := changes(_values(begun), _values(config)):
        raise UserError(
            f"'{run_dir}' was begun with another configuration ({'; '.join(differing)}): choose "
            "another --root, or ask for what was begun"
        )


def _values(config: Config) -> dict[str, Any]:
    """Returns the values by their dotted keys, without those that say where it trains."""
    values = flat(dataclasses.asdict(config.with_time_limit()))  # a run has written it down
    return {key: value for key, value in values.items() if key not in FREE}


def copy_recipes(members: list[Member]) -> None:
    """Copies each configuration, for members that begin hours later. Raises `UserError`."""
    for recipe, member in {member.recipe: member for member in members}.items():
        try:
            text = member.recipe_text()
            if recipe.exists() and not _equal(recipe.read_text(encoding="utf-8"), text):
                raise UserError(f"'{recipe}' is there and differs from '{member.file}': choose "
                                "another --root")  # fmt: skip
            replace_text(recipe, text)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot copy '{member.file}' to '{recipe}': {error}") from None


def _equal(first: str, second: str) -> bool:
    """Returns whether two recipes have the same values; an older version's has fewer keys."""
    if first == second:
        return True
    try:
        return from_table(tomllib.loads(first)) == from_table(tomllib.loads(second))
    except UserError:  # a key that has gone
        return False
