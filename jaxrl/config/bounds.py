"""Types of configuration fields with the bounds that hold for them."""

import dataclasses
import math
import os
import re
import typing
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from jaxrl.config import extensions
from jaxrl.errors import UserError, nearest


@dataclasses.dataclass(frozen=True)
class Names:
    """Names that a field takes: those of jaxrl, and those that other packages register."""

    builtin: tuple[str, ...]
    group: str  # name of a group of entry points

    def all(self) -> tuple[str, ...]:
        """Returns all names."""
        return tuple(dict.fromkeys((*self.builtin, *extensions.names(self.group))))


INT32, INT64 = Lt(2**31), Lt(2**63)
# Frames whose sums fit uint32: bytes deviate from their mean, rounded, by at most 127.5² + 0.5² on
# average, and 2¹⁸ times that is below 2³².
EXACT_FRAMES = 2**18

Count = Annotated[int, Ge(1), INT32]
CountOrZero = Annotated[int, Ge(0), INT32]
LongCount = Annotated[int, Ge(1), INT64]
LongCountOrZero = Annotated[int, Ge(0), INT64]
Fraction = Annotated[float, Ge(0), Le(1)]
Weight = Annotated[float, Ge(0), INT64]
Positive = Annotated[float, Gt(0), Lt(math.inf)]
Unlimited = Annotated[float, Ge(0)]  # infinity limits nothing

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def convert(value: Any, annotation: Any) -> Any:
    """Returns a value as its field has it, where it has another form; else unchanged.

    A path is a string, NumPy's scalars are Python's, and 1e6 is a whole number.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if annotation is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return float(value) if annotation is float and type(value) is int else value


def is_of_type(value: Any, annotation: Any) -> bool:
    """Returns whether a value is of a field's type; Python itself checks none."""
    if typing.get_origin(annotation) is Literal:
        choices = typing.get_args(annotation)
        return any(type(value) is type(choice) and value == choice for choice in choices)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return annotation not in TYPE_NAMES or type(value) is annotation


def type_name(annotation: Any) -> str:
    """Returns a field's type for a message: "a whole number"."""
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    return TYPE_NAMES[annotation]


_URI = re.compile(r"[A-Za-z][\w.+-]+:/")  # pathlib makes one slash of two


def check_local(path: str | os.PathLike[str]) -> None:
    """Refuses an address of another machine, of which a path makes a folder here, named "gs:"."""
    if _URI.match(os.fspath(path)):
        raise UserError(f"'{path}' is not a local path: mount that storage, or copy the files")


def describe(bounds: tuple[Any, ...]) -> str:
    """Returns bounds as a phrase: "at least 1", "between 0 and 1"."""
    least = [bound.ge for bound in bounds if isinstance(bound, Ge)]
    most = [bound.le for bound in bounds if isinstance(bound, Le)]
    above = [bound.gt for bound in bounds if isinstance(bound, Gt)]
    if least and most:
        return f"between {least[0]} and {most[0]}"
    if most:
        return f"at most {most[0]}"
    return f"at least {least[0]}" if least else f"above {above[0]}" if above else ""


def field_bounds(kind: type, name: str) -> tuple[Any, ...]:
    """Returns the bounds of a dataclass's field, as `annotated_types` has them."""
    annotation = typing.get_type_hints(kind, include_extras=True)[name]
    return tuple(getattr(annotation, "__metadata__", ()))


def check_name(name: str, value: Any, bounds: tuple[Any, ...]) -> None:
    """Raises `UserError` if a field takes names, and the value is none of them."""
    for bound in bounds:
        if isinstance(bound, Names) and value not in bound.builtin and value not in bound.all():
            near = nearest(str(value).lower(), bound.all(), count=1)
            missing = f"no installed package registers it in {bound.group}"
            hint = f"did you mean '{near[0]}'?" if near else missing
            raise UserError(f"{name} = {value!r}: must be one of {', '.join(bound.all())}; {hint}")


def _check_value(name: str, value: Any, bounds: tuple[Any, ...]) -> None:
    check_name(name, value, bounds)
    for bound in bounds:
        match bound:
            case Ge(least) if not value >= least and any(isinstance(b, Le) for b in bounds):
                raise UserError(f"{name} = {value}: must lie {describe(bounds)}")
            case Le(most) if not value <= most:
                must = "lie" if any(isinstance(b, Ge) for b in bounds) else "be"
                raise UserError(f"{name} = {value}: must {must} {describe(bounds)}")
            case Ge(least) if not value >= least:  # nan is refused too
                raise UserError(f"{name} = {value}: must be at least {least}")
            case Gt(least) if not value > least:
                raise UserError(f"{name} = {value}: must be above {least}")
            case Lt(most) if not value < most:
                limit = "2^63" if most == 2**63 else most
                raise UserError(f"{name} = {value}: must be below {limit}")


def check(section: Any, prefix: str = "") -> None:
    """Raises `UserError` for the first field of a dataclass, or of its parts, that cannot be.

    Its value is of another type, or out of its bounds.
    """
    annotations = typing.get_type_hints(type(section))
    for field in dataclasses.fields(section):
        name, value = prefix + field.name, getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            check(value, f"{name}.")
            continue
        annotation = annotations[field.name]
        if not is_of_type(value, annotation):
            raise UserError(f"{name} = {value!r}: must be {type_name(annotation)}")
        _check_value(name, value, field_bounds(type(section), field.name))
