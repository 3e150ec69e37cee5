"""The checkpoint that a resumed run continues from, the same in all processes."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl.config import overrides
from jaxrl.config.plan import Plan, resolve
from jaxrl.config.schema import Config
from jaxrl.errors import DamagedError, UserError
from jaxrl.program import moved_games
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.checkpoint import RestoredRun, RestoreLevel
from jaxrl.runs.lock import hold_lock
from jaxrl.runs.provenance import overridden_values
from jaxrl.runtime import processes
from jaxrl.training.messages import describe_devices
from jaxrl.training.session import TrainingSession
from jaxrl.types import LoopState

NO_PARTNER = "of another seed"


class ResumePoint(NamedTuple):
    """The checkpoint that a session continues from."""

    checkpoint: int | None = None  # agent step; None starts the run
    changes: tuple[dict[str, Any], ...] = ()  # for each run, by key: [before, now]


class CommonCheckpoint(NamedTuple):
    """The newest checkpoint of a run, or of all members of a population, as process 0 sees it."""

    step: int | None  # the newest that all have; None where no checkpoint exists yet
    damaged: list[dict[str, str]]  # for each run, agent step -> damage
    configs: Sequence[dict[str, Any]] = ()  # for each run, its configuration in the checkpoint
    overridden: Sequence[dict[str, Any]] = ()  # for each run, values by key


def find(
    run_dirs: Sequence[Path], configs: Sequence[Config], locks: contextlib.ExitStack
) -> CommonCheckpoint:
    """Locks runs until `locks` closes, and returns their common checkpoint; changes no file.

    Raises `UserError` and `DamagedError` where a run cannot be resumed.
    """
    # Process 0 decides: others may see an older listing of a network file system.
    text = processes.call_in_first(
        lambda: json.dumps(_find_common(run_dirs, configs, locks)._asdict())
    )
    return CommonCheckpoint(**json.loads(text))


def _find_common(
    run_dirs: Sequence[Path], configs: Sequence[Config], locks: contextlib.ExitStack
) -> CommonCheckpoint:
    for run_dir in run_dirs:
        locks.enter_context(hold_lock(run_dir))
    surveys = [checkpoint_files.survey(run_dir) for run_dir in run_dirs]
    step = _common(run_dirs, surveys)
    damaged: Any = [run.damaged for run in surveys]  # JSON makes strings of the steps
    if step is None:
        for run_dir, config in zip(run_dirs, configs, strict=True):
            _check_may_start(run_dir, config)
        return CommonCheckpoint(None, damaged)
    saved = [checkpoint_files.describe(run_dir, step).config for run_dir in run_dirs]
    return CommonCheckpoint(
        step, damaged, saved, [overridden_values(run_dir) for run_dir in run_dirs]
    )


def choose(
    common: CommonCheckpoint, configs: Sequence[Config], override: tuple[str, ...]
) -> ResumePoint:
    """Returns the checkpoint to continue from, and what `configs` change in its configurations.

    Raises `UserError` where these are more keys than `override` names, as KEY or KEY=VALUE.
    """
    if common.step is None:
        return ResumePoint()
    runs = zip(common.configs, configs, common.overridden, strict=True)
    changes = (
        overrides.check(saved, config, override, overridden) for saved, config, overridden in runs
    )
    return ResumePoint(common.step, tuple(changes))


def _common(run_dirs: Sequence[Path], surveys: Sequence[checkpoint_files.Survey]) -> int | None:
    """Returns the newest checkpoint that all runs have; None to start them. Raises `UserError`.

    A run may be ahead with those that are damaged in another, and where a kill came between two
    saves with one more. It must not have trained alone.
    """
    good = [run.good for run in surveys]
    step = max(set(good[0]).intersection(*good), default=None)
    damaged = {number for run in surveys for number in run.damaged}
    for run_dir, steps in zip(run_dirs, good, strict=True):
        newer = [number for number in steps if number > (step or 0)]
        _check_trained_together(run_dir, newer, len(run_dirs))
        if len(set(newer) - damaged) > 1:
            listed = "; ".join(
                f"{path.name}: {', '.join(map(str, numbers)) or 'none'}"
                for path, numbers in zip(run_dirs, good, strict=True)
            )
            raise UserError(
                f"the runs have no checkpoint of the same step ({listed}): resume each by its own "
                "directory"
            )
    return step


def _check_trained_together(run_dir: Path, steps: Sequence[int], members: int) -> None:
    """Raises `UserError` if a checkpoint of these steps is of a run that trained alone."""
    for step in steps:
        if checkpoint_files.describe(run_dir, step).members != members:
            raise UserError(
                f"'{run_dir}' has trained alone, to step {step:,}: resume each by its own directory"
            )


def go_back(run_dirs: Sequence[Path], common: CommonCheckpoint) -> str:
    """Moves damaged checkpoints out of the way, and deletes those that a kill left to one member.

    Whole ones of the steps that are damaged in another member are moved out of the way too. Returns
    no text: other processes only wait for it.
    """
    step = common.step or 0
    lost = {int(number) for damaged in common.damaged for number in damaged}
    for run_dir, damaged in zip(run_dirs, common.damaged, strict=True):
        wrong = {int(number): damage for number, damage in damaged.items()}
        whole = lost.intersection(checkpoint_files.steps(run_dir)) - set(wrong)
        unpaired = {number: NO_PARTNER for number in whole if number > step}
        checkpoint_files.set_aside(run_dir, wrong | unpaired)
        if len(run_dirs) > 1:
            checkpoint_files.drop_newer(run_dir, step)
    return ""


def _check_may_start(run_dir: Path, config: Config) -> None:
    """Raises `DamagedError` if a run without a checkpoint is old enough to have had one."""
    # The first checkpoint comes with the first log line after an interval, and takes a moment.
    most = 2 * max(config.checkpoint.interval, config.log.interval)
    rows = metrics.read(run_dir) if (run_dir / layout.METRICS).exists() else []
    if rows and rows[-1]["step"] >= most:
        raise DamagedError(
            f"the checkpoints of '{run_dir}' are gone, and its metrics go to step "
            f"{rows[-1]['step']:,}: nothing was changed; restore them from a copy, or train in "
            "another directory"
        )


def check_divides_among(config: Config) -> None:
    """Raises `UserError`, with numbers of devices that fit, if the run does not divide."""
    number = config.parallel.num_devices
    if not number:  # every accelerator: known when the devices are opened
        return
    try:
        resolve(config, number)
    except UserError as error:
        numbers = range(1, min(2 * number, config.num_envs) + 1)
        fitting = [str(other) for other in numbers if _divides_among(config, other)]
        if not fitting:  # it is not the number of devices that is wrong
            raise error from None
        raise UserError(
            f"num_devices = {number}: this run divides among {', '.join(fitting)}"
        ) from None


def _divides_among(config: Config, num_devices: int) -> bool:
    try:
        resolve(config, num_devices)
    except UserError:
        return False
    return True


def is_complete(plan: Plan, run_dir: Path) -> bool:
    """Returns whether a run that reached its last step was also evaluated and drawn."""
    episodes, total = plan.config.evaluation.episodes, plan.total_steps
    evaluated = not episodes or evaluation_record.is_of_end(run_dir, total)
    return evaluated and (run_dir / layout.LEARNING_CURVE).exists()


def _why_new_games(saved: str, here: str) -> str:
    """Returns why games do not continue, by the `EnvEngine.state_format` saved and that here."""
    if not here:
        return "emulators cannot be saved: new games begin"
    if not saved:
        return "the checkpoint holds no games of this emulator: new games begin"
    if saved != here:
        return f"the checkpoint holds games of '{saved}', and '{here}' plays: new games begin"
    return "its games were played in another parallel.order: new games begin"


def continue_games(
    sessions: Sequence[TrainingSession], new: LoopState, restored: Sequence[RestoredRun]
) -> LoopState:
    """Returns the restored state with its games, or else with new games; says which.

    `new` is the state of the games that they have started.
    """
    session, (first, description, level) = sessions[0], restored[0]
    saved_on, moved = description.devices, description.devices != session.mesh.size
    has_memory = bool(jax.tree.leaves(first.agent.memory))
    if moved:
        session.display.say(_describe_move(saved_on, session.mesh.size, level, has_memory))
    elif level is not RestoreLevel.GAMES:
        session.display.say(_why_new_games(description.games, session.engines[0].state_format))
    states = [member.state for member in restored]
    if level is not RestoreLevel.GAMES:
        # A seed that differs from that of the start, whose games would repeat otherwise.
        seeds = [member.config.seed + description.progress.updates for member in sessions]
        joined = session.program.join(*states)
        state = session.program.restart(
            joined, *seeds, moved=moved or level is RestoreLevel.NOTHING
        )
    else:
        if moved:
            states = [
                state._replace(games=moved_games.lay_out(state.games, saved_on, session.mesh))
                for state in states
            ]
        state = session.load_games(session.program.join(*states), new)
    if not moved and not session.config.checkpoint.memory and has_memory:
        session.display.say(
            "the checkpoint holds no replay: it starts empty, and fills before learning continues"
        )
    return state


def _describe_move(saved_on: int, here: int, level: RestoreLevel, has_memory: bool) -> str:
    """Returns the line about a run that continues on another number of devices."""
    exactly = "parameters, optimizer and games continue exactly"
    if level is not RestoreLevel.GAMES:
        exactly = ("parameters and optimizer continue exactly; new games begin, with new random "
                   "keys and statistics of games")  # fmt: skip
    memory = ", and the replay or windows start empty" * has_memory
    return f"saved on {describe_devices(saved_on)}, resumed on {here}: {exactly}{memory}"
