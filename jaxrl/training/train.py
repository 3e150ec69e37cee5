"""Trains a run: from the first game or a checkpoint to the end, its picture and its evaluation."""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.analysis import curves
from jaxrl.config import overrides
from jaxrl.config.diff import settings
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.validation import check
from jaxrl.envs import make_engines
from jaxrl.envs.envpool.engine import has_custom_call
from jaxrl.errors import DamagedError, StorageError, UserError
from jaxrl.evaluation import evaluate
from jaxrl.program.program import envs_per_device, envs_per_learner, make_program
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.checkpoint import Checkpoints, num_devices
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.directory import create, load_config, write_config
from jaxrl.runs.lock import hold
from jaxrl.runs.provenance import overridden, write_provenance
from jaxrl.runtime import malloc, processes
from jaxrl.runtime.mesh import make_mesh, num_local_devices, simulate_cpu_devices
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training import loop, memory_budget
from jaxrl.training.display import Display
from jaxrl.training.loop import Session
from jaxrl.types import LoopState

SECONDS_TO_SEE = 60.0  # a new directory on another machine: network file systems keep old listings
SECONDS_TO_START = 60.0  # of the games: pools are made, and what resets them is compiled
SLOWEST_GAMES = 100  # random steps per second that starting them makes on any machine


class Outcome(NamedTuple):
    """How training ended."""

    step: int  # agent steps
    signal: int | None  # what stopped it early


class _Origin(NamedTuple):
    """What a session goes on from."""

    checkpoint: int | None = None  # agent step; None begins
    changes: dict[str, list[object]] | None = None  # of the configuration, by key: [before, now]


def start(config: Config) -> Outcome:
    """Trains a new run. Raises `UserError` before anything is compiled or overwritten."""
    mesh = _open_mesh(config)
    if (
        config.parallel.sync_every and not config.parallel.num_learners
    ):  # as many on whatever it is resumed on
        config = config.replaced(parallel={"num_learners": mesh.size})
    with contextlib.ExitStack() as held:
        run_dir = Path(processes.from_first(lambda: str(create(config, held))))
        return _train(config, _seen(run_dir), mesh, _Origin())


def resume(
    run_dir: Path, num_devices: int | None = None, override: tuple[str, ...] = ()
) -> Outcome:
    """Continues a run from its newest good checkpoint.

    Args:
      run_dir: of the run.
      num_devices: takes the configuration's place.
      override: keys that may differ from the checkpoint's configuration, as KEY or KEY=VALUE.
    """
    config = overrides.apply(load_config(run_dir), override)
    if num_devices is not None:
        config = config.replaced(parallel={"num_devices": num_devices})
        _check_fits(config)
    mesh = _open_mesh(config)
    with contextlib.ExitStack() as held:
        # What process 0 sees: another may see an older listing of a network's file system.
        found = json.loads(processes.from_first(lambda: _find(run_dir, config, held)))
        step, first = found["step"], processes.index() == 0
        if step is None:
            if first:
                print("no checkpoint yet: training begins from the start", file=sys.stderr)
            return _train(config, run_dir, mesh, _Origin())
        changes = overrides.check(found["config"], config, override, found["overridden"])
        total = config.num_updates() * config.steps_per_update()
        if step > total and "total_steps" in changes:
            raise UserError(f"total_steps = {config.total_steps:,}: the run has reached step "
                            f"{step:,} already")  # fmt: skip
        ended = step >= total
        if ended and processes.from_first(lambda: "yes" * _finished(config, run_dir)):
            if first:
                print(f"training had ended already, at step {step:,}", file=sys.stderr)
            return Outcome(step, None)
        damaged = {int(number): wrong for number, wrong in found["damaged"].items()}
        # All wait until they are out of the way: what is there must be the same for all.
        processes.from_first(lambda: checkpoint_files.set_aside(run_dir, damaged))
        return _train(config, run_dir, mesh, _Origin(step, changes))


def _find(run_dir: Path, config: Config, held: contextlib.ExitStack) -> str:
    """Locks a run and tells, as JSON, from where it goes on; nothing is changed."""
    held.enter_context(hold(run_dir))
    found = checkpoint_files.survey(run_dir)
    if not found.good:
        _check_begins(run_dir, config)
        return json.dumps({"step": None})
    saved = checkpoint_files.describe(run_dir, found.good[-1])
    return json.dumps(
        {
            "step": found.good[-1],
            "config": saved.config,
            "damaged": found.damaged,
            "overridden": overridden(run_dir),
        }
    )


