"""Search for the settings that train fastest on this machine, before training begins.

GA3C (Babaeizadeh 2017, section 4.4) changes its numbers of actors and threads while it trains. Here
each knob is tried in turn: a candidate takes turns with the best so far, and replaces it where it
is faster in every turn, and by more than the noise.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import jax

from jaxrl.config.overrides import value_of, with_value
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.experiments import bench
from jaxrl.runtime import cpus
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training.display import Display

# Dotted keys by the names of the knobs, in the order in which they are tried.
KNOBS = {
    "num_envs": "num_envs",
    "groups": "parallel.groups",
    "num_threads": "env.num_threads",
    "micro_batch": "agent.micro_batch",
}
GAIN = 1.03  # a candidate must be this much faster: less is noise


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate beside the best so far, in turns."""

    knob: str
    value: int
    steps_per_second: float = 0.0  # median
    ratio: float = 0.0  # to the best so far, median of the turns
    accepted: bool = False  # whether it is the best so far from now on
    refused: str = ""  # why it cannot train


def _candidates(config: Config, knob: str, num_devices: int) -> list[int]:
    """Returns the values to try next; num_envs doubles as long as that helps."""
    if knob == "num_envs":
        return [config.num_envs * 2, config.num_envs // 2]
    if knob == "groups":
        return [1, 2]
    if knob == "num_threads":
        cores = cpus.count() // num_devices
        return [0, *(n for n in (cores // 2, cores * 2) if n > 0)]  # 0: as many as cores
    items = resolve(config, num_devices).batch_per_learner
    most = [max(1, min(items, limit // config.agent.steps_per_row)) for limit in (16, 64)]
    sizes = {max(n for n in range(1, limit + 1) if items % n == 0) for limit in most}
    return [0, *sorted(sizes | {items})]  # 0: the platform's choice


def _load(config: Config, num_devices: int) -> bench.Load:
    """Returns a load that trains the candidate. Raises `UserError` where it cannot train."""
    check(config)
    resolve(config, num_devices)
    try:
        return bench.make_load(bench.prepare(config), "training")
    except jax.errors.JaxRuntimeError as error:
        bench.refuse_out_of_memory(error)


def _race(
    best: bench.Load, load: bench.Load, seconds: float, repeats: int
) -> tuple[float, list[float]]:
    """Returns the median steps per second of `load`, and its ratio to `best` in every turn."""
    try:
        rates = bench.take_turns({"best": best, "new": load}, seconds, repeats)
    except jax.errors.JaxRuntimeError as error:  # alone it fits, beside the best it may not
        bench.refuse_out_of_memory(error)
    pairs = zip(rates["new"], rates["best"], strict=True)
    return statistics.median(rates["new"]), [new / old for new, old in pairs]


def search(
    config: Config,
    knobs: Sequence[str],
    seconds: float,
    repeats: int,
    report: Callable[[Trial], None],
    display: Display,
) -> Config:
    """Returns the configuration whose knobs train fastest.

    The knobs of KNOBS are tried in their order, each candidate in turns of `seconds` with the best
    so far, which is `config` at first. `report` is called with every trial.
    """
    with display.busy("start: starting and compiling"):
        best = bench.make_load(bench.prepare(config), "training")
    num_devices = make_mesh(config.parallel.num_devices).size
    try:
        for knob in knobs:
            tried = {value_of(config, KNOBS[knob])}
            while left := [n for n in _candidates(config, knob, num_devices) if n not in tried]:
                tried.add(left[0])
                candidate = with_value(config, KNOBS[knob], left[0])
                display.show(f"{knob} = {left[0]}: starting, compiling, {repeats} turns ...")
                try:
                    load = _load(candidate, num_devices)
                except UserError as error:
                    report(Trial(knob, left[0], refused=str(error)))
                    continue
                trial = Trial(knob, left[0])
                try:
                    median, ratios = _race(best, load, seconds, repeats)
                    ratio = statistics.median(ratios)
                    accepted = ratio > GAIN and min(ratios) > 1
                    trial = Trial(knob, left[0], median, ratio, accepted)
                except UserError as error:
                    trial = Trial(knob, left[0], refused=str(error))
                finally:
                    (best if trial.accepted else load).close()
                report(trial)
                if trial.accepted:
                    config, best = candidate, load
                del load  # its arrays make room for the next
    finally:
        best.close()
    return config


def summarize(config: Config, knobs: Sequence[str], trials: Sequence[Trial]) -> list[str]:
    """Returns a line for each knob: the value that is the best, and by how much it is faster.

    `config` is the first configuration; the search of the trials may have been stopped.
    """
    return [
        _outcome(knob, value_of(config, KNOBS[knob]), [t for t in trials if t.knob == knob])
        for knob in knobs
    ]


def _outcome(knob: str, before: int, trials: list[Trial]) -> str:
    """Returns which value of a knob is the best, and why."""
    accepted, raced = [t for t in trials if t.accepted], [t for t in trials if not t.refused]
    if accepted:
        ratio = math.prod(trial.ratio for trial in accepted)
        return f"{knob} = {accepted[-1].value}: kept, {ratio:.2f} times as fast as {before}"
    stays = f"{knob} = {before}: stays,"
    if not trials:
        return f"{stays} nothing else was tried"
    if not raced:
        return f"{stays} nothing else can train"
    best = max(raced, key=lambda trial: trial.ratio)
    if best.ratio > GAIN:
        return f"{stays} {best.value} was {best.ratio:.2f} times as fast, but not in every turn"
    nearest = f"{best.value} came nearest with {best.ratio:.2f} times its speed"
    return f"{stays} nothing was {100 * (GAIN - 1):.0f} % faster: {nearest}"
