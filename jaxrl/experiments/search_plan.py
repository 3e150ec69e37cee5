"""A study of hyperparameters, read from its TOML file: the recipe, the spaces, the budget.

Imports neither JAX nor Optuna, because a mistake must be reported at once.
"""

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxrl.atari.games import game_name, known_games
from jaxrl.config import bounds, variations
from jaxrl.config.bounds import Count, CountOrZero, LongCountOrZero
from jaxrl.config.diff import flat
from jaxrl.config.overrides import value_of, with_value
from jaxrl.config.schema import Config
from jaxrl.config.toml import find, load_recipe, merge, to_toml
from jaxrl.config.validation import check, check_game
from jaxrl.errors import UserError, nearest
from jaxrl.experiments.members import Member

LINES = 50  # lines of metrics.jsonl in each run, at least: pruning and objective read the curve
# Keys that neither [search] nor [set] may have, with what gives them.
SET_ABOVE = {
    "game": "give game at the top of the file",
    "seed": "give seeds at the top of the file",
    "total_steps": "give total_steps at the top of the file",
    "run_dir": "give --root",
    "algorithm": "give config at the top of the file",
}


@dataclass(frozen=True)
class Options:
    """The keys at the top of a study's file, except `seeds`."""

    config: str = ""
    """the recipe to improve: a TOML file, or the stem of one in configs/"""
    game: str = ""
    """the game to train on"""
    total_steps: LongCountOrZero = 0
    """agent steps of each run; 0 takes the recipe's"""
    trials: Count = 20
    """trials of the whole study; the recipe itself is the first"""
    objective: Literal["return", "evaluation"] = "return"
    """the mean return of the last tenth of training, or the mean score of the evaluation"""
    direction: Literal["maximize", "minimize"] = "maximize"
    """which objective is better"""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """which learning curves are stopped early"""
    sampler_seed: CountOrZero = 0
    """seed of the search, not of training"""


class Choices(NamedTuple):
    """A space of listed values."""

    values: tuple[Any, ...]

    def contains(self, value: Any) -> bool:
        """Returns whether the space has this value."""
        return value in self.values

    def to_json(self) -> Any:
        """Returns the space as a study's file has it."""
        return list(self.values)


class Range(NamedTuple):
    """A space of numbers from `low` to `high`, both included."""

    low: float
    high: float
    step: float | None  # between the numbers; None for all numbers
    log: bool

    @property
    def whole(self) -> bool:
        """Returns whether the numbers are whole."""
        return isinstance(self.low, int)

    def contains(self, value: Any) -> bool:
        """Returns whether the space has this value."""
        steps = (value - self.low) / self.step if self.step else 0.0
        return self.low <= value <= self.high and math.isclose(steps, round(steps), abs_tol=1e-9)

    def to_json(self) -> Any:
        """Returns the space as a study's file has it."""
        step = {"step": self.step} if self.step else {}
        return {"low": self.low, "high": self.high} | step | ({"log": True} if self.log else {})


Space = Choices | Range


