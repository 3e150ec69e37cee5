"""The commands that look at runs: evaluate, compare, play, plot, report, watch."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from jaxrl.cli.parsing import Protocol, RunDirs, at_least, check_runs, check_target, parse
from jaxrl.errors import UserError
from jaxrl.runs import layout


def evaluate(arguments: list[str]) -> int:
    """Play whole games by a named protocol and report their unclipped scores."""

    def command(
        runs: RunDirs,
        episodes: int = 30,
        protocol: Protocol | None = None,
        seed: int = 0,
        epsilon: float | None = None,
        checkpoint: int | None = None,
        recorded: bool = False,
        json: bool = False,
        output: Path | None = None,
    ) -> dict[str, Any]:
        """Play whole games by a named protocol, write evaluation.json anew, and report the scores.

        noop: up to 30 no-ops at the start (Mnih 2015), no sticky actions. sticky: actions repeat
        with probability 0.25 (Machado 2018). Both play at most 27,000 agent steps, with unclipped
        scores. The set of actions, and who presses FIRE at the start and after a lost life, stay
        as they were in training.
        Several runs are aggregated over games and seeds, by configuration: median, interquartile
        mean, mean and optimality gap of human-normalized scores, with 95 % stratified bootstrap
        intervals (Agarwal 2021).
        Example: jaxrl evaluate runs/x --episodes 30 --protocol noop --json

        Args:
            runs: run directories
            episodes: games to play, of each run
            protocol: how games start and whether actions stick; default is the one that is like
                training: sticky where actions were sticky, else noop
            seed: of the games and the actions
            epsilon: probability of a random action, of value-based agents, from 0 to 1; default is
                the run's agent.evaluation_epsilon. 0.05 (Mnih 2015), 0.001 (Bellemare 2017)
            checkpoint: agent step of the checkpoint to play; default is the newest
            recorded: play nothing, take the evaluation.json that is there
            json: print evaluation.json instead of a sentence; of several runs one object
            output: PNG to write, of several runs: aggregates and performance profiles
        """
        return locals()

    given = parse(command, "evaluate", arguments)
    at_least("episodes", given["episodes"], 1)
    at_least("seed", given["seed"], 0)
    if given["epsilon"] is not None and not 0 <= given["epsilon"] <= 1:
        raise UserError(f"--epsilon {given['epsilon']}: must be from 0 to 1, a probability")
    if given["epsilon"] is not None and given["recorded"]:
        raise UserError("--epsilon: --recorded plays nothing: leave one of them out")
    run_dirs = check_runs(given["runs"], "evaluate")
    if given["output"]:
        check_target(given["output"], (".png",))
    from jaxrl.analysis import aggregates

    if not given["recorded"]:
        given["protocol"] = given["protocol"] or _like_training(run_dirs)
    found = _evaluations(run_dirs, given)
    if len(run_dirs) == 1 and not given["output"]:
        if given["json"]:
            print(json.dumps(dataclasses.asdict(found[run_dirs[0]]), indent=2))
        return 0
    summary = aggregates.summarize(found)
    if given["output"]:
        from jaxrl.analysis import profiles

        profiles.draw(summary.scores, summary.protocol, given["output"])
    print(json.dumps(aggregates.to_json(summary), indent=2) if given["json"]
          else aggregates.describe(summary))  # fmt: skip
    if given["output"] and not given["json"]:
        print(given["output"])
    return 0


def _evaluations(run_dirs: list[Path], given: dict[str, Any]) -> dict[Path, Any]:
    """Plays or reads the evaluation of each run, and prints it unless an object is asked for."""
    from jaxrl.runs import evaluation_record

    found = {}
    for run_dir in run_dirs:
        found[run_dir] = (
            evaluation_record.read(run_dir) if given["recorded"] else _played(run_dir, given)
        )
        if given["protocol"] not in (None, found[run_dir].protocol):
            protocol = found[run_dir].protocol
            raise UserError(f"'{run_dir}' was evaluated by protocol {protocol}: add --protocol "
                            f"{protocol}, or leave --recorded out")  # fmt: skip
        if not given["json"]:
            name = f"{run_dir}: " if len(run_dirs) > 1 else ""
            print(name + evaluation_record.describe(found[run_dir]), flush=True)
    return found


def _like_training(run_dirs: list[Path]) -> str:
    """Returns the protocol that is like training. Raises `UserError` where runs differ in it."""
    from jaxrl.runs.directory import load_config
    from jaxrl.runs.evaluation_record import protocol_of

    protocols = {protocol_of(load_config(run_dir)) for run_dir in run_dirs}
    if len(protocols) > 1:
        raise UserError("some of these runs were trained with sticky actions, some without: name "
                        "one --protocol for all")  # fmt: skip
    return protocols.pop()


def _played(run_dir: Path, given: dict[str, Any]) -> Any:
    from jaxrl.evaluation import evaluate as evaluation
    from jaxrl.evaluation.evaluate import load_actor, with_epsilon
    from jaxrl.runs import evaluation_record

    config, actor, step = load_actor(run_dir, given["checkpoint"])
    if given["epsilon"] is not None:
        config = with_epsilon(config, given["epsilon"])
    result = evaluation.evaluate(
        config, actor, given["protocol"], given["episodes"], given["seed"], step
    )
    try:
        before = evaluation_record.read(run_dir)
    except UserError:
        before = None
    if before and given["checkpoint"] is None and (before.step or 0) > step:  # it went on meanwhile
        print(f"'{run_dir}': {layout.EVALUATION} is of step {before.step:,} by now, and kept",
              file=sys.stderr)  # fmt: skip
        return result
    if before and before.episodes > result.episodes:
        print(f"'{run_dir}': {layout.EVALUATION} had {before.episodes} games (protocol "
              f"{before.protocol}), and has {result.episodes} now", file=sys.stderr)  # fmt: skip
    evaluation_record.write(run_dir, result)
    return result


def compare(arguments: list[str]) -> int:
    """Say which of two runs, or of two configurations with several seeds, is better."""

    def command(runs: RunDirs, json: bool = False) -> tuple[tuple[Path, ...], bool]:
        """Say which of two runs is better, and how sure that is, from their evaluation.json.

        More than two runs are taken as two configurations with several games and seeds.
        Example: jaxrl compare runs/x runs/y

        Args:
            runs: run directories that have been evaluated by the same protocol
            json: print an object instead of sentences
        """
        return runs, json

    given, as_json = parse(command, "compare", arguments)
    run_dirs = check_runs(given, "compare", 2)
    from jaxrl.analysis import comparison

    result = comparison.compare(run_dirs)
    print(json.dumps(result.to_json(), indent=2) if as_json else result.describe())
    return 0
