"""The commands that measure: `jaxrl bench`, `jaxrl bench --suite` and `jaxrl tune`."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.atari.games import CATCH
from jaxrl.cli.parsing import at_least, check_target, parse_settings
from jaxrl.cli.suite import run_suite
from jaxrl.config.schema import Config
from jaxrl.errors import UserError

STOPPED = "stopped before all was tried"


@dataclasses.dataclass(frozen=True)
class BenchArguments:
    """Measure agent steps per second of three loads: emulation, inference, training.

    emulation: random actions; inference: the policy chooses; training: all of it. On Atari a
    fourth, loop, steps the same emulators from plain Python. The loads take turns; the figures
    are medians, and a share is of the first load's rate in the same turn. The last line says what
    a step of training takes its time for.
    Example: jaxrl bench --config configs/vtrace/vtrace_cpu.toml --game pong --num-envs 40 --json
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file that the other options override"""
    repeats: int = 5
    """times that each load is measured, after a warm-up"""
    seconds: float = 2.0
    """seconds that one repeat of one load takes, about"""
    loads: tuple[Literal["loop", "emulation", "inference", "training"], ...] = (
        "loop",
        "emulation",
        "inference",
        "training",
    )
    """which to measure; fewer compile faster"""
    sweep: tuple[int, ...] = ()
    """numbers of environments to measure one after another, drawn into --output"""
    output: Path = Path("throughput.png")
    """PNG of a sweep: steps per second, and per environment, against environments"""
    profile: Path | None = None
    """directory for a trace of training by JAX's profiler, which TensorBoard and Perfetto show"""
    json: bool = False
    """print one JSON object instead of a table; of a sweep, a list of them"""
    suite: bool = False
    """measure everything that a machine can do; `jaxrl bench --suite --help` lists its options"""


def bench(arguments: list[str]) -> int:
    """Measure agent steps per second under three loads, and name the bottleneck."""
    if "--suite" in arguments:
        return run_suite([word for word in arguments if word != "--suite"])
    parsed = parse_settings(BenchArguments, "bench", arguments)
    check_timing(parsed)
    if "--sweep" in arguments and not parsed.sweep:
        raise UserError("--sweep needs numbers of environments: --sweep 20 40 80")
    if not set(parsed.loads) - ({"loop"} if parsed.settings.game == CATCH else set()):
        raise UserError("--loads needs names: emulation, inference, training, on Atari also loop")
    if parsed.profile and "training" not in parsed.loads:
        raise UserError("--profile traces training: name it among --loads")
    if parsed.sweep:
        check_target(parsed.output, (".png",))
    if parsed.profile and parsed.profile.exists() and not parsed.profile.is_dir():
        raise UserError(f"'{parsed.profile}' is no directory: choose another --profile")
    from jaxrl.experiments.bench import measure
    from jaxrl.training.display import Display

    config = parsed.settings
    if parsed.sweep:
        if parsed.profile:
            raise UserError("--profile traces one number of environments: leave out --sweep")
        return _sweep(parsed)
    with Display() as display:
        rates = measure(
            config, parsed.seconds, parsed.repeats, display, parsed.profile, parsed.loads
        )
    if parsed.json:
        print(json.dumps(_object(config.num_envs, rates)))
        return 0
    _print_rates(rates)
    if parsed.profile:
        traces = sorted(parsed.profile.rglob("*.trace.json.gz"))
        print(f"for ui.perfetto.dev: {traces[-1]}")
    return 0


def _sweep(parsed: Any) -> int:
    """Prints each number of environments as soon as it is measured; draws those that were."""
    from jaxrl.analysis import bench_charts
    from jaxrl.experiments import bench as benchmark
    from jaxrl.training.display import Display

    found, status = {}, 0
    try:
        with Display() as display:
            for num_envs, rates in benchmark.sweep(
                parsed.settings, parsed.sweep, parsed.seconds, parsed.repeats, display, parsed.loads
            ):
                found[num_envs] = rates
                if not parsed.json:
                    print(f"{num_envs} environments")
                    _print_rates(rates)
    except (UserError, KeyboardInterrupt) as error:
        if not found:
            raise
        status = 130 if isinstance(error, KeyboardInterrupt) else 0
        print(f"jaxrl: {str(error) or 'stopped'}; the picture shows those before", file=sys.stderr)
    if parsed.json:
        print(json.dumps([_object(num_envs, rates) for num_envs, rates in found.items()]))
    drawn = {
        num_envs: {load: rate.steps_per_second for load, rate in rates.items()}
        for num_envs, rates in found.items()
    }
    config = parsed.settings
    title = f"{config.algorithm} on {config.game}, {config.network.torso} network, "
    title += config.parallel.order
    bench_charts.throughput(drawn, parsed.output, title + f", groups: {config.parallel.groups}")
    print(parsed.output, file=sys.stderr)
    return status


def _object(num_envs: int, rates: dict[str, Any]) -> dict[str, Any]:
    """What --json prints of one measurement."""
    from jaxrl.experiments.bench import SHARED, bottleneck, time_shares

    loads = {load: dataclasses.asdict(rate) for load, rate in rates.items()}
    if set(SHARED) - set(rates):
        return {"num_envs": num_envs, **loads}
    return {
        "num_envs": num_envs,
        **loads,
        "bottleneck": bottleneck(rates),
        "time_shares": time_shares(rates),
    }


def _print_rates(rates: dict[str, Any]) -> None:
    from jaxrl.experiments.bench import SHARED, bottleneck, time_shares

    print(
        f"{'load':<10} {'steps/s':>9} {'lowest':>9} {'highest':>9} {'share':>6} {'compiled in':>12}"
    )
    for load, rate in rates.items():
        print(
            f"{load:<10} {rate.steps_per_second:>9,.0f} {rate.lowest:>9,.0f} "
            f"{rate.highest:>9,.0f} {rate.share:>6.3f} "
            + (f"{rate.compile_seconds:>10.1f} s" if rate.compile_seconds else f"{'-':>12}")
        )
    training = rates.get("training")
    if training is not None and training.bytes_per_update:
        print(f"between devices: {training.bytes_per_update / 1e6:.2f} MB per update, "
              f"in {training.all_reduces_per_update:g} all-reduces")  # fmt: skip
    if set(SHARED) - set(rates):
        return
    shares = time_shares(rates)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"a step of training: {parts}; the bottleneck is {bottleneck(rates)}")
    if 0 in shares.values():
        print("0%: hidden behind the emulators, or less than the noise (more --seconds tell)")


def check_timing(parsed: Any) -> None:
    """Refuses repetitions and durations that measure nothing."""
    at_least("repeats", parsed.repeats, 1)
    at_least("seconds", parsed.seconds, 0.01)
