"""Differences between configurations, by dotted key."""

import dataclasses
from typing import Any

from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml


def settings(config: Config) -> str:
    """All but the directory, as lines of TOML: alike for two that train the same run."""
    return to_toml(dataclasses.replace(config, run_dir=""))


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