@dataclass(frozen=True)
class StudyPlan:
    """A study: which runs it makes, and how they are judged."""

    file: Path
    options: Options
    seeds: tuple[int, ...]  # each trial trains with all; its value is their mean
    base: Config  # the recipe, on the study's game and for its steps
    spaces: dict[str, Space]  # by dotted key

    def base_settings(self) -> variations.Settings:
        """Returns the recipe's values of the keys that are searched."""
        return {key: value_of(self.base, key) for key in self.spaces}

    def members(self, number: int, settings: variations.Settings, root: Path) -> list[Member]:
        """Returns the runs of a trial, one for each seed. Raises `UserError` if none can train."""
        recipe = self.recipe(settings)
        interval = min(recipe.log.interval, max(1, recipe.total_steps // LINES))
        members = []
        for seed in self.seeds:
            run_dir = str(root / f"{trial_name(number)}-{recipe.game}-seed{seed}")
            config = recipe.replaced(seed=seed, run_dir=run_dir, log={"interval": interval})
            check(config)
            members.append(Member(self.file, config, tuple(settings.items())))
        return members

    def recipe(self, settings: variations.Settings) -> Config:
        """Returns a trial's configuration for training it again."""
        return variations.with_settings(self.base, settings)

    def to_json(self) -> dict[str, Any]:
        """Returns what may not change during a study: everything but the number of trials."""
        options = dataclasses.asdict(self.options)
        for key in ("trials", "config"):
            del options[key]
        spaces = {key: space.to_json() for key, space in self.spaces.items()}
        return options | {
            "total_steps": self.base.total_steps,
            "seeds": list(self.seeds),
            "search": spaces,
            "base": tomllib.loads(to_toml(self.base, without=("game", "seed", "run_dir"))),
        }


def trial_name(number: int) -> str:
    """Returns the part of a trial's name that all its seeds share; names sort as numbers do."""
    return f"trial-{number:03}"


# --- reading a file -------------------------------------------------------------------------------


def load(file: Path) -> StudyPlan:
    """Reads a study's TOML file. Raises `UserError` with the file's name."""
    try:
        return _study(file, tomllib.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"no study file '{file}': give the path of a TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{file}': {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"'{file}' is not valid TOML ({error}): correct it there") from None
    except (ValueError, RecursionError, UserError) as error:
        raise UserError(f"'{file}': {error}") from None


def _study(file: Path, table: dict[str, Any]) -> StudyPlan:
    """Returns the study that a file's table describes. Raises `UserError`."""
    tables = {name: table.pop(name, {}) for name in ("set", "search")}
    for name, value in tables.items():
        if not isinstance(value, dict):
            raise UserError(f"{name} = {value!r}: must be a table, [{name}]")
    seeds = _seeds(table.pop("seeds", [1]))
    options = _options(table)
    for name in ("config", "game"):
        if not getattr(options, name):
            raise UserError(f"{name} is missing: a study needs config, game and a table [search]")
    check_game(game_name(options.game), known_games())
    base = _base(file, options, tables["set"])
    if options.objective == "evaluation" and not base.evaluation.episodes:
        raise UserError("objective = 'evaluation': evaluation.episodes = 0 leaves evaluations out: "
                        "take 30, or the objective 'return'")  # fmt: skip
    tables_by_key = _flat_spaces(tables["search"])
    if not tables_by_key:
        raise UserError("[search] is empty: give at least one key with its values")
    spaces = {key: _space(base, key, value) for key, value in tables_by_key.items()}
    check(dataclasses.replace(base, seed=seeds[0]))
    return StudyPlan(file, options, seeds, base, spaces)


def _options(table: dict[str, Any]) -> Options:
    """Returns the keys at the top. Raises `UserError`."""
    for key in table:
        near = nearest(key, ("seeds", "set", "search"), 1)
        if near and key not in {field.name for field in dataclasses.fields(Options)}:
            raise UserError(f"unknown key '{key}': did you mean '{near[0]}'?")
    options = merge(Options(), table)
    bounds.check(options)
    return options


def _seeds(value: Any) -> tuple[int, ...]:
    """Returns the seeds of each trial. Raises `UserError`."""
    if not isinstance(value, list) or not value or any(type(seed) is not int for seed in value):
        raise UserError(f"seeds = {value!r}: must be a list of whole numbers, as [1, 2]")
    if len(set(value)) < len(value) or min(value) < 0:
        raise UserError(f"seeds = {value!r}: must be different numbers of at least 0")
    return tuple(value)


def _base(file: Path, options: Options, changes: dict[str, Any]) -> Config:
    """Returns the recipe with the study's game and steps, and the changes of [set]."""
    beside = file.parent / options.config  # a path is relative to the file, or to here
    config = load_recipe(beside if beside.is_file() else find(Path(options.config)))
    config = config.replaced(game=options.game)
    config = config.replaced(total_steps=options.total_steps or config.total_steps)
    for key, value in flat(changes).items():
        key = key.replace("-", "_")
        variations.check_key(config, key, "[set]", SET_ABOVE)
        config = with_value(config, key, value)
    return config


def _flat_spaces(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the spaces by dotted keys, which may be written with quotes or without."""
    spaces: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, dict) and not {"low", "high"} & {*value} and value:
            spaces |= _flat_spaces(value, f"{name}.")
        else:
            spaces[name] = value
    return spaces


def _space(base: Config, key: str, value: Any) -> Space:
    """Returns the space of a key. Raises `UserError` if the key cannot have all its values."""
    variations.check_key(base, key, "[search]", SET_ABOVE)
    space: Space
    ends: tuple[Any, ...]
    if isinstance(value, list) and value:
        ends = _choices(base, key, value)
        space = Choices(ends)
    elif isinstance(value, dict):
        space = _range(base, key, value)
        ends = (space.low, space.high)
    else:
        raise UserError(f"[search] {key} = {value!r}: must be a list of values, or "
                        "{ low = ..., high = ... }")  # fmt: skip
    for end in ends:
        bounds.check(with_value(base, key, end))
    return space


def _choices(base: Config, key: str, values: list[Any]) -> tuple[Any, ...]:
    choices = tuple(value_of(with_value(base, key, value), key) for value in values)
    if len(set(choices)) < len(choices):
        raise UserError(f"[search] {key} = {values!r}: a value is there twice")
    return choices


def _range(base: Config, key: str, table: dict[str, Any]) -> Range:
    where, kind = f"[search] {key}", type(value_of(base, key))
    if kind not in (int, float):
        raise UserError(f"{where}: is not a number: give a list of values")
    if unknown := [name for name in table if name not in ("low", "high", "step", "log")]:
        raise UserError(f"{where}: unknown key '{unknown[0]}': known are low, high, step, log")
    if missing := [name for name in ("low", "high") if name not in table]:
        raise UserError(f"{where}: {missing[0]} is missing")
    low, high = (value_of(with_value(base, key, table[name]), key) for name in ("low", "high"))
    step, log = table.get("step"), table.get("log", False)
    if not low < high < math.inf:
        raise UserError(f"{where}: low = {low} must be below high = {high}, a finite number")
    if type(log) is not bool:
        raise UserError(f"{where}: log = {log!r}: must be true or false")
    if log and (low <= 0 or step is not None):
        raise UserError(f"{where}: log needs a low above 0, and takes no step")
    if step is None:
        return Range(low, high, None, log)
    if type(step) not in (int, kind) or not 0 < step <= high - low:
        size = "whole number" if kind is int else "number"
        raise UserError(f"{where}: step = {step!r}: must be a {size} above 0 and at most "
                        f"{variations.shown(high - low)}, high - low")  # fmt: skip
    steps = math.floor((high - low) / step + 1e-9)
    return Range(low, low + steps * step, step, log)
