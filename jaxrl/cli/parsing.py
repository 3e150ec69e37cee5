"""Reads the options of a command into its dataclass.

tyro does the reading. It draws its errors into boxes for a terminal, but first hands each one to a
hook as an object; here the hook raises `UserError` with one line instead.
"""

import contextlib
import dataclasses
import itertools
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import tyro

from jaxrl.cli.help import FLAGS, page
from jaxrl.cli.mistakes import refuse_repeated, sentence
from jaxrl.cli.options import options_of
from jaxrl.config.bounds import check_local
from jaxrl.config.schema import Config
from jaxrl.config.toml import load_recipe, mark_recipe, whole_number_hint
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.runs.files import STORAGE_ERRORS, check_writable

Protocol = Literal["noop", "sticky"]
RunDir = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
RunDirs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR ...")]
Output = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]
# The command line, for a command that prints how to go on; `parse` sets it.
Words = Annotated[tuple[str, ...], tyro.conf.Fixed, tyro.conf.Suppress]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The options of a command that takes a whole configuration."""

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file, or the stem of one in configs/ (ppo_pong), that the other options override"""


@dataclasses.dataclass(frozen=True)
class Listing:
    """The option of a command that lists what there is."""

    names: bool = False
    """print only the names, one a line"""


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
            instance_from_str=lambda values: read(values[0]),
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


def parse(kind: type[T], command: str, argv: Sequence[str]) -> T:
    """Returns the arguments of a command. Raises `UserError`.

    Args:
      kind: the command's dataclass. Where it holds a whole configuration in `settings`, `--config`
        gives the defaults; where it has `words`, it gets the command line.
      command: name, as `jaxrl NAME --help` has it.
      argv: the command line after the name.
    """
    refuse_repeated(kind, argv)
    names = {field.name for field in dataclasses.fields(typing.cast(Any, kind))}
    if "settings" not in names:
        parsed: Any = _read(kind, command, argv)
    else:
        file = _config_file(argv)
        settings = load_recipe(file) if file else mark_recipe(Config())
        default = typing.cast(Any, kind)(settings=settings)
        parsed = _read(kind, f"{command} --config {file}" if file else command, argv, default)
        check(parsed.settings)
    if "words" in names:
        parsed = dataclasses.replace(parsed, words=tuple(argv))
    return typing.cast(T, parsed)


def _config_file(argv: Sequence[str]) -> Path | None:
    """Returns the value of --config, which must be read before the rest can be parsed."""
    for word, following in itertools.zip_longest(argv, argv[1:]):
        if word == "--config" and following is not None:
            return Path(following)
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
    return None


def _read(kind: Any, command: str, argv: Sequence[str], default: Any = None) -> Any:
    """Calls tyro, and raises `UserError` where it would draw a box.

    `command` has its configuration, for messages; `default` is an instance with the defaults.
    """
    part = kind if default is None else default
    if not set(FLAGS).isdisjoint(argv):
        print(page(part, command.partition(" --config")[0]), end="")
        raise SystemExit(0)

    def refuse(error: Any) -> NoReturn:
        options = [name for option in options_of(part) for name in option.names]
        known = [name for name in options if name.startswith("--")]
        raise UserError(f"{sentence(error, known)} (jaxrl {command} --help lists all options)")

    # tyro has the hook since 1.0.16 and keeps it private; nothing public hands out errors. Without
    # it, its box is shown, and the exit status is the same.
    errors = getattr(tyro, "_errors", None)
    with errors.on_parse_error(refuse) if errors else contextlib.nullcontext():
        return tyro.cli(
            kind,
            args=argv,
            default=tyro.MISSING_NONPROP if default is None else default,
            add_help=False,
            config=(tyro.conf.AvoidSubcommands,),
            registry=_REGISTRY,
        )


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
