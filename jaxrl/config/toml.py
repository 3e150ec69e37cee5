"""Configurations as TOML: read, merged with the defaults, and written."""

import dataclasses
import difflib
import json
import tomllib
import typing
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from jaxrl.atari.games import game_name, known_games
from jaxrl.config import bounds
from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.config.algorithms import SHIPPED, algorithm_config, is_algorithm, shipped
from jaxrl.config.schema import SECTIONS, Config
from jaxrl.errors import UserError, nearest
from jaxrl.formatting import listed

# Configurations: the working directory's, then the package's. In a checkout jaxrl/configs is a
# link to configs/; in a wheel it holds the files.
FOLDERS = (Path("configs"), Path(__file__).parents[1] / "configs")


# Keys that stood elsewhere before the configuration had its sections.
MOVED = {
    "engine": "env.interface",
    "log_interval": "log.interval",
    "checkpoint_interval": "checkpoint.interval",
    "keep_checkpoints": "checkpoint.keep",
    "checkpoint_failures": "checkpoint.max_failures",
    "checkpoint_memory": "checkpoint.memory",
    "evaluation_episodes": "evaluation.episodes",
    "on_nonfinite": "optimizer.on_nonfinite",
}


# Names in other libraries.
ALIASES = {
    "lr": "learning_rate",
    "timesteps": "total_steps",
    "total_timesteps": "total_steps",
    "env": "game",
    "env_id": "game",
    "n_envs": "num_envs",
    "n_steps": "rollout_length",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
}
MULTIPLES = {"k": "e3", "m": "e6", "g": "e9", "b": "e9"}  # 1M is no number of TOML or Python
SLIP = 0.75  # least similarity of a name that was only mistyped, from 0 to 1


def _types(kind: type) -> dict[str, Any]:
    """Returns the types of a dataclass's fields, without their bounds."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def algorithms_with(key: str) -> list[str]:
    """Returns the algorithms that have a key of this name under [agent]."""
    return [name for name, kind in shipped().items() if key in _types(kind)]


def elsewhere(key: str, prefix: str) -> str:
    """Returns where a key belongs that a section does not have, for messages; empty if nowhere."""
    key = key.replace("-", "_")
    alias, key = key in ALIASES, ALIASES.get(key, key)
    if prefix == "agent." and not alias and algorithms_with(key):
        return f"it belongs to {listed(algorithms_with(key))}"
    if prefix:
        return ""
    sections = {name: _types(kind) for name, kind in SECTIONS.items()}
    path = next((f"{name}.{key}" for name, keys in sections.items() if key in keys), "")
    if alias and path:
        return f"did you mean '{path}'?"
    if key in MOVED:
        return f"it is '{MOVED[key]}' now"
    return f"it belongs in [{path.partition('.')[0]}], as '{path}'" if path else ""


def similar(name: str, known: Iterable[str]) -> str:
    """Returns the known key that a mistaken name means; empty if none is like it.

    A mistyped key comes first, then one that begins alike or has a word in common.
    """
    known = list(known)
    name = name.replace("-", "_")
    name = ALIASES.get(name, name)
    parts = set(name.split("_")) - {""}
    alike = [key for key in known if parts and (key.startswith(name) or parts & {*key.split("_")})]
    mistyped = difflib.get_close_matches(name, known, 1, SLIP)
    near = mistyped or difflib.get_close_matches(name, alike, 1, 0.0) or nearest(name, known, 1)
    return near[0] if near else ""


def _hint(key: str, prefix: str, known: dict[str, Any]) -> str:
    """Returns a remedy for a key that a section does not have."""
    if belongs := elsewhere(key, prefix):
        return f"{belongs}; known are {', '.join(known)}" if prefix else belongs
    near = similar(key, known)
    return f"did you mean '{prefix}{near}'?" if near else f"known are {', '.join(known)}"


def whole_number_hint(text: str) -> str:
    """Returns how to write `1M` as a number, for messages; empty for anything else."""
    power = MULTIPLES.get(text[-1:].lower(), "")
    digits = text[:-1].replace("_", "").replace(".", "", 1)
    return f": write {text[:-1]}{power}" if power and digits.isdecimal() else ""


def _convert(value: Any, annotation: Any, name: str) -> Any:
    value = bounds.convert(value, annotation)
    if not bounds.is_of_type(value, annotation):
        hint = whole_number_hint(value) if annotation is int and isinstance(value, str) else ""
        raise UserError(f"{name} = {value!r}: must be {bounds.type_name(annotation)}{hint}")
    return value


def merge(default: Any, table: dict[str, Any], prefix: str = "") -> Any:
    """Returns a configuration, or a section, with the values of a table. Raises `UserError`.

    A section's value is a table too, or a whole section.
    """
    annotations = _types(type(default))
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in annotations:
            hint = _hint(str(key), prefix, annotations)
            raise UserError(f"unknown key '{prefix}{key}': {hint}")
        current = getattr(default, key)
        if dataclasses.is_dataclass(current):
            if isinstance(value, type(current)):
                value = dataclasses.asdict(typing.cast(Any, value))
            if not isinstance(value, dict):
                raise UserError(f"{prefix}{key} = {value!r}: must be a table, [{key}]")
            changes[key] = merge(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, annotations[key], f"{prefix}{key}")
            if annotations[key] is str:
                limits = bounds.field_bounds(type(default), key)
                bounds.check_name(f"{prefix}{key}", changes[key], limits)
    return dataclasses.replace(default, **changes)


def from_table(table: dict[str, Any]) -> Config:
    """Returns the defaults of the table's algorithm with the table's values. Raises `UserError`."""
    algorithm = table.get("algorithm", "a2c")
    if not isinstance(algorithm, str):
        raise UserError(f"algorithm = {algorithm!r}: must be one of {', '.join(SHIPPED)}")
    return merge(Config(agent=settings_of(algorithm)()), table)


def settings_of(algorithm: str) -> type[AlgorithmConfig]:
    """Returns the dataclass of an algorithm's settings.

    Raises `UserError` for an unknown name; that of a configuration is said to be one.
    """
    if not is_algorithm(algorithm) and algorithm in stems():
        raise UserError(f"algorithm = {algorithm!r}: is a configuration, which has its algorithm: "
                        f"give it by --config {algorithm}")  # fmt: skip
    return algorithm_config(algorithm)


def mark_recipe(config: Config) -> Config:
    """Returns the configuration with `recipe_envs` set, for a later change of `num_envs`."""
    envs = config.optimizer.recipe_envs or config.num_envs
    optimizer = dataclasses.replace(config.optimizer, recipe_envs=envs)
    return dataclasses.replace(config, optimizer=optimizer)


def _files(folder: Path) -> list[Path]:
    """Returns the configurations of a folder: those of its subfolders, then those beside them."""
    return [*sorted(folder.glob("*/*.toml")), *sorted(folder.glob("*.toml"))]


def stems() -> dict[str, Path]:
    """Returns the configurations by stem; of the same stem the first folder's."""
    files = [file for folder in reversed(FOLDERS) for file in _files(folder)]
    return {file.stem: file for file in files}


