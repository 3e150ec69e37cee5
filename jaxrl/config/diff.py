"""Differences between configurations, by dotted key."""

import dataclasses
from typing import Any

from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml


def settings(config: Config) -> str:
    """Returns all settings but the directory as TOML: equal for processes of the same run."""
    return to_toml(dataclasses.replace(config, run_dir=""))


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of a nested table by dotted keys: optimizer.learning_rate."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and len(prefix) < 200:  # a hostile file's may be endless
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def differences(configs: list[Config]) -> list[dict[str, Any]]:
    """Returns for each configuration the settings, by key, in which they differ."""
    tables = [flat(dataclasses.asdict(config)) for config in configs]
    values_of: dict[str, set[Any]] = {}
    for table in tables:
        for key, value in table.items():
            values_of.setdefault(key, set()).add(value)
    varying = [key for key, values in values_of.items() if len(values) > 1]
    return [{key: table[key] for key in varying if key in table} for table in tables]


def changes(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Returns the values that differ between two nested tables, key by key, for a message."""
    before, now = flat(there), flat(here)
    return [
        f"{key} = {before.get(key)!r} there and {now.get(key)!r} here"
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]
