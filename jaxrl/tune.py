"""What makes training fastest on this machine: measured before it begins, written as a TOML.

GA3C (Babaeizadeh 2017, section 4.4) changes its numbers of actors and threads while it trains. Here
each knob is tried in turn: a candidate takes turns with the best so far, and replaces it where it
is faster by more than the noise.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxrl import bench
from jaxrl.checks import check, check_divides, rows_per_gradient
from jaxrl.config import Config, UserError
from jaxrl.distribute import make_mesh

KNOBS = ("num_envs", "groups", "num_threads", "micro_batch")
GAIN = 1.03  # a candidate must be this much faster: less is noise


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate beside the best so far, in turns."""

    knob: str
    value: int
    steps_per_second: float  # median; 0 where it does not fit
    ratio: float  # to the best so far, median of the turns
    kept: bool


def _get(config: Config, knob: str) -> int:
    value: int = getattr(config.agent if knob == "micro_batch" else config, knob)
    return value


def _set(config: Config, knob: str, value: int) -> Config:
    changes: dict[str, Any] = {knob: value}
    if knob == "micro_batch":
        return dataclasses.replace(config, agent=dataclasses.replace(config.agent, **changes))
    return dataclasses.replace(config, **changes)


def _candidates(config: Config, knob: str, num_devices: int) -> list[int]:
    """Values worth trying from here; numbers of environments grow on as long as that helps."""
    if knob == "num_envs":
        return [config.num_envs * 2, config.num_envs // 2]
    if knob == "groups":
        return [1, 2]
    if knob == "num_threads":
        cores = bench.num_cores() // num_devices
        return [n for n in (cores // 2, cores * 2) if n > 0]
    rows = rows_per_gradient(config, num_devices)
    sizes = {max(n for n in range(1, min(rows, most) + 1) if rows % n == 0) for most in (16, 64)}
    return sorted(sizes | {rows})


def _load(config: Config, num_devices: int) -> bench.Load | None:
    """Ready to train; None where the candidate cannot."""
    try:
        check(config)
        check_divides(config, num_devices)
        return bench.make_load(bench.prepare(config), "training")
    except (UserError, jax.errors.JaxRuntimeError):  # the latter: out of memory
        return None


def search(
    config: Config,
    knobs: Sequence[str],
    seconds: float,
    repeats: int,
    tell: Callable[[Trial], None],
) -> Config:
    """The configuration with the knobs that train fastest.

    Args:
      config: where the search begins.
      knobs: of KNOBS, tried in this order.
      seconds: of one repeat of one candidate, about.
      repeats: of each candidate, in turns with the best so far.
      tell: hears of every trial.
    """
    best = bench.make_load(bench.prepare(config), "training")
    num_devices = make_mesh(config.num_devices).size
    try:
        for knob in knobs:
            tried = {_get(config, knob)}
            while left := [n for n in _candidates(config, knob, num_devices) if n not in tried]:
                tried.add(left[0])
                candidate = _set(config, knob, left[0])
                load = _load(candidate, num_devices)
                if load is None:
                    tell(Trial(knob, left[0], 0.0, 0.0, kept=False))
                    continue
                kept, ratio, median = False, 0.0, 0.0
                try:
                    rates = bench.take_turns({"best": best, "new": load}, seconds, repeats)
                    pairs = zip(rates["new"], rates["best"], strict=True)
                    ratio = statistics.median(new / old for new, old in pairs)
                    kept, median = ratio > GAIN, statistics.median(rates["new"])
                except jax.errors.JaxRuntimeError:  # out of memory, beside the best so far
                    pass
                finally:
                    (best if kept else load).close()
                tell(Trial(knob, left[0], median, ratio, kept))
                if kept:
                    config, best = candidate, load
                del load  # its arrays make room for the next
    finally:
        best.close()
    return config
