"""Mistakes in the options of a command, each as one sentence with its remedy."""

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrl.atari.games import game_name, known_games
from jaxrl.config.diff import flat
from jaxrl.config.overrides import FIXED, FREE
from jaxrl.config.schema import Config
from jaxrl.config.toml import ALIASES, MOVED, algorithms_with, find
from jaxrl.errors import UserError
from jaxrl.formatting import listed

# Options of other libraries that have no counterpart of one name here.
GPU = "JAX takes a GPU by itself, JAX_PLATFORMS=cpu keeps it from that"
REMEDIES = {
    "device": GPU,
    "gpu": GPU,
    "cuda": GPU,
    "batch_size": "an update takes --num-envs times --agent.rollout-length steps, in "
    "agent.num_minibatches where the algorithm has them",
}
SIMILAR = 0.7  # least similarity of an option that is suggested, from 0 to 1


def refuse_repeated(kind: type, argv: Sequence[str]) -> None:
    """Refuses an option of several values that is given twice: the first would be forgotten."""
    for field in dataclasses.fields(typing.cast(Any, kind)):
        flag = "--" + field.name.replace("_", "-")
        count = sum(word == flag or word.startswith(flag + "=") for word in argv)
        if typing.get_origin(field.type) is tuple and count > 1:
            raise UserError(f"{flag} is given {count} times: list all values after one {flag}")


def sentence(error: Any, options: Sequence[str]) -> str:
    """Returns the sentence about an error of tyro's hook, whose private class is known by its name.

    `options` are the command's, as they are typed.
    """
    match type(error).__name__:
        case "UnrecognizedArgs":
            return _unknown(error.tokens, options)
        case "MissingArgs" if error.unrecognized_tokens:
            return _unknown(error.unrecognized_tokens, options)
        case "MissingArgs":
            missing = [_name(missing.arg) for missing in error.missing_arguments]
            return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} required"
        case "BadValue":
            return f"{_name(error.argument)} needs a value"
        case "InvalidChoice":
            choices = ", ".join(error.choices)
            return f"{_name(error.argument)} {error.value}: must be one of {choices}"
        case "InstantiationFailure" if error.argument is not None:
            return f"{_name(error.argument)}: {error.message.rstrip('.')}"
    return "the options cannot be read"


def _name(argument: Any) -> str:
    """Returns an option as the user writes it, or the name of a positional argument."""
    if argument.is_positional():
        return str(argument.lowered.metavar)
    return str(argument.display_name())


def _unknown(tokens: Sequence[str], options: Sequence[str]) -> str:
    """Names the first unknown option, or else the first unexpected argument, with a remedy."""
    unknown = [token.partition("=")[0] for token in tokens if token.startswith("-")]
    if unknown:
        override = _override(tokens, unknown[0]) if "--override" in options else ""
        return f"unknown option '{unknown[0]}'{override or _remedy(unknown[0], options)}"
    return f"unexpected argument '{tokens[0]}'{_meaning(tokens[0], options)}"


def _remedy(unknown: str, options: Sequence[str]) -> str:
    """Returns the algorithms that have an option, what to set instead, or a similar option."""
    option = "--" + unknown.removeprefix("--").replace("_", "-")
    if "." in option and option.startswith("--no-"):
        option = "--" + option.removeprefix("--no-").replace(".", ".no-", 1)
    section, _, key = option.rpartition(".")
    name = key.removeprefix("--").replace("-", "_")
    alias = ALIASES.get(name)
    if section == "--agent" and not alias and (owners := algorithms_with(name.removeprefix("no_"))):
        return f": it belongs to {listed(owners)}"
    setting = (alias or name).replace("_", "-")
    moved = "--" + MOVED.get(alias or name, "").replace("_", "-")
    elsewhere = [option for option in options if option == moved and not section]
    elsewhere += [option for option in options if option.endswith(f".{setting}")]
    if name in REMEDIES and "--num-envs" in options and not section and not elsewhere:
        return f": {REMEDIES[name]}"
    parts = {option: option.rpartition(".") for option in options}
    siblings = {last: option for option, (part, _, last) in parts.items() if part == section}
    typed = setting if section else f"--{setting}"
    near = [siblings[match] for match in difflib.get_close_matches(typed, siblings, 1, SIMILAR)]
    return "".join(f": did you mean {option}?" for option in [*elsewhere, *near][:1])


def _override(tokens: Sequence[str], unknown: str) -> str:
    """Returns how `resume` changes the setting that an option of `train` names; empty if none."""
    words = [part for token in tokens for part in token.split("=", 1)]
    _, value, *_ = [*words[words.index(unknown) :], "", ""]
    typed = unknown.removeprefix("--").replace("-", "_")
    section, dot, name = typed.rpartition(".")
    name = ALIASES.get(name, name)
    known = [*flat(dataclasses.asdict(Config()))]
    known += [f"agent.{name}"] * bool(algorithms_with(name))
    keys = [key for key in known if key == section + dot + name]
    keys += [key for key in known if not section and key.endswith(f".{name}")]
    if not keys or keys[0] in FREE:
        return ": did you mean --num-devices?" if name == "num_devices" else ""
    if keys[0] in FIXED or keys[0].partition(".")[0] in FIXED:
        return f": a run keeps its {keys[0]}: train a new one"
    shown = "VALUE" if not value or value.startswith("--") else value
    return f": change it by --override {keys[0]}={shown}"


def _meaning(word: str, options: Sequence[str]) -> str:
    """Returns the option that a bare word is meant for, as a hint; empty if nothing is like it."""
    if word.lower() in ("true", "false"):
        return ": an option that is true or false has no value: --section.key or --section.no-key"
    if "--game" in options and game_name(word) in known_games():
        return f": did you mean --game {game_name(word)}?"
    if "--config" in options and find(Path(word)).is_file():
        return f": did you mean --config {word}?"
    return ""
