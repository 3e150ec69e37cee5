"""Types of configuration fields with the bounds that hold for them."""

import dataclasses
import math
import typing
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from jaxrl.errors import UserError

INT32, INT64 = Lt(2**31), Lt(2**63)

Count = Annotated[int, Ge(1), INT32]
CountOrZero = Annotated[int, Ge(0), INT32]
LongCount = Annotated[int, Ge(1), INT64]
LongCountOrZero = Annotated[int, Ge(0), INT64]
Fraction = Annotated[float, Ge(0), Le(1)]
Weight = Annotated[float, Ge(0), INT64]
Positive = Annotated[float, Gt(0), Lt(math.inf)]
Unlimited = Annotated[float, Ge(0)]  # infinity limits nothing


def describe(bounds: tuple[Any, ...]) -> str:
    """Returns bounds as a phrase: "at least 1", "between 0 and 1"."""
    least = [bound.ge for bound in bounds if isinstance(bound, Ge)]
    most = [bound.le for bound in bounds if isinstance(bound, Le)]
    above = [bound.gt for bound in bounds if isinstance(bound, Gt)]
    if least and most:
        return f"between {least[0]} and {most[0]}"
    return f"at least {least[0]}" if least else f"above {above[0]}" if above else ""


def of_field(kind: type, name: str) -> tuple[Any, ...]:
    """Returns the bounds of a dataclass's field, as `annotated_types` has them."""
    annotation = typing.get_type_hints(kind, include_extras=True)[name]
    return tuple(getattr(annotation, "__metadata__", ()))


def _check_value(name: str, value: Any, bounds: tuple[Any, ...]) -> None:
    for bound in bounds:
        match bound:
            case Ge(least) if not value >= least and any(isinstance(b, Le) for b in bounds):
                raise UserError(f"{name} = {value}: must lie {describe(bounds)}")
            case Le(most) if not value <= most:
                raise UserError(f"{name} = {value}: must lie {describe(bounds)}")
            case Ge(least) if not value >= least:  # nan is refused too
                raise UserError(f"{name} = {value}: must be at least {least}")
            case Gt(least) if not value > least:
                raise UserError(f"{name} = {value}: must be above {least}")
            case Lt(most) if not value < most:
                limit = "2^63" if most == 2**63 else most
                raise UserError(f"{name} = {value}: must be below {limit}")


def _check_choice(name: str, value: Any, annotation: Any) -> None:
    """Refuses a value that its `Literal` does not name; Python itself checks none."""
    if typing.get_origin(annotation) is not Literal:
        return
    choices = typing.get_args(annotation)
    if value not in choices:
        raise UserError(f"{name} = {value!r}: must be one of {', '.join(map(str, choices))}")


def check(section: Any, prefix: str = "") -> None:
    """Raises `UserError` for the first field of a dataclass, or of its parts, out of its bounds."""
    annotations = typing.get_type_hints(type(section))
    for field in dataclasses.fields(section):
        name, value = prefix + field.name, getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            check(value, f"{name}.")
            continue
        _check_choice(name, value, annotations[field.name])
        _check_value(name, value, of_field(type(section), field.name))
