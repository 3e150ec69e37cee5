"""Where a resumed run continues: its newest good checkpoint, found once for all processes."""

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

import jax

from jaxrl.config.plan import check_sizes, resolve
from jaxrl.config.schema import Config
from jaxrl.errors import DamagedError, UserError
from jaxrl.program import moved_games
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.checkpoint import Kept, Restored
from jaxrl.runs.lock import hold_lock
from jaxrl.runs.provenance import overridden_values
from jaxrl.training.messages import describe_devices
from jaxrl.training.session import TrainingSession
from jaxrl.types import LoopState


class ResumePoint(NamedTuple):
    """The checkpoint that a session continues from."""

    checkpoint: int | None = None  # agent step; None starts the run
    changes: dict[str, list[object]] | None = None  # of the configuration, by key: [before, now]


def find(run_dir: Path, config: Config, held: contextlib.ExitStack) -> str:
    """Locks a run and returns, as JSON, the checkpoint to continue from; changes no file.

    Keys: `step`, None where no checkpoint exists yet, and otherwise the `config` that the
    checkpoint was saved with, the `damaged` checkpoints and the keys that were `overridden`.
    """
    held.enter_context(hold_lock(run_dir))
    found = checkpoint_files.survey(run_dir)
    if not found.good:
        _check_may_start(run_dir, config)
        return json.dumps({"step": None})
    saved = checkpoint_files.describe(run_dir, found.good[-1])
    return json.dumps(
        {
            "step": found.good[-1],
            "config": saved.config,
            "damaged": found.damaged,
            "overridden": overridden_values(run_dir),
        }
    )


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
        check_sizes(config, asked)
    except UserError:
        fitting = []
        for number in range(1, min(2 * asked, config.num_envs) + 1):
            with contextlib.suppress(UserError):
                check_sizes(config, number)
                fitting.append(str(number))
        raise UserError(
            f"num_devices = {asked}: this run divides among {', '.join(fitting)}"
        ) from None


def is_complete(config: Config, run_dir: Path) -> bool:
    """Returns whether a run that reached its last step was also evaluated and drawn."""
    total = resolve(config).total_steps
    evaluated = not config.evaluation.episodes or evaluation_record.is_of_end(run_dir, total)
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


def continue_games(session: TrainingSession, new: LoopState, restored: Restored) -> LoopState:
    """Returns the restored state with its games, or new ones where it holds none; says which.

    Args:
      session: that resumes the run.
      new: the state of the games that the session has started.
      restored: what the checkpoint provides.
    """
    state, described, kept = restored
    saved_on, here = described.devices, session.mesh.size
    moved, has_memory = saved_on != here, bool(jax.tree.leaves(state.agent.memory))
    exactly = "parameters and optimizer continue exactly"
    if kept is Kept.GAMES and moved:
        exactly = "parameters, optimizer and games continue exactly"
    elif moved:
        exactly += "; new games begin, with new random keys and statistics of games"
    if moved:
        session.display.say(
            f"saved on {describe_devices(saved_on)}, resumed on {here}: {exactly}"
            + ", and the replay or windows start empty" * has_memory
        )
    elif kept is not Kept.GAMES:
        session.display.say(_why_new_games(described.games, session.engines[0].state_format))
    if kept is Kept.GAMES:
        groups = state.games
        if moved:
            groups = moved_games.lay_out(groups, saved_on, session.mesh)
        state = session.with_loaded_games(state._replace(games=groups), new)
    else:
        # A seed that differs from that of the start, whose games would repeat otherwise.
        seed = session.config.seed + described.progress.updates
        state = session.program.restart(state, seed, moved or kept is Kept.NOTHING)
    if not moved and not session.config.checkpoint.memory and has_memory:
        session.display.say(
            "the checkpoint holds no replay: it starts empty, and fills before learning continues"
        )
    return state
