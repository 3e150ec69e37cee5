"""Overrides of a resumed run: its checkpoint's configuration holds, except for named keys."""

import dataclasses
import tomllib
from collections.abc import Iterable
from typing import Any

from jaxrl.config.diff import flat
from jaxrl.config.schema import Config
from jaxrl.config.toml import elsewhere, from_table, merge, similar
from jaxrl.errors import UserError, nearest

FREE = ("run_dir", "parallel.num_devices")  # the place of training, not its result
# Settings that count a checkpoint's steps, or shape its games or parameters.
FIXED = (
    "algorithm",
    "game",
    "seed",
    "num_envs",
    "parallel.groups",
    "parallel.sync_every",
    "parallel.num_learners",
    "parallel.lag",
    "env.full_action_space",
    "env.frame_height",
    "env.frame_width",
    "env.frame_skip",
    "env.stack",
    "env.grayscale",
    "agent.rollout_length",
    "agent.priority_exponent",
    "network",
)


def _flat(config: Config) -> dict[str, Any]:
    """Returns the values by dotted keys, without those that may change freely."""
    values = flat(dataclasses.asdict(config))
    return {key: value for key, value in values.items() if key not in FREE}


def _key(word: str) -> str:
    return word.partition("=")[0].strip().replace("-", "_")


def hint(key: str, known: Iterable[str]) -> str:
    """Returns a remedy for a dotted key that is not among the known ones."""
    before, dot, name = key.rpartition(".")
    if belongs := elsewhere(name, before + dot):
        return belongs
    section = before + dot
    siblings = [path.removeprefix(section) for path in known if path.startswith(section)]
    sibling = similar(name, siblings)
    near = section + sibling if sibling else "".join(nearest(key, known, 1))
    return f"did you mean '{near}'?" if near else "it is no key that may change"


def parse_value(text: str) -> Any:
    """Returns a word of a command line as TOML reads it; a string where it is not valid TOML."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def value_of(config: Config, key: str) -> Any:
    """Returns the value of a dotted key."""
    section, _, name = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def with_value(config: Config, key: str, value: Any) -> Config:
    """Returns the configuration with another value of a dotted key, which it must have.

    Raises `UserError` if the value is not of the key's type.
    """
    section, _, name = key.rpartition(".")
    return merge(config, {section: {name: value}} if section else {name: value})


def apply(config: Config, assignments: tuple[str, ...]) -> Config:
    """Returns the configuration with the values of `optimizer.learning_rate=1e-4` and the like."""
    known = _flat(config)
    for assignment in assignments:
        key, equals, text = _key(assignment), *assignment.partition("=")[1:]
        if key not in known:
            free = key.rpartition(".")[2] == "num_devices"  # which is free to change
            remedy = "give --num-devices instead" if free else hint(key, known)
            raise UserError(f"--override {assignment}: unknown key '{key}': {remedy}")
        if equals:
            config = with_value(config, key, parse_value(text))
    return config


def check(
    saved: dict[str, Any],
    config: Config,
    overrides: tuple[str, ...],
    recorded: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Refuses a configuration that differs from the checkpoint's in keys that no override names.

    Args:
      saved: the checkpoint's configuration, as a table.
      config: the configuration to go on with.
      overrides: KEY, or KEY=VALUE that `apply` has put into it.
      recorded: values by key that were named before, and no checkpoint was written since.

    Returns:
      The changes, by key: [before, now]. Raises `UserError`.
    """
    before, now = _flat(from_table(saved)), _flat(config)
    keys = [key for key in now if key not in before or before[key] != now[key]]
    keys += [key for key in before if key not in now]
    if not keys:
        return {}
    changed = {key: f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in keys}
    fixed = [key for key in keys if key in FIXED or key.partition(".")[0] in FIXED]
    if fixed:
        raise UserError(
            f"the configuration has changed in what a run keeps: "
            f"{'; '.join(changed[key] for key in fixed)}: put it back, or train a new run"
        )
    named = {_key(override) for override in overrides}
    named |= {key for key, value in (recorded or {}).items() if key in keys and now[key] == value}
    unnamed = [key for key in keys if key not in named]
    if unnamed:
        raise UserError(
            f"the configuration has changed since the checkpoint: "
            f"{'; '.join(changed[key] for key in unnamed)}: put it back, or go on with "
            f"--override {' '.join(unnamed)}"
        )
    return {key: [before.get(key), now.get(key)] for key in keys}
