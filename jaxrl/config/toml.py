"""Configurations as TOML: read, merged with the defaults, and written."""

import dataclasses
import json
import tomllib
import typing
from pathlib import Path
from typing import Any, Literal

from jaxrl.config.algorithms import ALGORITHMS
from jaxrl.config.schema import Config
from jaxrl.errors import UserError, nearest

# jaxrl's own configurations: of the working directory, or of the checkout that is installed.
FOLDERS = (Path("configs"), Path(__file__).parents[2] / "configs")


def algorithms_with(key: str) -> list[str]:
    """The algorithms that have a key of this name under [agent]."""
    return [name for name, kind in ALGORITHMS.items() if key in typing.get_type_hints(kind)]


def _type_name(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[
        annotation
    ]


def _convert(value: Any, annotation: Any, name: str) -> Any:
    if typing.get_origin(annotation) is Literal:
        right = value in typing.get_args(annotation) and isinstance(value, str)
    elif annotation is float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if right else value
    else:
        right = type(value) is annotation
    if not right:
        raise UserError(f"{name} = {value!r}: must be {_type_name(annotation)}")
    return value


def merge(default: Any, table: dict[str, Any], prefix: str = "") -> Any:
    """A configuration, or a part of one, overridden by a table. Raises `UserError`."""
    annotations = typing.get_type_hints(type(default))
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in annotations:
            near = nearest(key, annotations, 1)
            hint = f"known are {', '.join(annotations)}"
            if prefix == "agent." and algorithms_with(key):
                hint = f"it belongs to {' and '.join(algorithms_with(key))}; {hint}"
            elif near:
                hint = f"did you mean '{prefix}{near[0]}'?"
            raise UserError(f"unknown key '{prefix}{key}': {hint}")
        current = getattr(default, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise UserError(f"{prefix}{key} = {value!r}: must be a table, [{key}]")
            changes[key] = merge(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, annotations[key], f"{prefix}{key}")
    return dataclasses.replace(default, **changes)


def from_table(table: dict[str, Any]) -> Config:
    """The defaults of the table's algorithm, overridden by the table. Raises `UserError`."""
    algorithm = table.get("algorithm", "a2c")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise UserError(f"algorithm = {algorithm!r}: must be one of {', '.join(ALGORITHMS)}")
    return merge(Config(agent=ALGORITHMS[algorithm]()), table)


def as_recipe(config: Config) -> Config:
    """The same, whose learning rate stays that of its environments when they are changed."""
    envs = config.optimizer.recipe_envs or config.num_envs
    optimizer = dataclasses.replace(config.optimizer, recipe_envs=envs)
    return dataclasses.replace(config, optimizer=optimizer)


def find(path: Path) -> Path:
    """Returns the file that is meant: the path itself, or jaxrl's own of this stem (`ppo_pong`)."""
    if path.suffix or len(path.parts) > 1 or path.exists():
        return path
    own = [file for folder in FOLDERS for file in sorted(folder.glob(f"*/{path.name}.toml"))]
    return own[0] if own else path


def load(path: Path) -> Config:
    """Reads a TOML file, or jaxrl's own of this stem. Raises `UserError` with the file's name."""
    try:
        return from_table(tomllib.loads(find(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        folders = (path.parent, *FOLDERS)
        files = [
            file
            for folder in folders
            for file in (*folder.glob("*.toml"), *folder.glob("*/*.toml"))
        ]
        near = nearest(path.stem, dict.fromkeys(file.stem for file in files), 1)
        meant = next((file for file in files if near and file.stem == near[0]), None)
        hint = f"did you mean '{meant}'?" if meant else "configs/ holds jaxrl's"
        raise UserError(f"no configuration file '{path}': {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
    except (ValueError, RecursionError, UserError) as error:  # of TOML, of UTF-8, of a path
        raise UserError(f"'{path}': {error}") from None


def to_toml(config: Config) -> str:
    """Every key with its value; `load` of it gives the same configuration."""
    # A JSON scalar of these types is a TOML scalar.
    values = dataclasses.asdict(config)
    lines = [f"{k} = {json.dumps(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{section}]"] + [f"{k} = {json.dumps(v)}" for k, v in table.items()]
    return "\n".join(lines) + "\n"
