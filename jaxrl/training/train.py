"""Trains a run: from the first game or a checkpoint to its learning curve and evaluation."""

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
from jaxrl.config.plan import check_sizes, resolve, with_learners
from jaxrl.config.schema import Config
from jaxrl.config.validation import check
from jaxrl.envs import check_engine, engine_name, make_engines
from jaxrl.errors import StorageError, UserError
from jaxrl.evaluation import evaluate
from jaxrl.program import moved_games
from jaxrl.program.program import make_program
from jaxrl.runs import checkpoint_files, evaluation_record, layout
from jaxrl.runs.checkpoint import Checkpoints, Kept
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.directory import create_run, default_run_dir, load_config, write_config
from jaxrl.runs.provenance import write_provenance
from jaxrl.runs.wandb_log import check_installed
from jaxrl.runtime import malloc, processes
from jaxrl.runtime.mesh import make_mesh, num_local_devices, simulate_cpu_devices
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training import loop, memory_budget, resume_point
from jaxrl.training.display import Display
from jaxrl.training.messages import headline
from jaxrl.training.resume_point import ResumePoint
from jaxrl.training.session import OnMetrics, TrainingSession
from jaxrl.types import LoopState

# How long a process waits for the run directory: network file systems cache old listings.
SECONDS_TO_SEE = 60.0
SECONDS_TO_START = 60.0  # to create the environments and compile their reset
SLOWEST_GAMES = 100  # random steps per second that any machine reaches


class Outcome(NamedTuple):
    """How training ended."""

    run_dir: Path
    step: int  # agent steps
    signal: int | None  # that stopped it early


def start(
    config: Config, on_metrics: OnMetrics | None = None, ends_process: bool = True
) -> Outcome:
    """Trains a new run, by default in `default_run_dir`.

    Args:
      config: of the run.
      on_metrics: called with every line of metrics.jsonl, in process 0.
      ends_process: whether a signal that cannot wait ends the process, as `StopSignal` says.

    Raises `UserError` before anything is compiled or overwritten.
    """
    mesh = _open_mesh(config)
    config = config.replaced(run_dir=config.run_dir or default_run_dir(config))
    # Their number stays, also when the run is resumed on other devices.
    config = with_learners(config, mesh.size)
    with contextlib.ExitStack() as held:
        run_dir = Path(processes.from_first(lambda: str(create_run(config, held))))
        _wait_for_directory(run_dir)
        return _train(config, run_dir, mesh, ResumePoint(), on_metrics, ends_process)


def resume(
    run_dir: Path,
    num_devices: int | None = None,
    override: tuple[str, ...] = (),
    on_metrics: OnMetrics | None = None,
    ends_process: bool = True,
) -> Outcome:
    """Continues a run from its newest good checkpoint.

    Args:
      run_dir: of the run.
      num_devices: replaces the configuration's.
      override: keys that may differ from the checkpoint's configuration, as KEY or KEY=VALUE.
      on_metrics: called with every line of metrics.jsonl, in process 0.
      ends_process: as for `start`.
    """
    config = overrides.apply(load_config(run_dir), override)
    if num_devices is not None:
        config = config.replaced(parallel={"num_devices": num_devices})
        resume_point.check_divides_among(config)
    mesh = _open_mesh(config)
    with contextlib.ExitStack() as held:
        # Process 0 decides: others may see an older listing of a network file system.
        found = json.loads(processes.from_first(lambda: resume_point.find(run_dir, config, held)))
        step, first = found["step"], processes.index() == 0
        if step is None:
            if first:
                print("no checkpoint yet: training begins from the start", file=sys.stderr)
            return _train(config, run_dir, mesh, ResumePoint(), on_metrics, ends_process)
        changes = overrides.check(found["config"], config, override, found["overridden"])
        total = resolve(config, mesh.size).total_steps
        if step > total and "total_steps" in changes:
            raise UserError(f"total_steps = {config.total_steps:,}: the run has reached step "
                            f"{step:,} already")  # fmt: skip
        if step >= total and _all_complete(config, run_dir):
            if first:
                print(f"training had ended already, at step {step:,}: --override total_steps="
                      f"{2 * step} trains as long again", file=sys.stderr)  # fmt: skip
            return Outcome(run_dir, step, None)
        damaged = {int(number): wrong for number, wrong in found["damaged"].items()}
        # Every process waits here: all must find the same checkpoints afterwards.
        processes.from_first(lambda: checkpoint_files.set_aside(run_dir, damaged))
        point = ResumePoint(step, changes)
        return _train(config, run_dir, mesh, point, on_metrics, ends_process)


def _all_complete(config: Config, run_dir: Path) -> bool:
    """Returns whether process 0 finds the run evaluated and drawn."""
    return bool(processes.from_first(lambda: "yes" * resume_point.is_complete(config, run_dir)))


