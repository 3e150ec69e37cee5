"""`jaxrl tune`."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxrl.cli.bench import check_timing
from jaxrl.cli.parsing import Recipe, Words, check_target
from jaxrl.config.overrides import with_value
from jaxrl.config.toml import to_toml
from jaxrl.errors import UserError
from jaxrl.formatting import shell_word
from jaxrl.runs.files import writing

if TYPE_CHECKING:
    from jaxrl.experiments.tune import Trial

STOPPED = "stopped before all was tried"


@dataclasses.dataclass(frozen=True)
class Tune(Recipe):
    """Search for the settings that train fastest on this machine, and write them as a TOML.

    The knobs are tried one after another. Each candidate takes turns with the best so far, and must
    be faster in every turn, by 3 % in the median. At the end it says for each knob which value it
    kept, and why. num_envs changes the recipe, not only its speed: leave it out of --knobs to keep
    the recipe. Settings that score better are found by jaxrl search.
    Example: jaxrl tune --config vtrace_cpu --game pong --output tuned.toml
    """

    knobs: tuple[Literal["num_envs", "groups", "num_threads", "micro_batch"], ...] = (
        "num_envs",
        "groups",
        "num_threads",
        "micro_batch",
    )
    """settings to try, in this order"""
    repeats: int = 3
    """turns of each candidate with the best so far"""
    seconds: float = 2.0
    """seconds of one turn of one candidate, about"""
    output: Path = Path("tuned.toml")
    """TOML to write: the whole configuration, with the figures measured"""
    words: Words = ()


def tune(arguments: Tune) -> int:
    """Searches, prints every trial and the best values, and writes the best configuration."""
    _check(arguments)
    from jaxrl.experiments.tune import KNOBS, search, summarize
    from jaxrl.training.display import Display

    trials: list[Trial] = []
    best = arguments.settings

    def report(trial: "Trial") -> None:
        nonlocal best
        trials.append(trial)
        if trial.accepted:
            best = with_value(best, KNOBS[trial.knob], trial.value)
        display.say(_line(trial))

    stopped = False
    try:
        with Display() as display:
            seconds, repeats = arguments.seconds, arguments.repeats
            search(arguments.settings, arguments.knobs, seconds, repeats, report, display)
    except KeyboardInterrupt:
        if best == arguments.settings:
            raise
        stopped = True
        print(f"jaxrl: {STOPPED}", file=sys.stderr)
    summary = summarize(arguments.settings, arguments.knobs, trials)
    command = shlex.join(["jaxrl", "tune", *arguments.words])
    lines = [f"found by: {command}", *summary, "in turns with the best so far:"]
    lines += [_line(trial) for trial in trials] + [STOPPED] * stopped
    text = "".join(f"# {line}\n" for line in lines) + to_toml(best)
    with writing(arguments.output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print("\n".join(summary))
    print(f"train with it: jaxrl train --config {shell_word(arguments.output)}")
    return 130 if stopped else 0


def _check(arguments: Tune) -> None:
    """Refuses options that try nothing, or would overwrite a file. Raises `UserError`."""
    check_timing(arguments.repeats, arguments.seconds)
    check_target(arguments.output, (".toml",))
    if not arguments.knobs:
        raise UserError("--knobs needs names: num_envs, groups, num_threads, micro_batch")
    if arguments.output.exists():
        raise UserError(f"'{arguments.output}' exists: choose another --output, or remove it")


def _line(trial: "Trial") -> str:
    """Returns a trial in one line."""
    figures = f"{trial.steps_per_second:,.0f} steps/s, {trial.ratio:.2f} of the best so far"
    return f"{trial.knob} = {trial.value}: {trial.refused or figures}{', kept' * trial.accepted}"
