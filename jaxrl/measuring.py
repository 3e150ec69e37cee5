"""The commands that measure: `jaxrl bench`, `jaxrl bench --suite` and `jaxrl tune`."""

import dataclasses
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jaxrl import config as configuration
from jaxrl.arguments import at_least, check_target, parse, parse_settings
from jaxrl.config import CATCH, Config
from jaxrl.errors import UserError

if TYPE_CHECKING:
    from jaxrl.suite import Member
    from jaxrl.suite_table import Record

STOPPED = "stopped before all was tried"


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


@dataclasses.dataclass(frozen=True)
class SuiteArguments:
    """Measure everything that a machine can do, most valuable first, in a limited time.

    Each member is a `jaxrl` command in a process with a time limit. One that hangs or dies is
    named with its last line, and the others go on. The same command again goes on where the first
    ended, and tries last what failed, once more. OUTPUT/results.md has the table, results.json the
    figures, logs/ the words of each member. Without an accelerator all is smaller.
    Run it where configs/ is.
    Example: jaxrl bench --suite --minutes 9
    """

    minutes: float = 9.0
    """minutes in which it ends; what does not fit is not begun"""
    output: Path = Path("suite")
    """directory of the results"""
    only: tuple[str, ...] = ()
    """members to measure, those that are done too; default is all"""
    list: bool = False
    """list the members in their order, and how far they are; measure nothing"""
    size: Literal["auto", "small", "full"] = "auto"
    """full for an accelerator, small to try it out; auto chooses"""


