"""The reference of all keys, made from the dataclasses: `python -m tools.config_reference`."""

import dataclasses
import json
import typing
from typing import Any, Literal

from jaxrl.config import bounds
from jaxrl.config.algorithms import shipped
from jaxrl.config.descriptions import descriptions
from jaxrl.config.schema import SECTIONS, Config

HEAD = """# Configuration

What does each key mean? `make docs` writes this page from the dataclasses of
`jaxrl/config/{schema,network}.py` and `jaxrl/agents/*/settings.py`, and a test keeps it up to date.

A key and its flag have the same name: `learning_rate` under `[optimizer]` of a TOML file is
`--optimizer.learning-rate`. `--checkpoint.no-memory` sets `memory` under `[checkpoint]` to false. A
file contains overrides only; the other keys have the defaults below, and
`jaxrl train --config FILE --help` shows the defaults of that file. Whole numbers may be written
`3e6` or `3_000_000`. A run's `config.toml` contains every key.
"""


def _type(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[annotation]


def _values(kind: type, name: str, annotation: Any) -> str:
    """Returns the type of a field with its bounds: "whole number, at least 1"."""
    for bound in bounds.field_bounds(kind, name):
        if isinstance(bound, bounds.Names):
            return ", ".join([*(f"`{builtin}`" for builtin in bound.builtin), "another package's"])
    return ", ".join(
        filter(None, (_type(annotation), bounds.describe(bounds.field_bounds(kind, name))))
    )


def _table(kind: type) -> list[str]:
    texts, types = descriptions(kind), typing.get_type_hints(kind)
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        if field.name in (*SECTIONS, "agent"):
            continue
        text = texts[field.name].replace("|", "\\|")
        default = json.dumps(field.default)
        values = _values(kind, field.name, types[field.name])
        lines.append(f"| `{field.name}` | {values} | `{default}` | {text} |")
    return lines


def markdown() -> str:
    """Returns the whole page."""
    top = "At the top of the file; flags are `--game`, `--num-envs`, ..."
    sections: list[tuple[str, str, type]] = [
        ("The run", top, Config),
        *((f"`[{name}]`", kind.__doc__ or "", kind) for name, kind in SECTIONS.items()),
        *((f'`[agent]` of `algorithm = "{name}"`', kind.__doc__ or "", kind)
          for name, kind in shipped().items()),
    ]  # fmt: skip
    lines = [HEAD]
    for title, text, kind in sections:
        lines += [f"## {title}", "", " ".join(text.split()), "", *_table(kind), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
