"""The texts under the fields of a dataclass, which the help and the reference show."""

import ast
import dataclasses
import functools
import inspect


@functools.cache
def descriptions(kind: type) -> dict[str, str]:
    """Returns the text under each field of a dataclass, and of those that it inherits.

    A text is one line. There are none where the source cannot be read.
    """
    found: dict[str, str] = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            found |= descriptions(base)
    try:
        body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return found
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found