@dataclasses.dataclass(frozen=True)
class TuneArguments:
    """Search for what trains fastest on this machine, and write it as a TOML that train takes.

    One knob after another, each candidate takes turns with the best so far and must be faster in
    every turn, and by 3 %. num_envs changes what is learned from, not only how fast: leave it out
    of --knobs to keep the recipe.
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
    if "--suite" in arguments:
        return _suite([word for word in arguments if word != "--suite"])
    parsed = parse_settings(BenchArguments, "bench", arguments)
    _check_timing(parsed)
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
    from jaxrl import bench as benchmark
    from jaxrl.progress import Display

    config = parsed.settings
    if parsed.sweep:
        if parsed.profile:
            raise UserError("--profile traces one number of environments: leave out --sweep")
        return _sweep(parsed)
    with Display() as display:
        rates = benchmark.measure(
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
    from jaxrl import bench as benchmark
    from jaxrl import plotting
    from jaxrl.progress import Display

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
    title = f"{config.algorithm} on {config.game}, {config.network.torso} network, {config.order}"
    plotting.throughput(drawn, parsed.output, title + f", groups: {config.groups}")
    print(parsed.output, file=sys.stderr)
    return status


def _suite(arguments: list[str]) -> int:
    """Measures the members of the suite that fit into the time."""
    began = time.monotonic()
    parsed = parse(SuiteArguments, "bench --suite", arguments)
    at_least("minutes", parsed.minutes, 0.01)
    from jaxrl import suite, suite_records, suite_run
    from jaxrl.progress import Display
    from jaxrl.sweep import Stop

    if "--only" in arguments and not parsed.only:
        raise UserError("--only needs names: jaxrl bench --suite --list has them")
    if not parsed.list:
        suite_run.settle(parsed.output)
    machine = suite_run.probe()
    _check_accelerator(parsed.size, machine)
    size = suite.size_of(parsed.size, machine["platform"])
    members = suite.plan(size, machine["num_devices"], suite.custom_call(machine))
    only = suite.chosen(members, parsed.only)
    for member in members:
        configuration.load(Path(member.recipe))
    suite_records.check_output(parsed.output, size.name, machine)
    if parsed.list:
        _list(only, suite_records.read(parsed.output))
        return 0
    with suite_records.held(parsed.output), Stop().watching() as stop:
        deadline = began + 60 * parsed.minutes
        session = suite_run.Session(parsed.output, size.name, machine, deadline, stop)
        with Display() as display:
            records = suite_run.run(members, session, display, only if parsed.only else None)
        return _summary(only, records, session, ["--suite", *arguments])


def _check_accelerator(size: str, machine: dict[str, Any]) -> None:
    """Refuses to measure a CPU where an accelerator is meant. Raises `UserError`."""
    meant = machine.get("driver") and size == "auto" and not os.environ.get("JAX_PLATFORMS")
    if meant and machine["platform"] == "cpu":
        raise UserError("JAX does not use the accelerator: see `jaxrl doctor`, or add --size small")


def _list(members: "list[Member]", records: "dict[str, Record]") -> None:
    """Prints the members in their order, with what there is of each."""
    from jaxrl import suite_records

    for place, member in enumerate(members, start=1):
        record = suite_records.counted(member, records)
        state = record.state if record else "new"
        print(
            f"{place:>4}  {state:<7} {member.seconds:>4.0f} s  {member.name:<18} {member.command}"
        )


def _summary(
    members: "list[Member]", records: "dict[str, Record]", session: Any, arguments: list[str]
) -> int:
    """Prints each result and how to go on; returns the exit status."""
    from jaxrl import suite_records, suite_table

    found = [records[member.name] for member in members if member.name in records]
    for record in found:
        print(f"{record.name:<18} {suite_table.outcome(record)}")
    print(session.output / suite_table.TABLE)
    left = [member.name for member in suite_records.queue(members, records)]
    if left:
        again = shlex.join(["jaxrl", "bench", *_only_left(arguments, left)])
        print(f"left: {', '.join(left)}; go on with: {again}", file=sys.stderr)
    if session.stop.signal is not None:
        return 128 + int(session.stop.signal)
    return int(any(record.state == "failed" for record in found))


def _only_left(arguments: list[str], left: list[str]) -> list[str]:
    """Returns the arguments with the members that are left after `--only`, if they have it."""
    kept, named = [], False
    for word in arguments:
        named = word == "--only" if word.startswith("--") else named
        if not named:
            kept.append(word)
    return [*kept, "--only", *left] if "--only" in arguments else arguments


def _object(num_envs: int, rates: dict[str, Any]) -> dict[str, Any]:
    """What --json prints of one measurement."""
    from jaxrl import bench as benchmark

    loads = {load: dataclasses.asdict(rate) for load, rate in rates.items()}
    if set(benchmark.SHARED) - set(rates):
        return {"num_envs": num_envs, **loads}
    return {
        "num_envs": num_envs,
        **loads,
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
            f"{rate.highest:>9,.0f} {rate.share:>6.3f} "
            + (f"{rate.compile_seconds:>10.1f} s" if rate.compile_seconds else f"{'-':>12}")
        )
    training = rates.get("training")
    if training is not None and training.bytes_per_update:
        print(f"between devices: {training.bytes_per_update / 1e6:.2f} MB per update, "
              f"in {training.all_reduces_per_update:g} all-reduces")  # fmt: skip
    if set(benchmark.SHARED) - set(rates):
        return
    shares = benchmark.time_shares(rates)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"a step of training: {parts}; the bottleneck is {benchmark.bottleneck(rates)}")
    if 0 in shares.values():
        print("0%: hidden behind the emulators, or less than the noise (more --seconds tell)")


def tune(arguments: list[str]) -> int:
    """Search for what trains fastest on this machine, and write it as a TOML."""
    parsed = parse_settings(TuneArguments, "tune", arguments)
    _check_timing(parsed)
    check_target(parsed.output, (".toml",))
    if not parsed.knobs:
        raise UserError("--knobs needs names: num_envs, groups, num_threads, micro_batch")
    if parsed.output.exists():
        raise UserError(f"'{parsed.output}' exists: choose another --output, or remove it")
    from jaxrl import tune as tuning
    from jaxrl.progress import Display

    lines: list[str] = []
    found = parsed.settings

    def tell(trial: Any) -> None:
        nonlocal found
        figures = f"{trial.steps_per_second:,.0f} steps/s, {trial.ratio:.2f} of the best so far"
        line = f"{trial.knob} = {trial.value}: {trial.refused or figures}{', kept' * trial.kept}"
        lines.append(line)
        if trial.kept:
            found = tuning.with_value(found, trial.knob, trial.value)
        display.say(line)

    try:
        with Display() as display:
            tuning.search(
                parsed.settings, parsed.knobs, parsed.seconds, parsed.repeats, tell, display
            )
    except KeyboardInterrupt:
        if found == parsed.settings:
            raise
        lines.append(STOPPED)
        print(f"jaxrl: {STOPPED}", file=sys.stderr)
    header = [f"found by: {shlex.join(['jaxrl', 'tune', *arguments])}", *lines]
    text = "".join(f"# {line}\n" for line in header) + configuration.to_toml(found)
    try:
        parsed.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{parsed.output}': {error}") from None
    print(f"train with it: jaxrl train --config {parsed.output}")
    return 130 if lines[-1:] == [STOPPED] else 0


def _check_timing(parsed: Any) -> None:
    at_least("repeats", parsed.repeats, 1)
    at_least("seconds", parsed.seconds, 0.01)
