"""Settings that vary among runs: their keys, the values to try, and names for the combinations."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jaxrl.config.diff import flat
from jaxrl.config.overrides import hint, parse_value, value_of, with_value
from jaxrl.config.schema import Config
from jaxrl.errors import UserError

Settings = dict[str, Any]  # values by dotted key
UNSAFE = re.compile(r"[^\w.+-]")  # in names of files


def check_key(config: Config, key: str, where: str, elsewhere: dict[str, str]) -> None:
    """Refuses a dotted key that the configuration does not have, or that is given otherwise.

    `elsewhere` has keys that may not vary, each with the way to give it. Raises `UserError`, which
    begins with `where` the user wrote the key.
    """
    if key in elsewhere:
        raise UserError(f"{where}: {key} cannot vary here: {elsewhere[key]}")
    known = [path for path in flat(dataclasses.asdict(config)) if path not in elsewhere]
    if key not in known:
        raise UserError(f"{where}: unknown key '{key}': {hint(key, known)}")


def read(assignments: Iterable[str]) -> dict[str, list[Any]]:
    """Returns the values of `optimizer.learning_rate=3e-4,1e-3` and the like, by key.

    Raises `UserError` for an assignment without values, and for a key that is set twice.
    """
    values_of: dict[str, list[Any]] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key, values = key.strip().replace("-", "_"), text.split(",")
        if not equals or not key:
            raise UserError(f"--set {assignment}: must be KEY=VALUE,VALUE, as num_envs=16,32")
        if not all(value.strip() for value in values):
            raise UserError(f"--set {assignment}: a value is empty: give {key}=VALUE,VALUE")
        if key in values_of:
            raise UserError(f"--set {key} is given twice: name each key once, with all its values")
        values_of[key] = [parse_value(value) for value in values]
    return values_of


def combinations(
    config: Config, varied: dict[str, list[Any]], elsewhere: dict[str, str]
) -> list[Settings]:
    """Returns the product of all values, the last key varying fastest.

    Without keys it is one empty combination. Values have their keys' types. Raises `UserError` for
    an unknown key or a value of another type.
    """
    lists = []
    for key, values in varied.items():
        check_key(config, key, f"--set {key}", elsewhere)
        lists.append([value_of(with_value(config, key, value), key) for value in values])
    return [dict(zip(varied, values, strict=True)) for values in itertools.product(*lists)]


def with_settings(config: Config, settings: Settings) -> Config:
    """Returns the configuration with these values. Raises `UserError` if a type is another."""
    for key, value in settings.items():
        config = with_value(config, key, value)
    return config


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Returns a short name of each dotted key: its last part, where no other key has the same."""
    last = [key.rpartition(".")[2] for key in keys]
    return {
        key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)
    }


def shown(value: Any) -> str:
    """Returns a value as TOML has it, but for quotes and needless digits."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def label(settings: Settings) -> str:
    """Returns a name of these values for files and tables: learning_rate=0.0003-torso=nips."""
    names = short_names(list(settings))
    parts = [f"{names[key]}={UNSAFE.sub('_', shown(value))}" for key, value in settings.items()]
    return "-".join(parts)
