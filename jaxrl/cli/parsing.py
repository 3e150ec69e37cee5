"""Reads the options of a command into its dataclass, and reports a mistake in one line.

tyro does the reading. It draws its errors into boxes for a terminal, but first hands each one to a
hook as an object; here the hook raises `UserError` with one line instead.
"""

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import tyro

from jaxrl.atari.games import game_name, known_games
from jaxrl.cli.help import FLAGS, page
from jaxrl.cli.options import options_of
from jaxrl.config.bounds import check_local
from jaxrl.config.schema import Config
from jaxrl.config.toml import (
    ALIASES,
    MOVED,
    algorithms_with,
    find,
    load_recipe,
    mark_recipe,
    whole_number_hint,
)
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.formatting import listed
from jaxrl.runs.files import STORAGE_ERRORS, check_writable

Protocol = Literal["noop", "sticky"]
RunDir = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
RunDirs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR ...")]
Output = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
# The words of the command line, for a command that prints how to go on; `parse` sets it.
Words = Annotated[tuple[str, ...], tyro.conf.Fixed, tyro.conf.Suppress]

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
T = TypeVar("T")

_REGISTRY = tyro.constructors.ConstructorRegistry()


def _whole_number(word: str) -> int:
    """Reads an integer, which may be written 3e6 or 3_000_000."""
    try:
        number = float(word) if "e" in word.lower() else int(word)
    except ValueError:
        number = float("nan")
    if not float(number).is_integer():
        raise ValueError(f"'{word}' is not a whole number{whole_number_hint(word)}")
    return int(number)


def _number(word: str) -> float:
    """Reads a number."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"'{word}' is not a number") from None


def _path(word: str) -> Path:
    """Reads a path of this machine."""
    check_local(word)
    return Path(word)


def _register(kind: type, read: Callable[[str], Any], metavar: str, *accepted: type) -> None:
    """Reads options of a type from one word; defaults are of the `accepted` types."""

    @_REGISTRY.primitive_rule
    def _(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        if info.type is not kind:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda words: read(words[0]),
            is_instance=lambda x: isinstance(x, accepted),
            str_from_instance=lambda x: [str(x)],
        )


_register(int, _whole_number, "INT", int)
_register(float, _number, "FLOAT", int, float)
_register(Path, _path, "PATH", Path)


@_REGISTRY.primitive_rule
def _optional(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Reads `X | None` as X; the option is None only where it is left out."""
    kinds = typing.get_args(info.type)
    if info.type_origin not in (typing.Union, types.UnionType) or type(None) not in kinds[1:]:
        return None
    inner = tyro.constructors.PrimitiveTypeInfo.make(kinds[0], info.markers)
    spec = tyro.constructors.ConstructorRegistry.get_primitive_spec(inner)
    if len(kinds) != 2 or isinstance(spec, tyro.constructors.UnsupportedTypeAnnotationError):
        return None
    return dataclasses.replace(
        spec,
        is_instance=lambda x: x is None or spec.is_instance(x),
        str_from_instance=lambda x: ["None"] if x is None else spec.str_from_instance(x),
    )


def parse(kind: type[T], command: str, words: Sequence[str]) -> T:
    """Returns the arguments of a command. Raises `UserError`.

    Args:
      kind: the command's dataclass. Where it holds a whole configuration in `settings`, `--config`
        gives the defaults; where it has `words`, it gets the command line.
      command: name, as `jaxrl NAME --help` has it.
      words: the command line after the name.
    """
    _refuse_repeated(kind, words)
    names = {field.name for field in dataclasses.fields(typing.cast(Any, kind))}
    if "settings" not in names:
        parsed: Any = _read(kind, command, words, None)
    else:
        file = _config_file(words)
        settings = load_recipe(file) if file else mark_recipe(Config())
        command = f"{command} --config {file}" if file else command
        parsed = _read(kind, command, words, settings)
        check(parsed.settings)
    if "words" in names:
        parsed = dataclasses.replace(parsed, words=tuple(words))
    return typing.cast(T, parsed)


def _config_file(words: Sequence[str]) -> Path | None:
    """Returns the value of --config, which must be read before the rest can be parsed."""
    for place, word in enumerate(words):
        if word == "--config" and place + 1 < len(words):
            return Path(words[place + 1])
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
    return None


def _read(kind: Any, command: str, words: Sequence[str], settings: Config | None) -> Any:
    """Calls tyro, and raises `UserError` where it would draw a box; `command` is for messages."""
    part = kind if settings is None else kind(settings=settings)

    def refuse(error: Any) -> NoReturn:
        options = [name for one in options_of(part) for name in one.names if name[:2] == "--"]
        raise UserError(f"{_message(error, options)} (jaxrl {command} --help lists all options)")

    # tyro has the hook since 1.0.16 and keeps it private. Without it, its box is shown, and
    # the exit status is the same.
    errors = getattr(tyro, "_errors", None)
    hook = errors.on_parse_error(refuse) if errors else contextlib.nullcontext()
    avoid_subcommands: Any = tyro.conf.AvoidSubcommands
    if not set(FLAGS).isdisjoint(words):
        print(page(kind, command.partition(" --config")[0], part), end="")
        raise SystemExit(0)
    with hook, _REGISTRY:
        if settings is None:
            return tyro.cli(kind, args=words, add_help=False)
        return tyro.cli(avoid_subcommands[kind], args=words, default=part, add_help=False)


