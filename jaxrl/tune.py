"""What makes training fastest on this machine: measured before it begins, written as a TOML.

GA3C (Babaeizadeh 2017, section 4.4) changes its numbers of actors and threads while it trains. Here
each knob is tried in turn: a candidate takes turns with the best so far, and replaces it where it
is faster by more than the noise.
"""

import dataclasses
import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl import bench
from jaxrl.checks import check, rows_per_gradient
from jaxrl.config import Config, UserError

KNOBS = ("num_envs", "groups", "num_threads", "micro_batch")
GAIN = 1.03  # a candidate must be this much faster: less is noise


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate beside the best so far, in turns."""

    knob: str
    value: int
    steps_per_second: float  # median
    ratio: float  # to the best so far, median of the turns
    kept: bool


def _set(config: Config, knob: str, value: int) -> Config:
    if knob == "micro_batch":
        return dataclasses.replace(
            config, agent=dataclasses.replace(config.agent, micro_batch=value)
        )
    changes: dict[str, Any] = {knob: value}
    return dataclasses.replace(config, **changes)


def _candidates(config: Config, knob: str) -> list[int]:
    """Values to try, in order; those of num_envs go on as long as they help."""
    if knob == "num_envs":
        return [config.num_envs * 2, config.num_envs * 4, config.num_envs // 2]
    if knob == "groups":
        return [1 if config.groups > 1 else 2]
    cores = os.cpu_count() or 1
    if knob == "num_threads":
        return [n for n in (cores // 2, cores * 2) if n > 0]
    rows = rows_per_gradient(config, max(config.num_devices, 1))
    sizes = {max(n for n in range(1, min(rows, most) + 1) if rows % n == 0) for most in (16, 64)}
    return sorted(sizes | {rows})


def _fits(config: Config) -> bool:
    try:
        check(config)
    except UserError:
        return False
    return True


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
    try:
        for knob in knobs:
            for value in _candidates(config, knob):
                candidate = _set(config, knob, value)
                if candidate == config or not _fits(candidate):
                    continue
                load = bench.make_load(bench.prepare(candidate), "training")
                rates = bench.take_turns({"best": best, "new": load}, seconds, repeats)
                pairs = zip(rates["new"], rates["best"], strict=True)
                ratio = statistics.median(new / old for new, old in pairs)
                kept = ratio > GAIN
                tell(Trial(knob, value, statistics.median(rates["new"]), ratio, kept))
                (best if kept else load).close()
                if kept:
                    config, best = candidate, load
    finally:
        best.close()
    return config
