"""`jaxrl sweep`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from jaxrl.cli.parsing import Words, at_least
from jaxrl.cli.plan_commands import check_platform, print_stopped, print_table
from jaxrl.errors import StorageError, UserError
from jaxrl.runs.files import check_is_directory

if TYPE_CHECKING:
    from jaxrl.experiments.members import Member
    from jaxrl.experiments.slurm import Slurm
    from jaxrl.experiments.sweep import Row


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train every configuration on every game with every seed, and compare them.

    The members train one after another, each in ROOT/CONFIG-GAME-seedSEED with its output in a .log
    beside it: all games with the first seed, then with the second, and every configuration in turn
    on each game. A member that fails is reported, and the next one begins. Ctrl-C saves the member
    in progress and ends; the same command skips the members that are done and goes on.
    ROOT/sweep.json has the results, rewritten after each member, and ROOT/report.html compares them
    at the end.

    With --set KEY=VALUE,VALUE every configuration is trained with each value of that key; several
    such keys are combined. CONFIG in the names of the members then ends in the values of the keys
    that have several, as in a2c_fast-learning_rate=0.001-torso=nips-pong-seed1.

    With --slurm the members become one array of jobs, which continue after they were preempted or
    their time was up. --dry-run shows the progress of each; when all have ended, the same command
    without --slurm trains the members that failed and writes the results and the report.
    Example: jaxrl sweep --games pong breakout --seeds 1 2 --configs vtrace_cpu
    """

    games: tuple[str, ...]
    """games, or atari5 (Aitchison et al. 2022), or atari57 (all with published human scores)"""
    seeds: tuple[int, ...]
    """seeds of parameters, actions and games"""
    configs: tuple[Path, ...]
    """TOML files; a file's name is the name of its members"""
    set: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="KEY=VALUE,VALUE")
    ] = ()
    """values to try of any option of train, as optimizer.learning_rate=3e-4,1e-3; may be repeated
    for other keys"""
    total_steps: int | None = None
    """agent steps of each member; default is that of its configuration"""
    num_devices: int | None = None
    """devices of each member; default is that of its configuration"""
    root: Path = Path("runs/sweep")
    """directory of the sweep"""
    dry_run: bool = False
    """list the members in their order, with the progress of each; train nothing"""
    slurm: bool = False
    """submit the members to SLURM, as one array of jobs (pip install -e '.[slurm]')"""
    slurm_partition: str | None = None
    """partition of the jobs; default is the cluster's"""
    slurm_time: int | None = None
    """minutes until a job is saved and queued again; default is 1440, a day"""
    slurm_gpus_per_node: int | None = None
    """GPUs of each job, all of which its member trains on; default is the cluster's"""
    slurm_cpus_per_task: int | None = None
    """cores of each job, for the emulators; default is the cluster's"""
    slurm_array_parallelism: int | None = None
    """jobs that run at the same time, at most; default is 16"""
    words: Words = ()


def sweep(arguments: Sweep) -> int:
    """Trains the members, submits them, or lists them."""
    check_platform("sweep")
    slurm = _slurm(arguments)
    from jaxrl.experiments.members import check_directory, state
    from jaxrl.experiments.sweep_plan import plan

    # A job of SLURM may be started elsewhere.
    root = arguments.root.absolute() if slurm else arguments.root
    settings: dict[str, Any] = {}
    if arguments.total_steps is not None:
        settings["total_steps"] = arguments.total_steps
    if arguments.num_devices is not None:
        settings["parallel"] = {"num_devices": arguments.num_devices}
    members = plan(
        arguments.configs, arguments.games, arguments.seeds, root, arguments.set, **settings
    )
    check_is_directory(root, "--root")
    for member in members:
        check_directory(member)
    if arguments.dry_run:
        for number, member in enumerate(members, start=1):
            print(f"{number:>4}  {state(member):<6} {member.name}")
        return 0
    return _submit(members, root, slurm) if slurm else _train(members, root, arguments.words)


def _slurm(arguments: Sweep) -> "Slurm | None":
    """Returns the resources of the jobs; None without --slurm."""
    from jaxrl.experiments.slurm import Slurm

    options = {
        field.name: value
        for field in dataclasses.fields(Slurm)
        if (value := getattr(arguments, f"slurm_{field.name}")) is not None
    }
    for name, value in options.items():
        if not arguments.slurm:
            raise UserError(f"--slurm-{name.replace('_', '-')} needs --slurm")
        if name != "partition":
            at_least(f"slurm_{name}", value, 0 if name == "gpus_per_node" else 1)
    return Slurm(**options) if arguments.slurm else None


def _train(members: "list[Member]", root: Path, words: Sequence[str]) -> int:
    from jaxrl.experiments.runner import SignalRelay
    from jaxrl.experiments.sweep import report, run
    from jaxrl.runs.lock import hold_directory
    from jaxrl.training.display import Display

    with hold_directory(root, "--root"), SignalRelay().watching() as stop:
        with Display() as display:
            rows = run(members, root, display, stop)
        if stop.signal is not None:
            _print(rows)
            return print_stopped("sweep", words, stop.signal)
    try:
        written = report(members, root)
    except (UserError, StorageError, OSError) as error:
        print(f"jaxrl: no report: {' '.join(str(error).split())}", file=sys.stderr)
        written = None
    _print(rows)
    print(written or root / "sweep.json")
    return int(any(row["status"] != "done" for row in rows))


def _submit(members: "list[Member]", root: Path, slurm: "Slurm") -> int:
    from jaxrl.experiments.members import copy_recipes, state
    from jaxrl.experiments.slurm import submit
    from jaxrl.runs.lock import hold_directory

    with hold_directory(root, "--root"):
        copy_recipes(members)
        left = [member for member in members if state(member) != "done"]
        if not left:
            print("all are done: the same command without --slurm writes the results")
            return 0
        jobs = submit(left, root, slurm)
    print(f"{len(left)} of {len(members)} submitted as job {jobs[0].job_id.partition('_')[0]}; "
          f"each says what it does in '{root}'")  # fmt: skip
    return 0


def _print(rows: "list[Row]") -> None:
    """Prints the members as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def figure(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    table = Table(box=box.SIMPLE)
    table.add_column("member", overflow="fold")
    for name in ("status", "steps", "return", "evaluation", "human-normalized"):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for row in rows:
        status = row["status"]
        if status == "failed":
            status += f" ({row['exit_status']})"
        figures = (
            f"{row['step']:,}",
            figure(row["return_mean"], ".1f"),
            figure(row["evaluation_mean"], ".1f"),
            figure(row["human_normalized_mean"], ".2f"),
        )
        table.add_row(Text(row["name"]), status, *figures)
    print_table(table)
