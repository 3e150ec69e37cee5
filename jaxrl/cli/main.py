"""The `jaxrl` command: a table of the subcommands, in groups.

Exit status: 0 done; 2 a user's mistake; 3 a loss or a parameter is not finite; 65 damaged files; 74
the disk cannot be written; 75 the emulators, or another process, were lost; 130 (Ctrl-C), 138
(SIGUSR1), 143 (SIGTERM) or 129 (SIGHUP) stopped and saved; 1 any other error, or a machine that
cannot train (doctor). All but the last are reported in one line. Each command imports heavy modules
only after its options are checked, because a mistake must be reported at once.
"""

import contextlib
import difflib
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jaxrl
from jaxrl.cli import streams
from jaxrl.cli.bench import Bench, bench
from jaxrl.cli.completion import Completion, completion
from jaxrl.cli.configs import Configs, configs
from jaxrl.cli.doctor import Doctor, doctor
from jaxrl.cli.evaluate import Compare, Evaluate, compare, evaluate
from jaxrl.cli.games import Games, games
from jaxrl.cli.help import NARROWEST
from jaxrl.cli.outcome import missing_devices, print_error
from jaxrl.cli.parsing import parse
from jaxrl.cli.pictures import Play, Plot, Report, play, plot, report
from jaxrl.cli.policies import Export, Policies, export, list_policies
from jaxrl.cli.search import Search, search
from jaxrl.cli.suite import Suite, suite
from jaxrl.cli.sweep import Sweep, sweep
from jaxrl.cli.train import Resume, Train, resume, train
from jaxrl.cli.tune import Tune, tune
from jaxrl.cli.watch import Watch, watch
from jaxrl.config.descriptions import docstring
from jaxrl.errors import RunError, UserError


@dataclass(frozen=True)
class Command:
    """One subcommand."""

    arguments: type  # a dataclass, whose docstrings are the help
    run: Callable[[Any], int]  # takes such arguments, returns the exit status
    by_option: "dict[str, Command]" = field(default_factory=dict)  # commands that an option selects
    handles_signals: bool = False  # it saves, and then ends


GROUPS = {
    "train": {
        "train": Command(Train, train, handles_signals=True),
        "resume": Command(Resume, resume, handles_signals=True),
        "sweep": Command(Sweep, sweep, handles_signals=True),
        "search": Command(Search, search, handles_signals=True),
    },
    "look at runs": {
        "watch": Command(Watch, watch),
        "evaluate": Command(Evaluate, evaluate),
        "compare": Command(Compare, compare),
        "play": Command(Play, play),
        "plot": Command(Plot, plot),
        "report": Command(Report, report),
        "export": Command(Export, export),
    },
    "list what there is": {
        "configs": Command(Configs, configs),
        "games": Command(Games, games),
        "policies": Command(Policies, list_policies),
    },
    "prepare a machine": {
        "doctor": Command(Doctor, doctor),
        "bench": Command(Bench, bench, {"--suite": Command(Suite, suite, handles_signals=True)}),
        "tune": Command(Tune, tune),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
COMMANDS["completion"] = Command(Completion, partial(completion, COMMANDS))
GROUPS["prepare a machine"]["completion"] = COMMANDS["completion"]


def _usage() -> str:
    """Returns the help of `jaxrl` itself: each command with the first line of its docstring."""
    lines, width = [], max(shutil.get_terminal_size().columns, NARROWEST)
    for title, commands in GROUPS.items():
        lines.append(f"\n{title}:")
        for name, command in commands.items():
            summary, *_ = docstring(command.arguments).splitlines()
            line = f"  {name:<10} {summary}"
            lines.append(textwrap.fill(line, width - 2, subsequent_indent=" " * 13))
    return "\n".join(
        [
            "usage: jaxrl COMMAND ...   (jaxrl COMMAND --help lists a command's options)",
            "",
            "Reinforcement learning on Atari 2600, compiled from end to end by JAX.",
            *lines,
            "",
            "Example: jaxrl train --config a2c --game pong --total-steps 3e6",
        ]
    )


def run(name: str, argv: Sequence[str]) -> int:
    """Runs one subcommand and returns its exit status. Raises `UserError` and `RunError`."""
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(COMMANDS)}"
        raise UserError(f"unknown command '{name}': {hint}")
    command = COMMANDS[name]
    for option, selected in command.by_option.items():
        if option in argv:
            argv = [word for word in argv if word != option]
            name, command = f"{name} {option}", selected
    arguments: Any = parse(command.arguments, name, argv)
    with contextlib.nullcontext() if command.handles_signals else _signals_as_exits():
        return command.run(arguments)


@contextlib.contextmanager
def _signals_as_exits() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP raise `SystemExit`, so that a command removes its temporary files."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]

    def leave(number: int, _: object) -> None:
        for handled in numbers:  # `timeout` sends a second one, which would end the removal
            signal.signal(handled, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status; errors are printed in one line."""
    streams.prepare()
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["help"]:  # `jaxrl help train`, as git has it
        argv = [*argv[1:], "--help"]
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(_usage())
            return 0
        if argv[0] in ("-V", "--version"):
            print(f"jaxrl {jaxrl.__version__}")
            return 0
        return run(argv[0], argv[1:])
    except BrokenPipeError:  # `jaxrl games | head`
        sys.stderr.close()
        return int(argv[0] in ("train", "resume", "evaluate"))  # it may not have done all
    except (UserError, RunError, OSError, KeyboardInterrupt) as error:
        return print_error(error)
    except (RuntimeError, AssertionError) as error:  # JAX raises both
        if mistake := missing_devices(error):
            return print_error(mistake)
        raise
