"""`jaxrl bench`: the rates of emulation, inference and training."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jaxrl.atari.games import atari_games
from jaxrl.cli.parsing import Recipe, Words, at_least, check_target
from jaxrl.errors import UserError
from jaxrl.runs.files import check_is_directory

if TYPE_CHECKING:
    from jaxrl.experiments.bench import Rate


@dataclasses.dataclass(frozen=True)
class Bench(Recipe):
    """Measure agent steps per second of emulation, inference and training.

    emulation: random actions; inference: the policy chooses; training: all of it. On Atari a
    fourth, loop, steps EnvPool's emulators from plain Python. The loads take turns; the figures
    are medians, and a share is of the first load's rate in the same turn. The last line divides the
    time of a training step and names the bottleneck.
    Example: jaxrl bench --config vtrace_cpu --game pong --num-envs 40 --json
    """

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
    """loads to measure; fewer compile faster"""
    sweep: tuple[int, ...] = ()
    """numbers of environments to measure one after another, drawn into --output"""
    output: Path = Path("throughput.png")
    """PNG of a sweep: steps per second, in all and per environment, against environments"""
    profile: Path | None = None
    """directory for a trace of training by JAX's profiler, which TensorBoard and Perfetto show"""
    json: bool = False
    """print one JSON object instead of a table; of a sweep, a list of them"""
    suite: bool = False
    """measure everything that a machine can do; `jaxrl bench --suite --help` lists its options"""
    words: Words = ()


def bench(arguments: Bench) -> int:
    """Times the loads, once or for several numbers of environments, and prints their rates."""
    _check(arguments)
    if arguments.sweep:
        return _sweep(arguments)
    from jaxrl.experiments.bench import measure
    from jaxrl.training.display import Display

    config, profile = arguments.settings, arguments.profile
    with Display() as display:
        rates = measure(
            config, arguments.seconds, arguments.repeats, display, profile, arguments.loads
        )
    if arguments.json:
        print(json.dumps(_object(config.num_envs, rates)))
        return 0
    _print_rates(rates)
    if profile:
        traces = sorted(profile.rglob("*.trace.json.gz"))
        print(f"for ui.perfetto.dev: {traces[-1]}")
    return 0


def _check(arguments: Bench) -> None:
    """Refuses options that measure nothing, or exclude each other. Raises `UserError`."""
    check_timing(arguments.repeats, arguments.seconds)
    if "--sweep" in arguments.words and not arguments.sweep:
        raise UserError("--sweep needs numbers of environments: --sweep 20 40 80")
    if not set(arguments.loads) - (
        {"loop"} if arguments.settings.game not in atari_games() else set()
    ):
        raise UserError("--loads needs names: emulation, inference, training, on Atari also loop")
    if arguments.sweep:
        check_target(arguments.output, (".png",))
    if not arguments.profile:
        return
    if "training" not in arguments.loads:
        raise UserError("--profile traces training: name it among --loads")
    check_is_directory(arguments.profile, "--profile")
    if arguments.sweep:
        raise UserError("--profile traces one number of environments: leave out --sweep")


def _sweep(arguments: Bench) -> int:
    """Prints each number of environments as soon as it is measured; draws those that were."""
    from jaxrl.analysis import bench_charts
    from jaxrl.experiments import bench as benchmark
    from jaxrl.training.display import Display

    measured, status = {}, 0
    try:
        with Display() as display:
            for num_envs, rates in benchmark.sweep(
                arguments.settings,
                arguments.sweep,
                arguments.seconds,
                arguments.repeats,
                display,
                arguments.loads,
            ):
                measured[num_envs] = rates
                if not arguments.json:
                    print(f"{num_envs} environments")
                    _print_rates(rates)
    except (UserError, KeyboardInterrupt) as error:
        if not measured:
            raise
        status = 130 if isinstance(error, KeyboardInterrupt) else 0
        print(f"jaxrl: {str(error) or 'stopped'}; the picture shows those before", file=sys.stderr)
    drawn = {
        num_envs: {load: rate.steps_per_second for load, rate in rates.items()}
        for num_envs, rates in measured.items()
    }
    config = arguments.settings
    title = (
        f"{config.algorithm} on {config.game}, {config.network.torso} network, "
        f"{config.parallel.order}, groups: {config.parallel.groups}"
    )
    try:
        bench_charts.throughput(drawn, arguments.output, title)
    finally:
        if arguments.json:
            print(json.dumps([_object(num_envs, rates) for num_envs, rates in measured.items()]))
    print(arguments.output, file=sys.stderr)
    return status


def _object(num_envs: int, rates: "dict[str, Rate]") -> dict[str, Any]:
    """Returns the object that --json prints for one measurement."""
    from jaxrl.experiments.bench import SHARED, bottleneck, time_shares

    table: dict[str, Any] = {"num_envs": num_envs}
    table |= {load: dataclasses.asdict(rate) for load, rate in rates.items()}
    if not set(SHARED) - set(rates):
        table |= {"bottleneck": bottleneck(rates), "time_shares": time_shares(rates)}
    return table


def _print_rates(rates: "dict[str, Rate]") -> None:
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
        size = training.bytes_per_update + training.gathered_bytes_per_update
        print(f"between devices: {size / 1e6:.2f} MB per update, "
              f"in {training.all_reduces_per_update:g} all-reduces "
              f"and {training.all_gathers_per_update:g} all-gathers")  # fmt: skip
    if set(SHARED) - set(rates):
        return
    shares = time_shares(rates)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"a step of training: {parts}; the bottleneck is {bottleneck(rates)}")
    if 0 in shares.values():
        print("0%: hidden behind the emulators, or less than the noise (more --seconds show it)")


def check_timing(repeats: int, seconds: float) -> None:
    """Refuses repetitions and durations that measure nothing."""
    at_least("repeats", repeats, 1)
    at_least("seconds", seconds, 0.01)
