"""The `jaxrl` command: one function per subcommand.

Exit status: 0 done; 2 a user's mistake; 3 a loss or a parameter is not finite; 65 damaged files; 74
the disk cannot be written; 75 the emulators, or another process, were lost; 130 (Ctrl-C), 138
(SIGUSR1) or 143 (SIGTERM) stopped and saved; 1 anything else, or a machine that cannot train
(doctor). All but the last in one line. Heavy modules are imported by the commands that need them,
so that a mistake is answered at once.
"""

import difflib
import sys
from collections.abc import Callable

from jaxrl.cli.bench import bench
from jaxrl.cli.doctor import doctor
from jaxrl.cli.evaluate import compare, evaluate
from jaxrl.cli.games import games
from jaxrl.cli.outcome import print_error
from jaxrl.cli.pictures import play, plot, report
from jaxrl.cli.sweep import sweep
from jaxrl.cli.train import resume, train
from jaxrl.cli.tune import tune
from jaxrl.cli.watch import watch
from jaxrl.errors import RunError, UserError

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
            "Example: jaxrl train --config configs/a2c/a2c.toml --game pong --total-steps 3e6",
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
        return print_error(error)