def _check_begins(run_dir: Path, config: Config) -> None:
    """Refuses to begin a run anew that has come too far to have no checkpoint."""
    # The first checkpoint comes with the first line after an interval, and takes a moment.
    most = 2 * max(config.checkpoint.interval, config.log.interval)
    rows = metrics.read(run_dir) if (run_dir / layout.METRICS).exists() else []
    if rows and rows[-1]["step"] >= most:
        raise DamagedError(
            f"the checkpoints of '{run_dir}' are gone, and its metrics go to step "
            f"{rows[-1]['step']:,}: nothing was changed; bring them back from a copy, or train "
            "anew in another directory"
        )


def _check_fits(config: Config) -> None:
    """Refuses devices among which a run does not divide; naming numbers of them that do."""
    try:
        resolve(config)
    except UserError:
        fitting = []
        for number in range(1, 2 * config.parallel.num_devices + 1):
            with contextlib.suppress(UserError):
                resolve(config, number)
                fitting.append(str(number))
        raise UserError(
            f"num_devices = {config.parallel.num_devices}: this run divides among "
            f"{', '.join(fitting)}"
        ) from None


def _finished(config: Config, run_dir: Path) -> bool:
    """Whether a run that has ended was evaluated and drawn."""
    total = config.num_updates() * config.steps_per_update()
    evaluated = not config.evaluation.episodes or evaluation_record.is_of_end(run_dir, total)
    return evaluated and (run_dir / layout.LEARNING_CURVE).exists()


