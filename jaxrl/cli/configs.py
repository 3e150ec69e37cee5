"""`jaxrl configs`."""

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from jaxrl.config.schema import Config
from jaxrl.errors import UserError

WIDTH = 62  # characters of a description


@dataclass(frozen=True)
class Configs:
    """List the configurations that --config takes by their stems, with a line each.

    Those of the folder configs/ here come before jaxrl's own of the same stem. Files that are no
    configurations are left out, with a line each.
    Example: jaxrl configs
    """

    names: bool = False
    """print only the stems, one a line"""


def configs(arguments: Configs) -> int:
    """Prints the configurations."""
    from jaxrl.config.toml import stems
    from jaxrl.formatting import count

    paths = stems()
    loaded = _loaded(paths)
    if arguments.names:
        print("\n".join(loaded))
        return 0
    print(f"{'stem':<14} {'algorithm':<9} {'steps':>8} {'envs':>6}  description")
    for stem, config in loaded.items():
        print(f"{stem:<14} {config.algorithm:<9} {count(config.total_steps):>8} "
              f"{config.num_envs:>6}  {describe(paths[stem])}")  # fmt: skip
    return 0


def _loaded(paths: dict[str, Path]) -> dict[str, Config]:
    """Reads configurations by stem; names and leaves out other files."""
    from jaxrl.config.toml import load

    loaded = {}
    for stem, path in paths.items():
        try:
            loaded[stem] = load(path)
        except UserError as error:  # `--config` of its stem says the same
            print(f"left out: {error}", file=sys.stderr)
    return loaded


def describe(path: Path) -> str:
    """Returns the beginning of a file's first comment, in one line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    first = re.split(r"[.:] | \(", " ".join(lines), maxsplit=1)[0]  # without its sources
    return textwrap.shorten(first.rstrip("."), WIDTH, placeholder=" ...")
