"""Checks of a machine, one after another, for `jaxrl doctor`.

Whatever can hang or kill a process runs in a separate process (`protocol`) with a time limit, so
that it costs a single line. Nothing heavy is imported here: a broken JAX is a result too.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from jaxrl.config.schema import Config
from jaxrl.experiments.doctor import host_checks
from jaxrl.experiments.doctor.host_checks import Check
from jaxrl.experiments.doctor.machine import Machine
from jaxrl.experiments.doctor.protocol import PROBES, Answer, ask
from jaxrl.experiments.doctor.replays import check_replays, recipes


def make_check(name: str, answer: Answer, machine: Machine) -> Check:
    """Returns the line of a probe."""
    mark, probe = answer["mark"], PROBES[name]
    needed = probe.needed(machine)
    if name == "EnvPool" and mark == "cross" and not needed:
        mark = "warning"
    remedy = "" if mark == "ok" else answer.get("remedy") or probe.remedy
    return Check(name, mark, answer["text"], remedy, needed, round(answer["seconds"], 1))


def compare_frames(answers: dict[str, Answer], machine: Machine) -> Check:
    """Checks that all ways to the emulators give the same frames, rewards and ends of games."""
    name = "equal frames"
    played = {way: answer["played"] for way, answer in answers.items() if answer.get("played")}
    if len(played) < 2:
        return Check(name, "warning", "cannot be determined: fewer than two ways play", "see above")
    (first, expected), *others = played.items()
    for way, steps in others:
        different = [
            step
            for step, pair in enumerate(zip(expected, steps, strict=True))
            if len(set(pair)) > 1
        ]
        if different:
            text = f"{way} and {first} differ from step {different[0]} on"
            return Check(name, "cross", text, PROBES[way].remedy, PROBES[way].needed(machine))
    text = f"{len(expected)} steps of {len(played)} ways: {', '.join(played)}"
    return Check(name, "ok", text, needed=True)


# --- all of it -----------------------------------------------------------------------------------


def diagnose(
    machine: Machine,
    directory: Path,
    show: Callable[[str], None],
    configs: Mapping[str, Config] | None = None,
) -> Generator[Check, None, None]:
    """Runs every check, and yields each as soon as it is done.

    Args:
      machine: described without its devices in this process (`describe_apart`).
      directory: directory that runs are to be written to.
      show: called with the name of each slow check.
      configs: those whose replays are to fit, by name; default is every one that has a replay.
    """
    yield host_checks.check_devices(machine)
    yield host_checks.check_versions(machine)
    yield host_checks.check_cores(machine)
    yield host_checks.check_compilers(machine)
    yield host_checks.check_memory(machine)
    yield check_replays(dataclasses.asdict(machine), recipes() if configs is None else configs)
    yield host_checks.check_disk(machine, directory)
    answers: dict[str, Answer] = {}
    # Without devices each of the other probes would hang.
    names = tuple(PROBES) if machine.platform is not None else ("EnvPool",)
    with contextlib.closing(ask(names, show)) as results:
        for name, answer in results:
            answers[name] = answer
            yield make_check(name, answer, machine)
            if name == "host callbacks":
                yield compare_frames(answers, machine)
    for name in PROBES:
        if name not in names:
            yield Check(name, "warning", "cannot be checked without devices", "see devices above")


def failures(checks: Sequence[Check]) -> list[Check]:
    """Returns the checks without which training does not work."""
    return [check for check in checks if check.mark == "cross" and check.needed]
