"""The comments beside the fields of a class, as its docstring's section of attributes.

Types say the shape of each field in a comment; mkdocstrings shows docstrings alone. Griffe, which
reads the source for it, calls this extension (mkdocs.yml).
"""

from typing import Any

import griffe


class Fields(griffe.Extension):
    """Adds the commented fields of a class to its docstring."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Adds a section that mkdocstrings shows as a list."""
        fields = {
            name: comment(cls.lines_collection[cls.filepath], member.lineno)
            for name, member in cls.members.items()
            if member.is_attribute and member.lineno and not member.docstring
        }
        lines = [f"    {name}: {text}" for name, text in fields.items() if text]
        if lines and cls.docstring:
            cls.docstring.value = "\n".join([cls.docstring.value, "", "Attributes:", *lines])


def comment(lines: list[str], number: int) -> str:
    """Returns the comment behind the field on a line, or above it; empty if there is none."""
    _, mark, beside = lines[number - 1].partition("  # ")
    if mark:
        return beside.strip()
    above = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("# "):
            break
        above.append(line.strip().removeprefix("# "))
    return " ".join(reversed(above))
