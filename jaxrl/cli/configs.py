"""`jaxrl configs`."""

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.config.schema import Config
from jaxrl.errors import UserError

if TYPE_CHECKING:
    from jaxrl.experiments.price.table import Price

WIDTH = 62  # characters of a description
MFLOP, GB = 1e6, 1e9


@dataclass(frozen=True)
class Configs:
    """List the configurations that --config takes by their stems, with a line each.

    Those of the folder configs/ here come before jaxrl's own of the same stem. Files that are no
    configurations are left out, with a line each. With CONFIG the file is printed instead, below
    its path: it holds what differs from the defaults of its algorithm.
    Example: jaxrl configs vtrace_cpu
    """

    config: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[CONFIG]")] = None
    """TOML file, or the stem of one in configs/, to show; without it all are listed"""
    names: bool = False
    """print only the stems, one a line"""
    long: bool = False
    """list also the millions of floating-point operations (MFLOP) of choosing an action, of a
    gradient for each transition that it learns from, and of an agent step with its share of the
    gradients; and the gigabytes of the replay"""


def configs(arguments: Configs) -> int:
    """Prints the configurations, or one."""
    from jaxrl.config.toml import find, load, stems

    chosen = arguments.config
    if chosen is None:
        paths = stems()
        loaded = _loaded(paths)
    else:
        paths = {chosen.stem: find(chosen)}
        loaded = {chosen.stem: load(chosen)}
    if arguments.names:
        print("\n".join(loaded))
    elif chosen is not None and not arguments.long:
        print(f"# {paths[chosen.stem]}")
        print(paths[chosen.stem].read_text(encoding="utf-8"), end="")
    else:
        _list(paths, loaded, arguments.long)
    return 0


def _list(paths: dict[str, Path], loaded: dict[str, Config], long: bool) -> None:
    """Prints a row for each configuration."""
    from jaxrl.formatting import count

    width = max(map(len, (*loaded, "stem")))
    more = f"{'act MFLOP':>10} {'learn MFLOP':>11} {'step MFLOP':>10} {'replay GB':>9}  " * long
    print(f"{'stem':<{width}} {'algorithm':<9} {'steps':>8} {'envs':>6}  {more}description")
    for stem, config in loaded.items():
        more = _costs(paths[stem], config) if long else ""
        print(f"{stem:<{width}} {config.algorithm:<9} {count(config.total_steps):>8} "
              f"{config.num_envs:>6}  {more}{describe(paths[stem])}")  # fmt: skip


def _costs(path: Path, config: Config) -> str:
    """Returns the columns of a configuration's price and of its replay."""
    from jaxrl.config.memory import memory_bytes

    try:
        price = _price(path, config)
        act, learn, step = map(_mflop, price)
    except UserError as error:  # training says the same
        print(f"no price of '{path}': {error}", file=sys.stderr)
        act = learn = step = "-"
    replay = f"{memory_bytes(config) / GB:.1f}" if config.agent.remembers_past else "-"
    return f"{act:>10} {learn:>11} {step:>10} {replay:>9}  "


def _mflop(flops: float) -> str:
    """Returns operations in millions, with about three digits."""
    number = flops / MFLOP
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def _price(path: Path, config: Config) -> "Price":
    """Returns the price of a file: from the table, or counted. Raises `UserError`."""
    from jaxrl.experiments.price import table

    if price := table.read(path):
        return price
    from jaxrl.config.validation import check

    check(config)
    import jax

    jax.config.update("jax_platforms", "cpu")  # nothing runs, so no accelerator is opened
    from jaxrl.experiments.price.count import count

    return count(config)


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
