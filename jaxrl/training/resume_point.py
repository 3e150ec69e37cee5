"""Where a resumed run continues: its newest good checkpoint, found once for all processes."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from jaxrl.config.plan import Plan, resolve
from jaxrl.config.schema import Config
from jaxrl.errors import DamagedError, UserError
from jaxrl.program import moved_games
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.checkpoint import RestoredRun, RestoreLevel
from jaxrl.runs.lock import hold_lock
from jaxrl.runs.provenance import overridden_values
from jaxrl.training.messages import describe_devices
from jaxrl.training.session import TrainingSession
from jaxrl.types import LoopState

NO_PARTNER = "of another seed"


class ResumePoint(NamedTuple):
    """The checkpoint that a session continues from."""

    checkpoint: int | None = None  # agent step; None starts the run
    # Of the configuration of each run, by key: [before, now]. None where there are none.
    changes: tuple[dict[str, list[object]], ...] = ()


def find(run_dirs: Sequence[Path], configs: Sequence[Config], held: contextlib.ExitStack) -> str:
    """Locks runs and returns, as JSON, the checkpoint to continue from; changes no file.

    It is the newest one, and of several runs, a population's, the newest that all have.

    Keys: `step`, None where no checkpoint exists yet, and of each run the `damaged` checkpoints,
    the `configs` that the checkpoint was saved with, and the keys that were `overridden`.
    """
    for run_dir in run_dirs:
        held.enter_context(hold_lock(run_dir))
    surveys = [checkpoint_files.survey(run_dir) for run_dir in run_dirs]
    step = _common(run_dirs, surveys)
    damaged = [found.damaged for found in surveys]
    if step is None:
        for run_dir, config in zip(run_dirs, configs, strict=True):
            _check_may_start(run_dir, config)
        return json.dumps({"step": None, "damaged": damaged})
    return json.dumps(
        {
            "step": step,
            "configs": [checkpoint_files.describe(own, step).config for own in run_dirs],
            "damaged": damaged,
            "overridden": [overridden_values(own) for own in run_dirs],
        }
    )


def _common(run_dirs: Sequence[Path], surveys: Sequence[checkpoint_files.Survey]) -> int | None:
    """Returns the newest checkpoint that all runs have; None to start them. Raises `UserError`.

    A run may be ahead with those that are damaged in another, and where a kill came between two
    saves with one more. It must not have trained alone.
    """
    good = [found.good for found in surveys]
    step = max(set(good[0]).intersection(*good), default=None)
    damaged = {own for found in surveys for own in found.damaged}
    for run_dir, steps in zip(run_dirs, good, strict=True):
        newer = [own for own in steps if own > (step or 0)]
        for own in newer:
            if checkpoint_files.describe(run_dir, own).members != len(run_dirs):
                raise UserError(
                    f"'{run_dir}' has trained alone, to step {own:,}: resume each by its own "
                    "directory"
                )
        if len([own for own in newer if own not in damaged]) > 1:
            listed = "; ".join(
                f"{path.name}: {', '.join(map(str, found)) or 'none'}"
                for path, found in zip(run_dirs, good, strict=True)
            )
            raise UserError(
                f"the runs have no checkpoint of the same step ({listed}): resume each by its own "
                "directory"
            )
    return step


def go_back(run_dirs: Sequence[Path], step: int, damaged: Sequence[dict[str, str]]) -> str:
    """Moves damaged checkpoints out of the way, and deletes those that a kill left to one member.

    Whole ones of the steps that are damaged in another member are moved out of the way too.
    """
    lost = {int(number) for own in damaged for number in own}
    for run_dir, own in zip(run_dirs, damaged, strict=True):
        whole = lost.intersection(checkpoint_files.steps(run_dir)) - {int(n) for n in own}
        wrong = {int(number): text for number, text in own.items()}
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
    asked = config.parallel.num_devices
    if not asked:  # every accelerator: known when the devices are opened
        return
    try:
        resolve(config, asked)
    except UserError as error:
        fitting = []
        for number in range(1, min(2 * asked, config.num_envs) + 1):
            with contextlib.suppress(UserError):
                resolve(config, number)
                fitting.append(str(number))
        if not fitting:  # it is not the number of devices that is wrong
            raise error from None
        raise UserError(
            f"num_devices = {asked}: this run divides among {', '.join(fitting)}"
        ) from None


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
    """Returns the restored state with its games, or new ones where it holds none; says which.

    Args:
      sessions: of the run, or of each member of a population.
      new: the state of the games that they have started.
      restored: what the checkpoint of each provides.
    """
    session, (first, described, kept) = sessions[0], restored[0]
    states = [own.state for own in restored]
    saved_on, here = described.devices, session.mesh.size
    moved, has_memory = saved_on != here, bool(jax.tree.leaves(first.agent.memory))
    exactly = "parameters and optimizer continue exactly"
    if kept is RestoreLevel.GAMES and moved:
        exactly = "parameters, optimizer and games continue exactly"
    elif moved:
        exactly += "; new games begin, with new random keys and statistics of games"
    if moved:
        session.display.say(
            f"saved on {describe_devices(saved_on)}, resumed on {here}: {exactly}"
            + ", and the replay or windows start empty" * has_memory
        )
    elif kept is not RestoreLevel.GAMES:
        session.display.say(_why_new_games(described.games, session.engines[0].state_format))
    if kept is RestoreLevel.GAMES:
        if moved:
            states = [
                own._replace(games=moved_games.lay_out(own.games, saved_on, session.mesh))
                for own in states
            ]
        state = session.with_loaded_games(session.program.join(*states), new)
    else:
        # A seed that differs from that of the start, whose games would repeat otherwise.
        seeds = [own.config.seed + described.progress.updates for own in sessions]
        state = session.program.restart(
            session.program.join(*states), *seeds, moved=moved or kept is RestoreLevel.NOTHING
        )
    if not moved and not session.config.checkpoint.memory and has_memory:
        session.display.say(
            "the checkpoint holds no replay: it starts empty, and fills before learning continues"
        )
    return state