def find(path: Path) -> Path:
    """Returns the path, or for a bare stem (`ppo_pong`) the file of configs/ that has it."""
    # A directory may be called like a stem, as configs/ppo is of its parent.
    if path.suffix or len(path.parts) > 1 or path.is_file():
        return path
    files = (file for folder in FOLDERS for file in _files(folder))
    return next((file for file in files if file.stem == path.name), path)


def _file_hint(path: Path) -> str:
    """Returns a remedy for a configuration that is not there.

    A bare word is answered by a stem, which is the same in a checkout and of an installed package.
    """
    bare = not path.suffix and len(path.parts) == 1
    if bare and (game := game_name(path.name)) in known_games():
        return (
            f"'{game}' is a game: give it by --game {game}, in Python by game=\"{game}\", and a "
            "configuration such as ppo_pong"
        )
    beside = _files(path.parent)
    files = [*beside, *(file for folder in FOLDERS for file in _files(folder))]
    near = nearest(path.stem, dict.fromkeys(file.stem for file in files), 1)
    if not near:
        return "give a file, or the stem of one in configs/"
    meant = next(file for file in files if file.stem == near[0])
    has_stem = find(Path(meant.stem)) == meant and (bare or meant not in beside)
    return f"did you mean '{meant.stem if has_stem else meant}'?"


def load(path: Path) -> Config:
    """Reads a TOML file, by path or stem. Raises `UserError` with the file's name."""
    bounds.check_local(path)
    try:
        return from_table(tomllib.loads(find(path).read_text(encoding="utf-8")))
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"no configuration file '{path}': {_file_hint(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"'{path}' is not valid TOML ({error}): correct it there, or restore a copy"
        ) from None
    except (ValueError, RecursionError, UserError) as error:  # a wrong path or wrong values
        raise UserError(f"'{path}': {error}") from None


def load_recipe(path: Path) -> Config:
    """Reads a TOML file to change and train from, by path or stem. Raises `UserError`."""
    return mark_recipe(load(path))


def to_toml(config: Config, without: Collection[str] = ()) -> str:
    """Returns every key with its value; `load` of it gives the same configuration.

    `without` names keys at the top to leave out.
    """
    # A JSON scalar of these types is a TOML scalar.
    values = {k: v for k, v in dataclasses.asdict(config).items() if k not in without}
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{section}]"] + [f"{k} = {json.dumps(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
