"""`jaxrl tune`."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.cli.bench import STOPPED, check_timing
from jaxrl.cli.parsing import check_target, parse_settings
from jaxrl.config.schema import Config
from jaxrl.config.toml import to_toml
from jaxrl.errors import UserError


@dataclasses.dataclass(frozen=True)
class TuneArguments:
    """Search for what trains fastest on this machine, and write it as a TOML that train takes.

    One knob after another, each candidate takes turns with the best so far and must be faster in
    every turn, and by 3 %. num_envs changes what is learned from, not only how fast: leave it out
    of --knobs to keep the recipe.
    Example: jaxrl tune --config configs/vtrace/vtrace_cpu.toml --game pong --output tuned.toml
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file that the other options override"""
    knobs: tuple[Literal["num_envs", "groups", "num_threads", "micro_batch"], ...] = (
        "num_envs",
        "groups",
        "num_threads",
        "micro_batch",
    )
    """what to try, in this order"""
    repeats: int = 3
    """turns of each candidate with the best so far"""
    seconds: float = 2.0
    """seconds of one turn of one candidate, about"""
    output: Path = Path("tuned.toml")
    """TOML to write: the whole configuration, with the figures measured"""


def tune(arguments: list[str]) -> int:
    """Search for what trains fastest on this machine, and write it as a TOML."""
    parsed = parse_settings(TuneArguments, "tune", arguments)
    check_timing(parsed)
    check_target(parsed.output, (".toml",))
    if not parsed.knobs:
        raise UserError("--knobs needs names: num_envs, groups, num_threads, micro_batch")
    if parsed.output.exists():
        raise UserError(f"'{parsed.output}' exists: choose another --output, or remove it")
    from jaxrl.experiments.tune import search, with_value
    from jaxrl.training.display import Display

    lines: list[str] = []
    found = parsed.settings

    def tell(trial: Any) -> None:
        nonlocal found
        figures = f"{trial.steps_per_second:,.0f} steps/s, {trial.ratio:.2f} of the best so far"
        line = f"{trial.knob} = {trial.value}: {trial.refused or figures}{', kept' * trial.kept}"
        lines.append(line)
        if trial.kept:
            found = with_value(found, trial.knob, trial.value)
        display.say(line)

    try:
        with Display() as display:
            search(parsed.settings, parsed.knobs, parsed.seconds, parsed.repeats, tell, display)
    except KeyboardInterrupt:
        if found == parsed.settings:
            raise
        lines.append(STOPPED)
        print(f"jaxrl: {STOPPED}", file=sys.stderr)
    header = [f"found by: {shlex.join(['jaxrl', 'tune', *arguments])}", *lines]
    text = "".join(f"# {line}\n" for line in header) + to_toml(found)
    try:
        parsed.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{parsed.output}': {error}") from None
    print(f"train with it: jaxrl train --config {parsed.output}")
    return 130 if lines[-1:] == [STOPPED] else 0
