"""Colors, lines and files that all pictures share."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from jaxrl.errors import UserError

# Distinct also with defective color vision (Okabe & Ito 2008, without the yellow).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")  # a further round of the colors takes the next one


def palette(number: int) -> list[Any]:
    """Returns `number` colors that are distinct also with defective color vision."""
    if number <= len(COLORS):
        return list(COLORS[:number])
    return list(matplotlib.colormaps["cividis"](np.linspace(0, 1, number)))


def line_style(place: int) -> dict[str, Any]:
    """Returns the color and the line of the curve at this place."""
    line = LINES[place // len(COLORS) % len(LINES)]
    return {"color": COLORS[place % len(COLORS)], "linestyle": line}


def save(figure: "matplotlib.figure.Figure", target: Path) -> None:
    """Writes a picture. Raises `UserError` if the file cannot be written."""
    try:
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write '{target}': {error}") from None
