"""`jaxrl evaluate` and `jaxrl compare`."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jaxrl.cli.outcome import print_error
from jaxrl.cli.parsing import (
    Output,
    Protocol,
    RunDirs,
    at_least,
    check_runs,
    check_target,
)
from jaxrl.errors import StorageError, UserError
from jaxrl.formatting import games
from jaxrl.runs import layout
from jaxrl.runs.checkpoint_files import lacks_checkpoints, named
from jaxrl.runs.paths import expand, is_policy

if TYPE_CHECKING:
    from jaxrl.runs.evaluation_record import Evaluation


@dataclass(frozen=True)
class Evaluate:
    """Play whole games by a named protocol and report their unclipped scores.

    noop: up to 30 no-ops at the start (Mnih 2015), no sticky actions. sticky: actions repeat with
    probability 0.25 (Machado 2018). Both play at most 108,000 frames, with unclipped scores.
    The set of actions, and who presses FIRE at the start and after a lost life, stay as they were
    in training. The result goes to evaluations/PROTOCOL.json and
    evaluation.json in the run directory, or to the file of --output.
    Several runs are aggregated over games and seeds, by configuration: median, interquartile mean,
    mean and optimality gap of human-normalized scores, with 95 % stratified bootstrap intervals
    (Agarwal 2021).
    Example: jaxrl evaluate runs/x --episodes 30 --protocol noop --json
    """

    runs: RunDirs
    """run directories or policies; a folder of runs, such as a sweep's, stands for those in it"""
    episodes: int = 30
    """games to play with each run"""
    protocol: Protocol | None = None
    """how games start and whether actions stick; default is the protocol that is like training:
    sticky where actions were sticky, else noop"""
    seed: int = 0
    """seed of the games and the actions"""
    epsilon: float | None = None
    """probability of a random action, of value-based agents, from 0 to 1; default is the run's
    agent.evaluation_epsilon. 0.05 (Mnih 2015), 0.001 (Bellemare 2017)"""
    checkpoint: str | None = None
    """checkpoint to play: its agent step, latest or best; default is the latest"""
    recorded: bool = False
    """play nothing, and take the evaluation that is there: the newest, or that by --protocol"""
    json: bool = False
    """print evaluation.json instead of a sentence; for several runs, one object"""
    output: Output = None
    """PNG to write, for several runs: aggregates and performance profiles; or JSON, which takes the
    scores instead of the run directories"""


def evaluate(arguments: Evaluate) -> int:
    """Prints the evaluation of one run, or the aggregates of several."""
    _check(arguments)
    lacks = None if arguments.recorded else lacks_checkpoints
    run_dirs = check_runs(expand(arguments.runs, lacks), "evaluate")
    if arguments.output:
        check_target(arguments.output, (".png", ".json"))
    if not arguments.recorded and arguments.protocol is None:
        arguments = dataclasses.replace(arguments, protocol=_like_training(run_dirs))
    elsewhere = arguments.output is not None and arguments.output.suffix == ".json"
    if not (arguments.recorded or elsewhere):
        _warn_of_unwritable(run_dirs)
    evaluations, status = _evaluations(run_dirs, arguments)
    if len(run_dirs) > 1 or (arguments.output and not elsewhere):
        _print_aggregates(evaluations, arguments)
    elif arguments.json:
        print(_as_json(evaluations, several=False))
    if elsewhere and not (arguments.json or status):
        print(arguments.output)
    return status


def _check(arguments: Evaluate) -> None:
    """Refuses numbers out of range, and options that exclude each other. Raises `UserError`."""
    at_least("episodes", arguments.episodes, 1)
    at_least("seed", arguments.seed, 0)
    if arguments.epsilon is None:
        return
    if not 0 <= arguments.epsilon <= 1:
        raise UserError(f"--epsilon {arguments.epsilon}: must be from 0 to 1, a probability")
    if arguments.recorded:
        raise UserError("--epsilon: --recorded plays nothing: leave one of them out")


def _like_training(run_dirs: list[Path]) -> Protocol:
    """Returns the protocol that is like training. Raises `UserError` where runs differ in it."""
    from jaxrl.runs.directory import load_config
    from jaxrl.runs.evaluation_record import protocol_of

    protocols = {protocol_of(load_config(run_dir)) for run_dir in run_dirs}
    if len(protocols) > 1:
        raise UserError("some of these runs were trained with sticky actions, some without: name "
                        "one --protocol for all")  # fmt: skip
    return "sticky" if "sticky" in protocols else "noop"


def _warn_of_unwritable(run_dirs: list[Path]) -> None:
    """Says before the games of which runs the scores will be printed only."""
    from jaxrl.runs import evaluation_record

    for run_dir in run_dirs:
        reason = "" if is_policy(run_dir) else evaluation_record.unwritable(run_dir)
        if reason:
            print(f"warning: '{run_dir}' cannot be written ({reason}): its scores will be printed, "
                  "and not saved; --output scores.json saves them elsewhere",
                  file=sys.stderr)  # fmt: skip