def _open_mesh(config: Config) -> jax.sharding.Mesh:
    """Returns the devices to train on. Raises `UserError` if the configuration does not fit."""
    malloc.share_arenas()  # before JAX and the emulators start their threads
    check(config)
    check_installed(config)
    if config.parallel.num_devices > processes.count():  # before a device is touched
        simulate_cpu_devices(config.parallel.num_devices // processes.count())
    check_engine(config)
    mesh = make_mesh(config.parallel.num_devices)
    check_sizes(config, mesh.size)
    memory_budget.check_memory(config, mesh)
    with processes.quiet():  # the first connection, which Gloo announces on standard output
        # The machines may differ: one without a compiler would play with another engine.
        processes.check_same(f"{settings(config)}\nengine that plays: {engine_name(config)}")
    return mesh


def _wait_for_directory(run_dir: Path) -> None:
    """Raises `UserError` if this process does not see the directory that process 0 made."""
    deadline = time.monotonic() + SECONDS_TO_SEE
    while not (run_dir / layout.CONFIG).is_file():
        if time.monotonic() > deadline:
            raise UserError(
                f"process {processes.index()} does not see '{run_dir}': put it on a file system "
                "that all machines share, with --run-dir"
            )
        time.sleep(0.5)


def _train(
    config: Config,
    run_dir: Path,
    mesh: jax.sharding.Mesh,
    origin: ResumePoint,
    on_metrics: OnMetrics | None,
    ends_process: bool,
) -> Outcome:
    """Builds the session's parts, trains, and finishes the run if no signal stopped it."""
    start_time = time.perf_counter()
    plan = resolve(config, mesh.size)
    engines = make_engines(config, plan.envs_per_device, num_local_devices(mesh))
    agent = make_agent(plan, engines[0].spec._replace(num_envs=plan.envs_per_learner))
    program = make_program(plan, agent, engines, mesh)
    checkpoints = Checkpoints(run_dir, config, engines[0].state_format, origin.checkpoint)
    again = f"jaxrl resume {run_dir}" + " in every process" * (processes.count() > 1)
    processes.advise(f"go on with: {again}")
    with (
        Display(silent=processes.index() > 0) as display,
        Watchdog(config.env.stuck_after, f"; go on with: {again}") as watchdog,
        StopSignal(ends_process).watching() as stop,
    ):
        session = TrainingSession(
            plan=plan,
            run_dir=run_dir,
            mesh=mesh,
            engines=engines,
            program=program,
            checkpoints=checkpoints,
            display=display,
            stop=stop,
            watchdog=watchdog,
            start_time=start_time,
            on_metrics=on_metrics,
        )
        display.say(headline(session))
        state, progress = _run(session, origin)
        if stop.signal is not None:
            display.say(f"stopped at step {progress.step:,} and saved; go on with: {again}")
            return Outcome(run_dir, progress.step, stop.signal)
    with Display(silent=processes.index() > 0) as display:
        if processes.index() == 0:
            _finish(session._replace(display=display), state, progress.step)
    return Outcome(run_dir, progress.step, None)


def _run(session: TrainingSession, origin: ResumePoint) -> tuple[LoopState, Progress]:
    """Starts or restores, compiles and trains; closes checkpoints and engines in any case."""
    try:
        state, progress, new_games = _begin(session, origin)
        if progress.updates >= session.plan.num_updates:
            session.display.say("training had ended already")
            return state, progress
        with session.display.busy("compiling") as compiling:
            compiled = session.program.run.lower(state, np.int32(1)).compile()
        memory_budget.check_compiled(compiled, session.config, session.mesh)
        _record_provenance(session, origin)
        return loop.run(session, compiled, state, progress, compiling.seconds, new_games)
    except jax.errors.JaxRuntimeError as error:
        if mistake := memory_budget.out_of_memory(error, session.config, session.mesh):
            raise mistake from error
        raise
    finally:
        # A process that fails must not wait for the others, which wait for it.
        if sys.exception() is None:
            session.checkpoints.close()
        elif processes.count() == 1:
            with contextlib.suppress(StorageError):  # the first error is the one to report
                session.checkpoints.close()
        for engine in session.engines:
            engine.close()


class Beginning(NamedTuple):
    """The state and the progress that a session trains on from."""

    state: LoopState
    progress: Progress
    new_games: bool  # whether all games begin with the session


def _begin(session: TrainingSession, origin: ResumePoint) -> Beginning:
    """Starts the games, and takes over what the checkpoint holds, if there is one."""
    config, display = session.config, session.display
    random_steps = config.num_envs * config.env.random_start_steps
    longest = SECONDS_TO_START + random_steps / SLOWEST_GAMES
    with display.busy("starting the games"), session.watchdog.expecting("the emulators", longest):
        state = session.program.init()
    if origin.checkpoint is None:
        return Beginning(state, Progress(0, 0, 0.0, 0), new_games=True)
    restored = session.checkpoints.restore(
        session.with_saved_games(state), origin.checkpoint, moved_games.as_saved
    )
    progress = restored.described.progress
    display.say(f"resumed at step {progress.step:,}")
    if progress.updates >= session.plan.num_updates:
        return Beginning(restored.state, progress, new_games=False)
    with session.watchdog.expecting("the emulators", longest):
        state = resume_point.continue_games(session, state, restored)
    return Beginning(state, progress, new_games=restored.kept is not Kept.GAMES)


def _record_provenance(session: TrainingSession, origin: ResumePoint) -> None:
    """Writes which code trains, where and with which changes; process 0 does so for all."""
    if processes.index() > 0:
        return
    changes = origin.changes or {}
    devices, engine = list(session.mesh.devices.flat), engine_name(session.config)
    write_provenance(session.run_dir, devices, engine, changes)
    if changes:
        write_config(session.run_dir, session.config)


def _finish(session: TrainingSession, state: LoopState, step: int) -> None:
    """Draws and evaluates a run that has reached its end."""
    config, run_dir, display = session.config, session.run_dir, session.display
    if config.evaluation.episodes:
        with display.busy(f"evaluating {config.evaluation.episodes} games"):
            actor = jax.device_put(jax.device_get(state.agent.actor), jax.local_devices()[0])
            protocol = evaluation_record.protocol_of(config)
            games = config.evaluation.episodes
            result = evaluate.evaluate(config, actor, protocol, games, step=step)
        evaluation_record.write(run_dir, result)
        display.say(evaluation_record.describe(result))
    # A picture without games shows the evaluation.
    curves.learning_curve([run_dir], run_dir / layout.LEARNING_CURVE)
    display.say(
        f"learning curve: {run_dir / layout.LEARNING_CURVE}; watch it play: jaxrl play {run_dir}"
    )
