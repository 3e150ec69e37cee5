"""Prices of the configurations that come with jaxrl, which `python -m tools.prices` writes.

Reading them imports no JAX. A row belongs to a file by what it sets: one that is edited has none.
"""

import csv
import functools
import hashlib
import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import NamedTuple

FILE = "prices.csv"
COLUMNS = ("configuration", "settings", "act", "learn", "step")  # numbers are MFLOP


class Price(NamedTuple):
    """The floating-point operations of a configuration; a multiplication and a sum are two."""

    act: float  # of choosing an action
    learn: float  # of a gradient step, for each transition that it learns from
    step: float  # of an agent step: its action, and its share of the gradient steps


def digest(path: Path) -> str:
    """Returns a digest of what a TOML file sets, whatever its comments and order."""
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def _rows() -> dict[str, Price]:
    file = resources.files("jaxrl.experiments.price").joinpath(FILE)
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {
        row["settings"]: Price(*(1e6 * float(row[name]) for name in Price._fields)) for row in rows
    }


def read(path: Path) -> Price | None:
    """Returns the price of a TOML file; None if the table has none for what it sets."""
    return _rows().get(digest(path))


def row(path: Path, price: Price) -> list[str]:
    """Returns the row of a file in the table."""
    return [path.stem, digest(path), *(f"{flops / 1e6:.4g}" for flops in price)]