def _evaluations(run_dirs: list[Path], arguments: Evaluate) -> "tuple[dict[Path, Evaluation], int]":
    """Plays or reads the evaluation of each run, and prints it unless --json asks for an object.

    Returns them with the exit status, which tells whether those to be saved were.
    """
    from jaxrl.runs import evaluation_record

    evaluations: dict[Path, Evaluation] = {}
    lines: list[str] = []  # to be printed
    status = 0
    try:
        for run_dir in run_dirs:
            evaluations[run_dir] = result = (
                evaluation_record.read(run_dir, arguments.protocol)
                if arguments.recorded
                else _played(run_dir, arguments)
            )
            shown = run_dir.name if is_policy(run_dir) else run_dir
            name = f"{shown}: " if len(run_dirs) > 1 else ""
            lines += [name + evaluation_record.describe(result)] * (not arguments.json)
            # First: standard output may be a closed pipe or a full disk.
            status = max(status, _keep(evaluations, arguments, len(run_dirs)))
            # Recorded evaluations are in the file of --output only after the last.
            _print_off([] if arguments.recorded else lines)
    finally:
        _print_off(lines)
    return evaluations, status


def _print_off(lines: list[str]) -> None:
    """Prints lines, and takes them off the list."""
    while lines:
        print(lines.pop(0), flush=True)


def _played(run_dir: Path, arguments: Evaluate) -> "Evaluation":
    """Plays games with a run."""
    from jaxrl.evaluation import evaluate as evaluation

    config, actor, step = evaluation.load_actor(run_dir, named(run_dir, arguments.checkpoint))
    if arguments.epsilon is not None:
        config = evaluation.replace_epsilon(config, arguments.epsilon)
    assert arguments.protocol is not None
    return evaluation.evaluate(
        config, actor, arguments.protocol, arguments.episodes, arguments.seed, step
    )


def _keep(evaluations: "dict[Path, Evaluation]", arguments: Evaluate, number: int) -> int:
    """Saves the newest of `number` evaluations in its run, or all so far in the file of --output.

    Returns the status. A failure is reported only, because the scores are still to be printed.
    """
    run_dir, result = list(evaluations.items())[-1]
    if arguments.output is not None and arguments.output.suffix == ".json":
        # Recorded evaluations are safe already.
        whole = len(evaluations) == number or not arguments.recorded
        return _write_json(evaluations, arguments.output, number > 1) if whole else 0
    if arguments.recorded or is_policy(run_dir):  # a policy keeps the scores that it came with
        return 0
    return _save(run_dir, result, arguments.checkpoint)


def _write_json(evaluations: "dict[Path, Evaluation]", target: Path, several: bool) -> int:
    """Writes the scores so far into a file whole or not at all; returns the status."""
    from jaxrl.runs.files import writing

    text = _as_json(evaluations, several) + "\n"
    try:
        with writing(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except (UserError, StorageError) as error:
        return print_error(error)
    return 0


def _save(run_dir: Path, result: "Evaluation", checkpoint: str | None) -> int:
    """Records an evaluation unless the run was evaluated later meanwhile; returns the status."""
    from jaxrl.runs import evaluation_record

    before = evaluation_record.read_all(run_dir).get(result.protocol)
    file, step = f"{layout.EVALUATIONS}/{result.protocol}.json", result.step or 0
    if before and checkpoint in (None, "latest") and (before.step or 0) > step:
        print(f"'{run_dir}': this result, of step {step:,}, is not saved: {file} is of the newer "
              f"step {before.step:,} by now", file=sys.stderr)  # fmt: skip
        return 0
    try:
        evaluation_record.write(run_dir, result)
    except StorageError as error:
        return print_error(error)
    if before and before.episodes > result.episodes:
        print(f"'{run_dir}': {file} had {games(before.episodes)}, and has {result.episodes} now",
              file=sys.stderr)  # fmt: skip
    return 0


def _as_json(evaluations: "dict[Path, Evaluation]", several: bool) -> str:
    """Returns the object of one evaluation, or that of several with their aggregates."""
    from jaxrl.analysis import aggregates

    if several:
        return json.dumps(aggregates.to_json(aggregates.summarize(evaluations)), indent=2)
    (only,) = evaluations.values()
    return json.dumps(dataclasses.asdict(only), indent=2)


def _print_aggregates(evaluations: "dict[Path, Evaluation]", arguments: Evaluate) -> None:
    """Prints the aggregates over the runs, and draws them where --output names a picture."""
    from jaxrl.analysis import aggregates

    summary = aggregates.summarize(evaluations)
    drawn = arguments.output if arguments.output and arguments.output.suffix == ".png" else None
    try:
        if drawn:
            from jaxrl.analysis import profiles

            protocol = f"{summary.protocol} ({summary.played})"
            profiles.draw(summary.scores, protocol, drawn)
    finally:
        print(
            json.dumps(aggregates.to_json(summary), indent=2)
            if arguments.json
            else aggregates.describe(summary),
            flush=True,
        )
    if drawn and not arguments.json:
        print(drawn)


@dataclass(frozen=True)
class Compare:
    """Say which of two runs is better, and how sure that is, from their evaluations.

    More than two runs are taken as two configurations with several games and seeds.
    Example: jaxrl compare runs/x runs/y
    """

    runs: RunDirs
    """run directories that have been evaluated by the same protocol; a sweep's directory stands for
    all its runs"""
    protocol: Protocol | None = None
    """evaluations to compare; default is the newest of each run"""
    json: bool = False
    """print an object instead of sentences"""


def compare(arguments: Compare) -> int:
    """Prints which of two runs, or of two configurations with several seeds, is better."""
    run_dirs = check_runs(expand(arguments.runs), "compare", 2)
    from jaxrl.analysis import comparison

    result = comparison.compare(run_dirs, arguments.protocol)
    print(json.dumps(result.to_json(), indent=2) if arguments.json else result.describe())
    return 0