def _open_mesh(config: Config) -> jax.sharding.Mesh:
    """The devices to train on. Raises `UserError` where the configuration does not fit them."""
    malloc.share_arenas()  # before JAX and the emulators begin their threads
    check(config)
    if config.parallel.num_devices > processes.count():  # before a device is touched
        simulate_cpu_devices(config.parallel.num_devices // processes.count())
    if config.env.interface == "xla" and not has_custom_call():
        raise UserError(
            "engine = 'xla': EnvPool has no custom call for this platform; take auto or callback"
        )
    mesh = make_mesh(config.parallel.num_devices)
    envs_per_device(config, mesh)
    memory_budget.check_memory(config, mesh)
    with processes.quiet():  # the first time that they speak to each other
        processes.check_same(settings(config))
    return mesh


def _train(config: Config, run_dir: Path, mesh: jax.sharding.Mesh, origin: _Origin) -> Outcome:
    began = time.perf_counter()
    num_envs = envs_per_device(config, mesh)
    engines = make_engines(config, num_envs, num_local_devices(mesh))
    spec = engines[0].spec._replace(num_envs=envs_per_learner(config, mesh))
    agent = make_agent(config, spec)
    program = make_program(config, agent, engines, mesh)
    checkpoints = Checkpoints(run_dir, config, engines[0].restorable, origin.checkpoint)
    again = f"jaxrl resume {run_dir}" + " in every process" * (processes.count() > 1)
    processes.advise(f"go on with: {again}")
    with (
        Display(silent=processes.index() > 0) as display,
        Watchdog(config.env.stuck_after, f"; go on with: {again}") as watch,
        StopSignal().watching() as stop,
    ):
        session = Session(
            config, run_dir, mesh, engines, program, checkpoints, display, stop, watch, began
        )
        display.say(_headline(session, mesh))
        state, progress = _run(session, origin)
        if stop.signal is not None:
            display.say(f"stopped at step {progress.step:,} and saved; go on with: {again}")
            return Outcome(progress.step, stop.signal)
    with Display(silent=processes.index() > 0) as display:
        if processes.index() == 0:
            _finish(session._replace(display=display), state, progress.step)
    return Outcome(progress.step, None)


def _seen(run_dir: Path) -> Path:
    """Refuses a directory that process 0 has made and this one does not see."""
    deadline = time.monotonic() + SECONDS_TO_SEE
    while not (run_dir / layout.CONFIG).is_file():
        if time.monotonic() > deadline:
            raise UserError(
                f"process {processes.index()} does not see '{run_dir}': put it on a file system "
                "that all machines share, with --run-dir"
            )
        time.sleep(0.5)
    return run_dir


def _record(session: Session, origin: _Origin) -> None:
    """What a run is, and where it was trained."""
    if processes.index() > 0:
        return
    changes = origin.changes or {}
    write_provenance(session.run_dir, list(session.mesh.devices.flat), changes)
    if changes:
        write_config(session.run_dir, session.config)


def _run(session: Session, origin: _Origin) -> tuple[LoopState, Progress]:
    """From the first game, or a checkpoint, to the last update or a signal."""
    config, display, program = session.config, session.display, session.program
    random_steps = config.num_envs * config.env.random_start_steps
    longest = SECONDS_TO_START + random_steps / SLOWEST_GAMES
    try:
        with (
            display.busy("starting the games"),
            session.watch.expecting("the emulators", longest),
        ):
            state = program.init()
        progress = Progress(0, 0, 0.0, 0)
        if origin.checkpoint is not None:
            state, described = session.checkpoints.restore(state, origin.checkpoint)
            progress = described.progress
            display.say(f"resumed at step {progress.step:,}")
            if progress.updates >= session.num_updates:
                display.say("training had ended already")
                return state, progress
            with session.watch.expecting("the emulators", longest):
                state = _restart(session, state, progress, described.devices)
        with display.busy("compiling") as compiling:
            run = program.run.lower(state, np.int32(1)).compile()
        memory_budget.check_compiled(run, config, session.mesh)
        _record(session, origin)
        return loop.run(session, run, state, progress, compiling.seconds)
    except jax.errors.JaxRuntimeError as error:
        if mistake := memory_budget.told(error, config, session.mesh):
            raise mistake from error
        raise
    finally:
        # Of several processes one that fails must not wait for the others, who wait for it.
        if sys.exception() is None:
            session.checkpoints.close()
        elif processes.count() == 1:
            with contextlib.suppress(StorageError):  # the first error is told
                session.checkpoints.close()
        for engine in session.engines:
            engine.close()


def _devices(count: int, kind: str = "") -> str:
    return " ".join(filter(None, [str(count), kind, "device" + "s" * (count > 1)]))


def _headline(session: Session, mesh: jax.sharding.Mesh) -> str:
    config, total = session.config, session.total_steps
    devices = _devices(mesh.size, mesh.devices.flat[0].device_kind)
    if processes.count() > 1:
        devices += f" of {processes.count()} processes"
    rounded = f" ({total - config.total_steps:,} more, to end with a whole update)"
    lines = [
        f"{config.algorithm} on {config.game}: {config.num_envs} environments, {devices}, "
        f"{total:,} steps{rounded * (total > config.total_steps)}, into {session.run_dir}"
    ]
    if config.parallel.num_learners:
        often = (
            "update" if config.parallel.sync_every == 1 else f"{config.parallel.sync_every} updates"
        )
        lines.append(f"{config.parallel.num_learners} learners, which merge after every {often}")
    rate, start = config.optimizer.learning_rate, config.initial_learning_rate()
    if start != rate:
        lines.append(
            f"learning rate {start:.3g}: {rate:g} for {config.optimizer.recipe_envs} environments, "
            f"scaled ({config.optimizer.lr_scaling})"
        )
    if config.agent.first_learning_step >= total:
        lines.append(
            "nothing will be learned: agent.learning_starts = "
            f"{config.agent.first_learning_step:,} is above total_steps"
        )
    return "\n".join(lines)


def _restart(session: Session, state: LoopState, progress: Progress, saved_on: int) -> LoopState:
    """What no checkpoint holds begins anew."""
    here = num_devices(state)
    moved, remembers = saved_on != here, bool(jax.tree.leaves(state.agent.memory))
    if moved:
        session.display.say(
            f"saved on {_devices(saved_on)}, resumed on {here}: parameters and optimizer go "
            "on exactly; new games begin, with new random keys and statistics of games"
            + ", and the replay or windows fill anew"
            * remembers
        )
    elif not session.engines[0].restorable:
        session.display.say("emulators cannot be saved: new games begin")
    if moved or not session.engines[0].restorable:
        # Not the games of the start again.
        state = session.program.restart(state, session.config.seed + progress.updates, moved)
    if not moved and not session.config.checkpoint.memory and remembers:
        session.display.say("checkpoints hold no replay: it fills anew before learning goes on")
    return state


def _finish(session: Session, state: LoopState, step: int) -> None:
    """The picture and the evaluation of a run that has ended."""
    config, run_dir, display = session.config, session.run_dir, session.display
    curves.learning_curve([run_dir], run_dir / layout.LEARNING_CURVE)
    if config.evaluation.episodes:
        with display.busy(f"evaluating {config.evaluation.episodes} games"):
            actor = jax.device_put(jax.device_get(state.agent.actor), jax.local_devices()[0])
            protocol = evaluation_record.protocol_of(config)
            games = config.evaluation.episodes
            result = evaluate.evaluate(config, actor, protocol, games, step=step)
        evaluation_record.write(run_dir, result)
        display.say(evaluation_record.describe(result))
    display.say(
        f"learning curve: {run_dir / layout.LEARNING_CURVE}; watch it play: jaxrl play {run_dir}"
    )
