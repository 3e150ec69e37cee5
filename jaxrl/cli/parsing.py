"""What the commands share: tyro's parser and checks, with mistakes told in one line."""

import contextlib
import io
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.config.schema import Config
from jaxrl.config.toml import algorithms_with, as_recipe, load
from jaxrl.config.validation import check, check_game
from jaxrl.errors import UserError

_INTEGERS = tyro.constructors.ConstructorRegistry()


@_INTEGERS.primitive_rule
def _whole_number(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """Integers may be written 3e6 or 3_000_000."""
    if info.type is not int:
        return None

    def parse(words: list[str]) -> int:
        number = float(words[0]) if "e" in words[0].lower() else int(words[0])
        if not float(number).is_integer():
            raise ValueError(f"'{words[0]}' is not a whole number")
        return int(number)

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=parse,
        is_instance=lambda x: isinstance(x, int),
        str_from_instance=lambda x: [str(x)],
    )


def parse(target: Any, command: str, arguments: list[str], shown: str = "", **options: Any) -> Any:
    """tyro's parser, its boxes of errors condensed into one line; `shown` is whose --help helps."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), _INTEGERS:
            return tyro.cli(target, args=arguments, prog=f"jaxrl {command}", **options)
    except SystemExit as ended:
        if not ended.code:
            raise
        raise UserError(_condense(errors.getvalue(), shown or command)) from None


def _condense(box: str, command: str) -> str:
    """The message of tyro's error box, with its first suggestion, or whose option it is."""
    # The box is drawn with dashes where the terminal knows no lines.
    rows = [line.strip().strip("│|").strip() for line in box.splitlines()]
    sections: list[list[str]] = [[]]
    for row in rows[1:]:  # the first is the title
        if not row.strip("─-╭╮╰╯+ "):
            sections.append([])
        else:
            sections[-1].append(row)
    first, *others = [section for section in sections if section] or [["cannot read the options"]]
    message = " ".join(first)
    option = re.search(r"Unrecognized options: --agent\.([\w-]+)", message)
    owners = algorithms_with(option[1].replace("-", "_")) if option else []
    if owners:
        message += f"; it belongs to {' and '.join(owners)}"
        others = []
    for section in others:
        if section[0].startswith("Perhaps you meant") and len(section) > 1:
            message += f"; did you mean {section[1].split()[0]}?"
    return f"{message} (jaxrl {command} --help lists all options)"


def parse_settings(kind: type, command: str, arguments: list[str]) -> Any:
    """Arguments that begin with a whole configuration; --config gives its defaults."""
    file = _config_file(arguments)
    settings = as_recipe(load(file) if file else Config())
    avoid_subcommands: Any = tyro.conf.AvoidSubcommands
    shown = f"{command} --config {file}" if file else command
    parsed = parse(avoid_subcommands[kind], command, arguments, shown, default=kind(settings, file))
    _check_config(parsed.settings)
    return parsed


def _config_file(arguments: list[str]) -> Path | None:
    """The value of --config, which must be read before the rest can be parsed."""
    for place, argument in enumerate(arguments):
        if argument == "--config" and place + 1 < len(arguments):
            return Path(arguments[place + 1])
        if argument.startswith("--config="):
            return Path(argument.removeprefix("--config="))
    return None


def _check_config(config: Config) -> None:
    from jaxrl.atari.games import known_games

    check_game(config.game, known_games())
    check(config)


def at_least(name: str, value: float, least: float) -> None:
    """Refuses a value below `least`, or too large for 32 bits."""
    if not least <= value < 2**31:
        raise UserError(f"{name} = {value}: must be at least {least} and below 2147483648")


def check_target(target: Path, suffixes: tuple[str, ...]) -> None:
    """Refuses a file to write with another suffix, or in no directory."""
    if target.suffix not in suffixes:
        raise UserError(f"'{target}': the name must end in {' or '.join(suffixes)}")
    if not target.parent.is_dir():
        raise UserError(f"'{target.parent}' is no directory: make it first")


RunDir = Annotated[Path, tyro.conf.Positional]
Protocol = Literal["noop", "sticky"]
RunDirs = Annotated[tuple[Path, ...], tyro.conf.Positional]


def check_runs(run_dirs: tuple[Path, ...], command: str, least: int = 1) -> list[Path]:
    """Refuses what is no run directory, before anything heavy is imported."""
    from jaxrl.analysis.groups import distinct_names
    from jaxrl.runs.directory import load_config

    if len(run_dirs) < least:
        raise UserError(
            f"{command} needs at least {('one run directory', 'two run directories')[least - 1]}"
        )
    distinct_names(run_dirs)
    for run_dir in run_dirs:
        load_config(run_dir)
    return list(run_dirs)
