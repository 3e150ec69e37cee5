"""The options of a command, read from its dataclass: for its help, hints and completion."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import tyro

from jaxrl.config.bounds import Names
from jaxrl.config.descriptions import descriptions, docstring

KINDS = {int: "INT", float: "FLOAT", str: "STR"}


class Option(NamedTuple):
    """One option of a command, or one argument without a name."""

    names: tuple[str, ...]  # as they are typed; those of a switch are two, an argument has none
    metavar: str  # stands for its value; empty for a switch
    text: str
    default: str  # in brackets; empty where there is none
    section: str = ""  # part of the configuration or another; empty for the command itself
    summary: str = ""  # first line of the section's docstring

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that the option takes, where it names them."""
        values, bracket, _ = self.metavar.removeprefix("{").partition("}")
        return tuple(values.split(",")) if bracket else ()


def options_of(part: Any, section: str = "", prefix: str = "") -> Iterator[Option]:
    """Yields the options in their order.

    Args:
      part: a command's dataclass, or an instance whose values are the defaults.
      section: the part of the configuration that the options belong to.
      prefix: the beginning of their names, "env."; that of a part with an empty name is empty.
    """
    kind = part if isinstance(part, type) else type(part)
    hints, texts = typing.get_type_hints(kind, include_extras=True), descriptions(kind)
    summary, *_ = docstring(kind).splitlines() or [""]
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        tyro_args = [mark for mark in marks if hasattr(mark, "metavar")]  # by tyro.conf.arg
        value = _default(field) if part is kind else getattr(part, field.name)
        if tyro.conf.Suppress in marks:
            continue
        if dataclasses.is_dataclass(value):
            unnamed = any(arg.name == "" for arg in tyro_args)
            inner = "run" if field.name == "settings" else field.name
            yield from options_of(value, inner, "" if unnamed else f"{field.name}.")
            continue
        if value is dataclasses.MISSING and field.name == "settings":
            continue
        rest = texts.get(field.name, ""), _shown(value), section, summary
        metavar = _metavar(hints[field.name])
        metavar = next((arg.metavar for arg in tyro_args if arg.metavar), metavar)
        if tyro.conf.Positional in marks:
            yield Option((), metavar, *rest)
            continue
        name = field.name.replace("_", "-")
        names = [alias for arg in tyro_args for alias in arg.aliases or ()] + [f"--{prefix}{name}"]
        names += [f"--{prefix}no-{name}"] * (not metavar)
        yield Option(tuple(names), metavar, *rest)


def _default(field: dataclasses.Field[Any]) -> Any:
    """Returns the default of a field, `dataclasses.MISSING` where it is required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _shown(value: Any) -> str:
    """Returns a default as it would be typed, in brackets; nothing where there is none."""
    if value is dataclasses.MISSING:
        return "(required)"
    if value is None or value == "" or value == ():
        return ""
    if isinstance(value, bool):
        return f"(default: {str(value).lower()})"
    if isinstance(value, int):
        return f"(default: {value:_})"
    if isinstance(value, tuple):
        return f"(default: {' '.join(map(str, value))})"
    return f"(default: {value})"


def _metavar(annotation: Any) -> str:
    """Returns the kind of an option's value; empty for a switch."""
    inner = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            names = next((mark.all() for mark in inner[1:] if isinstance(mark, Names)), ())
            return f"{{{','.join(names)}}}" if names else _metavar(inner[0])
        case typing.Union | types.UnionType:
            return _metavar(inner[0])
        case origin if origin is Literal:
            return f"{{{','.join(map(str, inner))}}}"
        case origin if origin is tuple:
            return f"{_metavar(inner[0])} ..."
    return "" if annotation is bool else KINDS.get(annotation, "PATH")
