"""The commands that measure: `jaxrl bench` and `jaxrl tune`."""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl import config as configuration
from jaxrl.arguments import at_least, check_target, parse_settings
from jaxrl.config import Config, UserError


@dataclasses.dataclass(frozen=True)
class BenchArguments:
    """Measure agent steps per second of three loads: emulation, inference, training.

    emulation: random actions; inference: the policy chooses; training: all of it. On Atari a
    fourth, loop, steps the same emulators from plain Python. The loads take turns; the figures
    are medians, and a share is of the first load's rate in the same turn. The last line says what
    a step of training takes its time for.
    Example: jaxrl bench --config configs/vtrace_cpu.toml --game pong --num-envs 40 --json
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file that the other options override"""
    repeats: int = 5
    """times that each load is measured, after a warm-up"""
    seconds: float = 2.0
    """seconds that one repeat of one load takes, about"""
    sweep: tuple[int, ...] = ()
    """numbers of environments to measure one after another, drawn into --output"""
    output: Path = Path("throughput.png")
    """PNG of a sweep: steps per second, and per environment, against environments"""
    profile: Path | None = None
    """directory for a trace of training by JAX's profiler, which TensorBoard and Perfetto show"""
    json: bool = False
    """print one JSON object instead of a table; of a sweep, a list of them"""


@dataclasses.dataclass(frozen=True)
class TuneArguments:
    """Search for what trains fastest on this machine, and write it as a TOML that train takes.

    One knob after another, each candidate takes turns with the best so far and must be 3 % faster.
    num_envs changes what is learned from, not only how fast: leave it out of --knobs to keep the
    recipe.
    Example: jaxrl tune --config configs/vtrace_cpu.toml --game pong --output tuned.toml
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


def bench(arguments: list[str]) -> int:
    """Measure agent steps per second under three loads, and name the bottleneck."""
    parsed = parse_settings(BenchArguments, "bench", arguments)
    _check_timing(parsed)
    if parsed.sweep:
        check_target(parsed.output, (".png",))
    if parsed.profile and parsed.profile.exists() and not parsed.profile.is_dir():
        raise UserError(f"'{parsed.profile}' is no directory: choose another --profile")
    from jaxrl import bench as benchmark

    config = parsed.settings
    if parsed.sweep:
        if parsed.profile:
            raise UserError("--profile traces one number of environments: leave out --sweep")
        return _sweep(parsed)
    rates = benchmark.measure(config, parsed.seconds, parsed.repeats, parsed.profile)
    if parsed.json:
        print(json.dumps(_object(config.num_envs, rates)))
        return 0
    _print_rates(rates)
    if parsed.profile:
        print(f"trace in {parsed.profile}: tensorboard --logdir {parsed.profile}")
    return 0


def _sweep(parsed: Any) -> int:
    """Prints each number of environments as soon as it is measured; draws those that were."""
    from jaxrl import bench as benchmark
    from jaxrl import plotting

    found = {}
    try:
        for num_envs, rates in benchmark.sweep(
            parsed.settings, parsed.sweep, parsed.seconds, parsed.repeats
        ):
            found[num_envs] = rates
            if not parsed.json:
                print(f"{num_envs} environments")
                _print_rates(rates)
    except UserError as error:
        if not found:
            raise
        print(f"jaxrl: {error}; the picture shows those before", file=sys.stderr)
    if parsed.json:
        print(json.dumps([_object(num_envs, rates) for num_envs, rates in found.items()]))
    drawn = {
        num_envs: {load: rate.steps_per_second for load, rate in rates.items()}
        for num_envs, rates in found.items()
    }
    plotting.throughput(drawn, parsed.output)
    print(parsed.output, file=sys.stderr)
    return 0


def _object(num_envs: int, rates: dict[str, Any]) -> dict[str, Any]:
    """What --json prints of one measurement."""
    from jaxrl import bench as benchmark

    return {
        "num_envs": num_envs,
        **{load: dataclasses.asdict(rate) for load, rate in rates.items()},
        "bottleneck": benchmark.bottleneck(rates),
        "time_shares": benchmark.time_shares(rates),
    }


def _print_rates(rates: dict[str, Any]) -> None:
    from jaxrl import bench as benchmark

    print(
        f"{'load':<10} {'steps/s':>9} {'lowest':>9} {'highest':>9} {'share':>6} {'compiled in':>12}"
    )
    for load, rate in rates.items():
        print(
            f"{load:<10} {rate.steps_per_second:>9,.0f} {rate.lowest:>9,.0f} "
            f"{rate.highest:>9,.0f} {rate.share:>6.3f} {rate.compile_seconds:>10.1f} s"
        )
    shares = benchmark.time_shares(rates)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"a step of training: {parts}; the bottleneck is {benchmark.bottleneck(rates)}")


def tune(arguments: list[str]) -> int:
    """Search for what trains fastest on this machine, and write it as a TOML."""
    parsed = parse_settings(TuneArguments, "tune", arguments)
    _check_timing(parsed)
    check_target(parsed.output, (".toml",))
    if parsed.output.exists():
        raise UserError(f"'{parsed.output}' exists: choose another --output, or remove it")
    from jaxrl import tune as tuning

    lines: list[str] = []

    def tell(trial: Any) -> None:
        figures = f"{trial.steps_per_second:,.0f} steps/s, {trial.ratio:.2f} of the best so far"
        line = f"{trial.knob} = {trial.value}: {trial.refused or figures}{', kept' * trial.kept}"
        lines.append(line)
        print(line, file=sys.stderr, flush=True)

    found = tuning.search(parsed.settings, parsed.knobs, parsed.seconds, parsed.repeats, tell)
    header = [f"found by: {shlex.join(['jaxrl', 'tune', *arguments])}", *lines]
    text = "".join(f"# {line}\n" for line in header) + configuration.to_toml(found)
    try:
        parsed.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{parsed.output}': {error}") from None
    print(f"train with it: jaxrl train --config {parsed.output}")
    return 0


def _check_timing(parsed: Any) -> None:
    at_least("repeats", parsed.repeats, 1)
    at_least("seconds", parsed.seconds, 0.01)