# --- mistakes ------------------------------------------------------------------------------------


def _refuse_repeated(kind: type[T], words: Sequence[str]) -> None:
    """Refuses an option of several values that is given twice: the first would be forgotten."""
    for field in dataclasses.fields(typing.cast(Any, kind)):
        flag = "--" + field.name.replace("_", "-")
        given = [word for word in words if word == flag or word.startswith(flag + "=")]
        if typing.get_origin(field.type) is tuple and len(given) > 1:
            raise UserError(f"{flag} is given {len(given)} times: list all values after one {flag}")


def _message(error: Any, options: Sequence[str]) -> str:
    """Returns the sentence about one of tyro's errors, which are known by the class's name."""
    match type(error).__name__:
        case "UnrecognizedArgs":
            return _unknown(error.tokens, options)
        case "MissingArgs" if error.unrecognized_tokens:
            return _unknown(error.unrecognized_tokens, options)
        case "MissingArgs":
            missing = [_name(one.arg) for one in error.missing_arguments]
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
    """Names the first unknown option, and the similar option or the algorithm that has it."""
    unknown = [token.partition("=")[0] for token in tokens if token.startswith("-")]
    if not unknown:
        return f"unexpected argument '{tokens[0]}'{_meaning(tokens[0], options)}"
    option = "--" + unknown[0].removeprefix("--").replace("_", "-")
    section, _, key = option.rpartition(".")
    bare = key.removeprefix("--")
    alias = ALIASES.get(bare.replace("-", "_"), "").replace("_", "-")
    key = key.replace(bare, alias) if alias else key
    of_agent = section == "--agent" and not alias
    owners = algorithms_with(key.replace("-", "_")) if of_agent else []
    if owners:
        return f"unknown option '{unknown[0]}': it belongs to {listed(owners)}"
    moved = "--" + MOVED.get(key.removeprefix("--").replace("-", "_"), "").replace("_", "-")
    elsewhere = [known for known in options if known == moved and not section]
    elsewhere += [known for known in options if known.endswith("." + key.removeprefix("--"))]
    siblings = [known for known in options if known.rpartition(".")[0] == section]
    keys = [known.rpartition(".")[2] for known in siblings]
    near = [siblings[keys.index(one)] for one in difflib.get_close_matches(key, keys, 1, SIMILAR)]
    remedy = REMEDIES.get(bare.replace("-", "_"))
    if remedy and "--num-envs" in options and not section and not elsewhere:
        return f"unknown option '{unknown[0]}': {remedy}"
    hint = "".join(f": did you mean {known}?" for known in [*elsewhere, *near][:1])
    return f"unknown option '{unknown[0]}'{hint}"


def _meaning(word: str, options: Sequence[str]) -> str:
    """Returns the option that a bare word is meant for, as a hint; empty if nothing is like it."""
    if word.lower() in ("true", "false"):
        return ": an option that is true or false has no value: --section.key or --section.no-key"
    if "--game" in options and game_name(word) in known_games():
        return f": did you mean --game {game_name(word)}?"
    if "--config" in options and find(Path(word)).is_file():
        return f": did you mean --config {word}?"
    return ""


# --- checks that several commands share ----------------------------------------------------------


def at_least(name: str, value: float, least: float) -> None:
    """Refuses a value below `least`, or too large for 32 bits."""
    if not least <= value < 2**31:
        raise UserError(f"{name} = {value}: must be at least {least} and below 2147483648")


def check_target(target: Path, suffixes: tuple[str, ...]) -> None:
    """Refuses a file to write that has another suffix, or that cannot be written."""
    if target.suffix not in suffixes:
        raise UserError(f"'{target}': the name must end in {' or '.join(suffixes)}")
    try:
        if not target.parent.is_dir():
            raise UserError(f"'{target.parent}' is no directory: make it first")
        if target.is_dir():
            raise UserError(f"'{target}' is a directory: choose another name")
    except (OSError, ValueError) as error:  # too long, a folder that may not be searched
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write '{target}': {reason}: choose another name") from None
    try:
        check_writable(target.parent)
    except OSError as error:
        if error.errno in STORAGE_ERRORS:  # no mistake of the user
            raise
        raise UserError(f"'{target.parent}' may not be written: write elsewhere") from None


def checkpoint_step(run_dir: Path, word: str | None) -> int | None:
    """Returns the agent step that --checkpoint names; None for the newest. Raises `UserError`."""
    from jaxrl.runs import checkpoint_files

    return checkpoint_files.named(run_dir, word)


def check_runs(run_dirs: Sequence[Path], command: str, least: int = 1) -> list[Path]:
    """Refuses paths that are no run directories, before anything heavy is imported."""
    from jaxrl.analysis.groups import distinct_names
    from jaxrl.runs.directory import load_config

    if len(run_dirs) < least:
        number = ("one run directory", "two run directories")[least - 1]
        raise UserError(f"{command} needs at least {number}")
    distinct_names(run_dirs)
    for run_dir in run_dirs:
        load_config(run_dir)
    return list(run_dirs)
