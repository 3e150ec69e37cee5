"""The `jaxrl` command: one function per subcommand.

Exit status: 0 done; 2 a user's mistake, in one line; 130 (Ctrl-C) or 143 (SIGTERM) stopped and
saved; 75 another process was lost; 1 anything else. Heavy modules are imported by the commands
that need them, so that a mistake is answered at once.
"""

import dataclasses
import difflib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from jaxrl.arguments import at_least, check_target, parse, parse_settings
from jaxrl.config import Config, EngineError, UserError
from jaxrl.launch import Launch, check_launch
from jaxrl.measuring import bench, tune

RunDir = Annotated[Path, tyro.conf.Positional]


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train an agent and leave a run directory.

    The options under agent are those of --config's algorithm.
    Example: jaxrl train --config configs/a2c.toml --game pong --total-steps 3e6 --seed 1
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file that the other options override"""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Launch)


def train(arguments: list[str]) -> int:
    """Train an agent and leave a run directory."""
    parsed = parse_settings(TrainArguments, "train", arguments)
    check_launch(parsed.launch)
    config: Config = parsed.settings
    from jaxrl import runs

    if not config.run_dir:
        config = dataclasses.replace(config, run_dir=runs.default_name(config))

    def work(alone: bool) -> int:
        if alone:
            runs.check_new(config)
        from jaxrl.train import start

        return _status(start(config))

    return _together(parsed.launch, work)


def resume(arguments: list[str]) -> int:
    """Continue a run from its newest checkpoint, with the configuration it was started with."""

    def command(
        run: RunDir,
        num_devices: int | None = None,
        launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch(),  # noqa: B008
    ) -> tuple[Path, int | None, Launch]:
        """Continue a run from its newest checkpoint, with the configuration it was started with.

        Emulators cannot be saved, so new games begin; everything learned goes on as it was.
        Example: jaxrl resume runs/x

        Args:
            run: run directory
            num_devices: devices to go on with, 0 for every accelerator; default is what the run's
                configuration says
            launch: how this process finds those that train with it
        """
        return run, num_devices, launch

    run_dir, num_devices, launch = parse(command, "resume", arguments)
    check_launch(launch)
    if num_devices is not None:
        at_least("num_devices", num_devices, 0)

    def work(_: bool) -> int:
        from jaxrl.train import resume as resume_run

        return _status(resume_run(run_dir, num_devices))

    return _together(launch, work)


def evaluate(arguments: list[str]) -> int:
    """Play whole games by a named protocol and report their unclipped scores."""

    def command(
        run: RunDir,
        episodes: int = 30,
        protocol: Literal["noop", "sticky"] = "noop",
        seed: int = 0,
        checkpoint: int | None = None,
        json: bool = False,
    ) -> dict[str, Any]:
        """Play whole games by a named protocol, write evaluation.json, and report the scores.

        noop: 1 to 30 no-ops at the start, no sticky actions. sticky: actions repeat with
        probability 0.25 and FIRE is not pressed for the agent (Machado 2018). Both play at most
        27,000 agent steps, with unclipped scores and the actions the agent was trained with.
        Example: jaxrl evaluate runs/x --episodes 30 --protocol noop --json

        Args:
            run: run directory
            episodes: games to play
            protocol: how games start and whether actions stick
            seed: of the games and the actions
            checkpoint: agent step of the checkpoint to play; default is the newest
            json: print evaluation.json instead of a sentence
        """
        return locals()

    given = parse(command, "evaluate", arguments)
    at_least("episodes", given["episodes"], 1)
    at_least("seed", given["seed"], 0)
    _check_run(given["run"])
    from jaxrl import evaluate as evaluation

    config, actor, step = evaluation.load_actor(given["run"], given["checkpoint"])
    result = evaluation.evaluate(
        config, actor, given["protocol"], given["episodes"], given["seed"], step
    )
    evaluation.write(given["run"], result)
    print(
        json.dumps(dataclasses.asdict(result), indent=2)
        if given["json"]
        else evaluation.describe(result)
    )
    return 0


def play(arguments: list[str]) -> int:
    """Record a game as an mp4."""

    def command(
        run: RunDir,
        output: Path | None = None,
        protocol: Literal["noop", "sticky"] = "noop",
        seed: int = 0,
        checkpoint: int | None = None,
        max_seconds: float = 300.0,
    ) -> dict[str, Any]:
        """Record a game as an mp4 in real time, with the score written into it.

        Example: jaxrl play runs/x

        Args:
            run: run directory
            output: file to write; default is video.mp4 in the run directory
            protocol: as for `jaxrl evaluate`
            seed: of the game and the actions
            checkpoint: agent step of the checkpoint to play; default is the newest
            max_seconds: of video; a longer game is cut there
        """
        return locals()

    given = parse(command, "play", arguments)
    at_least("seed", given["seed"], 0)
    at_least("max_seconds", given["max_seconds"], 1)
    _check_run(given["run"])
    from jaxrl import video
    from jaxrl.evaluate import load_actor

    target = given["output"] or given["run"] / video.FILE
    check_target(target, (".mp4",))
    config, actor, step = load_actor(given["run"], given["checkpoint"])
    score, length, over = video.record(
        config, actor, given["protocol"], target, given["seed"], given["max_seconds"]
    )
    print(f"{target}: {config.game} after {step:,} steps of training, score {score:g}, "
          f"{length:,} agent steps{', cut before the end of the game' * (not over)}")  # fmt: skip
    return 0


def plot(arguments: list[str]) -> int:
    """Draw learning curves of one or several runs."""

    def command(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional], output: Path | None = None
    ) -> tuple[tuple[Path, ...], Path | None]:
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

    target = output or run_dirs[0] / plotting.FILE
    if output:
        check_target(target, (".png",))
    plotting.learning_curve(list(run_dirs), target)
    print(target)
    return 0


def games(arguments: list[str]) -> int:
    """List every game, with its number of actions and published scores."""

    def command(names: bool = False) -> bool:
        """List every game, with its number of actions and the scores of random and human play.

        Example: jaxrl games

        Args:
            names: print nothing but the names, one a line
        """
        return names

    names_only = parse(command, "games", arguments)
    from jaxrl.games import atari_games, known_games, minimal_actions, reference_scores

    if names_only:
        print("\n".join(known_games()))
        return 0
    references = reference_scores()
    print(f"{'game':<20} {'actions':>7} {'random':>10} {'human':>10}")
    for game in atari_games():
        scores = references.get(game)
        columns = f"{scores.random:>10} {scores.human:>10}" if scores else f"{'-':>10} {'-':>10}"
        print(f"{game:<20} {len(minimal_actions(game)):>7} {columns}")
    print(f"{'catch':<20} {3:>7} {'-':>10} {'-':>10}   (needs no emulator)")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "play": play,
    "plot": plot,
    "games": games,
    "bench": bench,
    "tune": tune,
}


def _usage() -> str:
    lines = [
        f"  {name:<10} {(command.__doc__ or '').strip()}" for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "usage: jaxrl COMMAND ...      (jaxrl COMMAND --help tells all options of one)",
            "",
            "Reinforcement learning on Atari 2600, compiled from end to end by JAX.",
            "",
            *lines,
            "",
            "Example: jaxrl train --config configs/a2c.toml --game pong --total-steps 3e6",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_usage())
            return 0
        name = arguments[0]
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(COMMANDS)}"
            raise UserError(f"unknown command '{name}': {hint}")
        return COMMANDS[name](arguments[1:])
    except (UserError, EngineError, KeyboardInterrupt) as error:
        return _tell(error)
    except BrokenPipeError:  # `jaxrl games | head`
        sys.stderr.close()
        return 0


# --- helpers -------------------------------------------------------------------------------------


def _tell(error: BaseException) -> int:
    """One line about the error; its exit status."""
    if isinstance(error, KeyboardInterrupt):
        print("jaxrl: stopped", file=sys.stderr)
        return 130
    if not isinstance(error, UserError | EngineError):
        traceback.print_exception(error)
        return 1
    print(f"jaxrl: {' '.join(str(error).split())}", file=sys.stderr)
    return 2 if isinstance(error, UserError) else 1


def _together(launch: Launch, work: Callable[[bool], int]) -> int:
    """Does what all processes do together; `work` is told whether this one is alone."""
    from jaxrl import processes

    processes.join(launch)
    if processes.count() == 1:
        return work(True)
    try:
        status = work(False)
    except BaseException as error:
        processes.find_lost(error)
        # A normal exit would wait for the others, who wait for this one.
        processes.leave(_tell(error), error)
    processes.finish()
    return status


def _status(outcome: Any) -> int:
    return 0 if outcome.signal is None else 128 + outcome.signal


def _check_run(run_dir: Path) -> None:
    """Refuses what is no run directory, before anything heavy is imported."""
    from jaxrl.runs import load_config

    load_config(run_dir)
