"""The texts of a dataclass and of its fields, which the help and the reference show."""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys

from jaxrl.config.algorithms import SHIPPED, that
from jaxrl.formatting import listed

PLACE = re.compile(r"\{(algorithms|(?:can|has)_\w+)\}")  # where a text lists algorithms


@functools.cache
def descriptions(kind: type) -> dict[str, str]:
    """Returns the text under each field of a dataclass, and of those that it inherits.

    A text is one line; {can_remember} in it stands for the algorithms that answer yes to that, and
    {algorithms} for all. There are none where the source cannot be read.
    """
    texts: dict[str, str] = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            texts |= descriptions(base)
    body = _body(kind)
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and (help_text := _string(text)) is not None
        ):
            texts[field.target.id] = PLACE.sub(_algorithms, " ".join(help_text.split()))
    return texts


def _algorithms(place: re.Match[str]) -> str:
    """Returns the algorithms that a place in a text stands for."""
    if place[1] == "algorithms":
        return f"{', '.join(SHIPPED[:-1])} or {SHIPPED[-1]}"
    return listed(that(place[1]))


def docstring(kind: type) -> str:
    """Returns the docstring of a dataclass; from its source where `python -OO` has dropped it."""
    if sys.flags.optimize < 2:
        return inspect.cleandoc(kind.__doc__ or "")
    first = next((text for part in _body(kind)[:1] if (text := _string(part))), "")
    return inspect.cleandoc(first)


def _body(kind: type) -> list[ast.stmt]:
    """Returns the statements of a class; none where the source cannot be read."""
    try:
        parsed = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return []
    assert isinstance(parsed, ast.ClassDef)
    return parsed.body


def _string(statement: ast.stmt) -> str | None:
    """Returns the text of a statement that is nothing but a text."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return None
