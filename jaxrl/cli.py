"""The `jaxrl` command: one function per subcommand.

Exit status: 0 done; 2 a user's mistake; 3 a loss or a parameter is not finite; 65 damaged files; 74
the disk cannot be written; 75 the emulators, or another process, were lost; 130 (Ctrl-C), 138
(SIGUSR1) or 143 (SIGTERM) stopped and saved; 1 anything else, or a machine that cannot train
(doctor). All but the last in one line. Heavy modules are imported by the commands that need them,
so that a mistake is answered at once.
"""

import dataclasses
import difflib
import errno
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.arguments import at_least, parse, parse_settings
from jaxrl.config import Config
from jaxrl.errors import RunError, StorageError, UserError
from jaxrl.examining import doctor
from jaxrl.launch import Launch, check_launch
from jaxrl.looking import RunDir, compare, evaluate, play, plot, report, watch
from jaxrl.measuring import bench, tune
from jaxrl.sweeping import sweep

# Read-only, not allowed, full, over quota, broken.
OF_THE_DISK = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EIO)


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
        override: tuple[str, ...] = (),
        launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch(),  # noqa: B008
    ) -> tuple[Path, int | None, tuple[str, ...], Launch]:
        """Continue a run from its newest checkpoint, with the configuration it was started with.

        Emulators cannot be saved, so new games begin; everything learned goes on as it was.
        The configuration must be that of the checkpoint, but for the keys that --override names.
        Example: jaxrl resume runs/x --override total_steps=20e6

        Args:
            run: run directory
            num_devices: devices to go on with, 0 for every accelerator; default is what the run's
                configuration says
            override: keys that change, as KEY=VALUE, or KEY for what config.toml says now
            launch: how this process finds those that train with it
        """
        return run, num_devices, override, launch

    run_dir, num_devices, override, launch = parse(command, "resume", arguments)
    check_launch(launch)
    if num_devices is not None:
        at_least("num_devices", num_devices, 0)

    def work(_: bool) -> int:
        from jaxrl.train import resume as resume_run

        return _status(resume_run(run_dir, num_devices, override))

    return _together(launch, work)


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
    "watch": watch,
    "evaluate": evaluate,
    "compare": compare,
    "play": play,
    "plot": plot,
    "report": report,
    "sweep": sweep,
    "games": games,
    "bench": bench,
    "tune": tune,
    "doctor": doctor,
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
    except BrokenPipeError:  # `jaxrl games | head`
        sys.stderr.close()
        return int(arguments[0] in ("train", "resume"))
    except (UserError, RunError, OSError, KeyboardInterrupt) as error:
        return _tell(error)


# --- helpers -------------------------------------------------------------------------------------


def _tell(error: BaseException) -> int:
    """One line about the error; its exit status."""
    if isinstance(error, KeyboardInterrupt):
        print("jaxrl: stopped", file=sys.stderr)
        return 130
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        where = f" '{error.filename}'" if error.filename else ""
        error = StorageError(f"cannot read or write{where}: {error.strerror}")
    if not isinstance(error, UserError | RunError):
        traceback.print_exception(error)
        return 1
    print(f"jaxrl: {' '.join(str(error).split())}", file=sys.stderr)
    return error.status


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
