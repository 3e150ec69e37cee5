"""The commands that look at runs: evaluate, compare, play, plot, report, watch."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.arguments import at_least, check_target, parse
from jaxrl.errors import UserError

RunDir = Annotated[Path, tyro.conf.Positional]
Protocol = Literal["noop", "sticky"]
RunDirs = Annotated[tuple[Path, ...], tyro.conf.Positional]


def _check_runs(run_dirs: tuple[Path, ...], command: str, least: int = 1) -> list[Path]:
    """Refuses what is no run directory, before anything heavy is imported."""
    from jaxrl.runs import load_config, told_apart

    if len(run_dirs) < least:
        raise UserError(
            f"{command} needs at least {('one run directory', 'two run directories')[least - 1]}"
        )
    told_apart(run_dirs)
    for run_dir in run_dirs:
        load_config(run_dir)
    return list(run_dirs)


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
        mean, mean and optimality gap of human-normalised scores, with 95 % stratified bootstrap
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
    run_dirs = _check_runs(given["runs"], "evaluate")
    if given["output"]:
        check_target(given["output"], (".png",))
    from jaxrl import summaries

    if not given["recorded"]:
        given["protocol"] = given["protocol"] or _like_training(run_dirs)
    found = _evaluations(run_dirs, given)
    if len(run_dirs) == 1 and not given["output"]:
        if given["json"]:
            print(json.dumps(dataclasses.asdict(found[run_dirs[0]]), indent=2))
        return 0
    summary = summaries.summarise(found)
    if given["output"]:
        from jaxrl import profiles

        profiles.draw(summary.cells, summary.protocol, given["output"])
    print(json.dumps(summaries.table(summary), indent=2) if given["json"]
          else summaries.describe(summary))  # fmt: skip
    if given["output"] and not given["json"]:
        print(given["output"])
    return 0


def _evaluations(run_dirs: list[Path], given: dict[str, Any]) -> dict[Path, Any]:
    """Plays or reads the evaluation of each run, and prints it unless an object is asked for."""
    from jaxrl import scores

    found = {}
    for run_dir in run_dirs:
        found[run_dir] = scores.read(run_dir) if given["recorded"] else _played(run_dir, given)
        if given["protocol"] not in (None, found[run_dir].protocol):
            protocol = found[run_dir].protocol
            raise UserError(f"'{run_dir}' was evaluated by protocol {protocol}: add --protocol "
                            f"{protocol}, or leave --recorded out")  # fmt: skip
        if not given["json"]:
            name = f"{run_dir}: " if len(run_dirs) > 1 else ""
            print(name + scores.describe(found[run_dir]), flush=True)
    return found


def _like_training(run_dirs: list[Path]) -> str:
    """Returns the protocol that is like training. Raises `UserError` where runs differ in it."""
    from jaxrl.runs import load_config
    from jaxrl.scores import protocol_of

    protocols = {protocol_of(load_config(run_dir)) for run_dir in run_dirs}
    if len(protocols) > 1:
        raise UserError("some of these runs were trained with sticky actions, some without: name "
                        "one --protocol for all")  # fmt: skip
    return protocols.pop()


def _played(run_dir: Path, given: dict[str, Any]) -> Any:
    from jaxrl import evaluate as evaluation
    from jaxrl import scores

    config, actor, step = evaluation.load_actor(run_dir, given["checkpoint"])
    if given["epsilon"] is not None:
        config = evaluation.with_epsilon(config, given["epsilon"])
    result = evaluation.evaluate(
        config, actor, given["protocol"], given["episodes"], given["seed"], step
    )
    try:
        before = scores.read(run_dir)
    except UserError:
        before = None
    if before and given["checkpoint"] is None and (before.step or 0) > step:  # it went on meanwhile
        print(f"'{run_dir}': {scores.FILE} is of step {before.step:,} by now, and kept",
              file=sys.stderr)  # fmt: skip
        return result
    if before and before.episodes > result.episodes:
        print(f"'{run_dir}': {scores.FILE} had {before.episodes} games (protocol "
              f"{before.protocol}), and has {result.episodes} now", file=sys.stderr)  # fmt: skip
    scores.write(run_dir, result)
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
    run_dirs = _check_runs(given, "compare", 2)
    from jaxrl import summaries

    result = summaries.compare(run_dirs)
    print(json.dumps(result.table(), indent=2) if as_json else result.describe())
    return 0


def play(arguments: list[str]) -> int:
    """Record a game as an mp4 or a GIF."""

    def command(
        run: RunDir,
        output: Path | None = None,
        protocol: Protocol | None = None,
        seed: int = 0,
        checkpoint: int | None = None,
        max_seconds: float = 300.0,
    ) -> dict[str, Any]:
        """Record a game as an mp4 or a GIF in real time, with the score written into it.

        Example: jaxrl play runs/x

        Args:
            run: run directory
            output: mp4 or gif to write; default is video.mp4 in the run directory
            protocol: as for `jaxrl evaluate`
            seed: of the game and the actions
            checkpoint: agent step of the checkpoint to play; default is the newest
            max_seconds: of video; a longer game is cut there
        """
        return locals()

    given = parse(command, "play", arguments)
    at_least("seed", given["seed"], 0)
    at_least("max_seconds", given["max_seconds"], 1)
    _check_runs((given["run"],), "play")
    from jaxrl import video
    from jaxrl.evaluate import load_actor
    from jaxrl.scores import protocol_of

    target = given["output"] or given["run"] / video.FILE
    check_target(target, (".mp4", ".gif"))
    config, actor, step = load_actor(given["run"], given["checkpoint"])
    protocol = given["protocol"] or protocol_of(config)
    score, length, over = video.record(
        config, actor, protocol, target, given["seed"], given["max_seconds"]
    )
    print(f"{target}: {config.game} after {step:,} steps of training, score {score:g}, "
          f"{length:,} agent steps{', cut before the end of the game' * (not over)}")  # fmt: skip
    return 0


def plot(arguments: list[str]) -> int:
    """Draw learning curves of one or several runs."""

    def command(runs: RunDirs, output: Path | None = None) -> tuple[tuple[Path, ...], Path | None]:
        """Draw the runs' learning curves into one PNG: return against frames, and against time.

        Example: jaxrl plot runs/x runs/y --output comparison.png

        Args:
            runs: run directories
            output: file to write; default is learning_curve.png in the (only) run directory
        """
        return runs, output

    run_dirs, output = parse(command, "plot", arguments)
    if not run_dirs:
        raise UserError("plot needs at least one run directory")
    if output is None and len(run_dirs) > 1:
        raise UserError("several runs make one picture: say where with --output comparison.png")
    from jaxrl import plotting
    from jaxrl.runs import check_inside, told_apart

    told_apart(run_dirs)
    for run_dir in run_dirs:
        check_inside(run_dir)
    target = output or run_dirs[0] / plotting.FILE
    if output:
        check_target(target, (".png",))
    plotting.learning_curve(list(run_dirs), target)
    print(target)
    return 0


def report(arguments: list[str]) -> int:
    """Write one page about runs that opens anywhere."""

    def command(
        runs: RunDirs,
        output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
        video: bool = True,
    ) -> dict[str, Any]:
        """Write one page about runs that opens anywhere, without a network.

        Example: jaxrl report runs/x runs/y -o report.html

        Args:
            runs: run directories
            output: file to write
            video: put the runs' videos into the page
        """
        return locals()

    given = parse(command, "report", arguments)
    if not given["runs"]:
        raise UserError("report needs at least one run directory")
    check_target(given["output"], (".html",))
    from jaxrl import report as page

    page.write(list(given["runs"]), given["output"], video=given["video"])
    print(given["output"])
    return 0


def watch(arguments: list[str]) -> int:
    """Follow a run in the terminal: rates, losses and a curve."""

    def command(run: RunDir, once: bool = False) -> tuple[Path, bool]:
        """Follow a run in the terminal until it ends: rates, losses and a small curve.

        Into a file or a pipe it is shown once.

        Example: jaxrl watch runs/x

        Args:
            run: run directory, of a run that trains or has ended
            once: show it once and return
        """
        return run, once

    run_dir, once = parse(command, "watch", arguments)
    _check_runs((run_dir,), "watch")
    from jaxrl import following

    following.follow(run_dir, once=once or not sys.stdout.isatty())
    return 0
