"""Trains a run: from the first game or a checkpoint to its learning curve and evaluation."""

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.config import overrides
from jaxrl.config.diff import settings
from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config
from jaxrl.config.validation import check
from jaxrl.envs import make_engines
from jaxrl.errors import StorageError, UserError
from jaxrl.formatting import shell_word
from jaxrl.program import moved_games
from jaxrl.program.program import make_program
from jaxrl.runs import layout, population
from jaxrl.runs.checkpoint import Checkpoints, RestoreLevel
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.directory import create_run, load_config, new_run_dir, write_config
from jaxrl.runs.provenance import write_provenance
from jaxrl.runs.wandb_log import check_installed
from jaxrl.runtime import malloc, processes
from jaxrl.runtime.mesh import num_local_devices, simulate_cpu_devices
from jaxrl.runtime.signals import StopSignal
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.training import loop, memory_budget, resume_point
from jaxrl.training.display import Display
from jaxrl.training.finish import finish_runs
from jaxrl.training.messages import headline
from jaxrl.training.planning import plan_training
from jaxrl.training.resume_point import ResumePoint
from jaxrl.training.session import OnMetrics, TrainingSession
from jaxrl.types import LoopState

SECONDS_TO_START = 60.0  # to create the environments and compile their reset
SLOWEST_GAMES = 100  # random steps per second that any machine reaches


class Outcome(NamedTuple):
    """The end of training."""

    run_dir: Path  # or that of a population
    step: int  # agent steps
    signal: int | None  # that stopped it early


class RunRequest(NamedTuple):
    """The runs to train: one, or the members of a population."""

    path: Path  # that the user names: of the run, or of the population
    plans: tuple[Plan, ...]
    run_dirs: tuple[Path, ...]


def start(
    config: Config, on_metrics: OnMetrics | None = None, ends_process: bool = True
) -> Outcome:
    """Trains a new run, by default in `new_run_dir`.

    Args:
      config: the run's configuration.
      on_metrics: called with every line of metrics.jsonl, in process 0.
      ends_process: whether a signal that cannot wait ends the process, as `StopSignal` says.

    Raises `UserError` before anything is compiled or overwritten.
    """
    check(config)  # before anything is computed from it
    plan, mesh = _open(config.with_time_limit())  # the limit stays when the run is resumed
    with contextlib.ExitStack() as locks:
        run_dir = Path(processes.call_in_first(lambda: str(create_run(plan.config, locks))))
        processes.wait_to_see(run_dir / layout.CONFIG)
        plan = plan.of(plan.config.replaced(run_dir=str(run_dir)))
        request = RunRequest(run_dir, (plan,), (run_dir,))
        return _train(request, mesh, ResumePoint(), on_metrics, ends_process)


def start_population(config: Config, seeds: Sequence[int]) -> Outcome:
    """Trains a run with each of the seeds, all in one program; returns the directory of all.

    Raises `UserError` before anything is compiled or overwritten.
    """
    check(config)  # before anything is computed from it
    plan, mesh = _open(population.configs_of(config, seeds, Path())[0], len(seeds))
    with contextlib.ExitStack() as locks:
        root = Path(config.run_dir or new_run_dir(config, seeds))
        configs = population.configs_of(config, seeds, root)
        population.create(root, configs, locks)
        request = RunRequest(root, tuple(map(plan.of, configs)), population.run_dirs(root))
        return _train(request, mesh, ResumePoint(), None, ends_process=True)


def resume(
    run_dir: Path,
    num_devices: int | None = None,
    override: tuple[str, ...] = (),
    on_metrics: OnMetrics | None = None,
    ends_process: bool = True,
) -> Outcome:
    """Continues a run from its newest good checkpoint, or a population from that of all members.

    Args:
      run_dir: directory of the run or the population.
      num_devices: replaces the configuration's.
      override: keys that may differ from the checkpoint's configuration, as KEY or KEY=VALUE.
      on_metrics: called with every line of metrics.jsonl, in process 0.
      ends_process: as for `start`.
    """
    run_dirs = population.run_dirs(run_dir)
    configs = tuple(_config_to_resume(member, num_devices, override) for member in run_dirs)
    for config in configs:
        check(config)
    population.check_alike(configs)
    plan, mesh = _open(configs[0], len(configs))
    request = RunRequest(run_dir, tuple(map(plan.of, configs)), run_dirs)
    with contextlib.ExitStack() as locks:
        common = resume_point.find(run_dirs, configs, locks)
        origin = resume_point.choose(common, configs, override)
        if origin.checkpoint is None:
            _notify("no checkpoint yet: training begins from the start")
        elif _has_ended(request, origin):
            _notify(f"training had ended already, at step {origin.checkpoint:,}: --override "
                    f"total_steps={2 * origin.checkpoint} trains as long again")  # fmt: skip
            return Outcome(run_dir, origin.checkpoint, None)
        # Every process waits here: all must find the same checkpoints afterwards.
        processes.call_in_first(lambda: resume_point.go_back(run_dirs, common))
        return _train(request, mesh, origin, on_metrics, ends_process)


def _notify(message: str) -> None:
    """Prints a line on standard error, in process 0."""
    if processes.index() == 0:
        print(message, file=sys.stderr)


def _has_ended(request: RunRequest, origin: ResumePoint) -> bool:
    """Returns whether every run is trained, evaluated and drawn. Raises `UserError`."""
    plan, step = request.plans[0], origin.checkpoint or 0
    if step > plan.total_steps and "total_steps" in origin.changes[0]:
        raise UserError(f"total_steps = {plan.config.total_steps:,}: the run has reached step "
                        f"{step:,} already")  # fmt: skip
    return step >= plan.total_steps and not _incomplete(request)


def _config_to_resume(run_dir: Path, num_devices: int | None, override: tuple[str, ...]) -> Config:
    """Returns the configuration that a run goes on with. Raises `UserError`."""
    config = overrides.apply(load_config(run_dir), override)
    if num_devices is not None:
        config = config.replaced(parallel={"num_devices": num_devices})
        resume_point.check_divides_among(config)
    return config


def _incomplete(request: RunRequest) -> list[int]:
    """Returns the numbers of the runs that process 0 finds not evaluated or not drawn."""

    def find() -> str:
        runs = enumerate(zip(request.plans, request.run_dirs, strict=True))
        return json.dumps([number for number, run in runs if not resume_point.is_complete(*run)])

    return json.loads(processes.call_in_first(find))


def _open(config: Config, members: int = 1) -> tuple[Plan, jax.sharding.Mesh]:
    """Returns the plan of a run, and the devices to train on. Raises `UserError` where none is."""
    malloc.share_arenas()  # before JAX and the emulators start their threads
    check_installed(config)
    if config.parallel.num_devices > processes.count():  # before a device is touched
        simulate_cpu_devices(config.parallel.num_devices // processes.count())
    plan, mesh = plan_training(config, members)
    with processes.quiet():  # the first connection, which Gloo announces on standard output
        # The machines may differ: one without a compiler would play with another engine.
        processes.check_same(f"{settings(config)}\nengine that plays: {plan.env.engine}")
    return plan, mesh


def _train(
    request: RunRequest,
    mesh: jax.sharding.Mesh,
    origin: ResumePoint,
    on_metrics: OnMetrics | None,
    ends_process: bool,
) -> Outcome:
    """Builds the sessions' parts, trains, and finishes the runs if no signal stopped them."""
    start_time = time.perf_counter()
    plan, members = request.plans[0], len(request.plans)
    engines = make_engines(plan, num_local_devices(mesh), members)
    agent = make_agent(plan, engines[0].spec._replace(num_envs=plan.envs_per_learner))
    program = make_program(plan, agent, engines, mesh, [run.config.seed for run in request.plans])
    everywhere = " in every process" * (processes.count() > 1)
    advice = f"go on with: jaxrl resume {shell_word(request.path)}{everywhere}"
    processes.advise(advice)
    with (
        Display(silent=processes.index() > 0) as display,
        Watchdog(plan.env.stuck_after, f"; {advice}") as watchdog,
        StopSignal(ends_process).watching() as stop,
    ):
        sessions = tuple(
            TrainingSession(
                plan=run,
                run_dir=run_dir,
                mesh=mesh,
                engines=engines,
                program=program,
                checkpoints=Checkpoints(
                    run_dir, run.config, engines[0].state_format, origin.checkpoint, members
                ),
                display=display,
                stop=stop,
                watchdog=watchdog,
                start_time=start_time,
                members=members,
                on_metrics=on_metrics,
            )
            for run, run_dir in zip(request.plans, request.run_dirs, strict=True)
        )
        display.say(headline(sessions, request.path))
        state, progress = _run(sessions, origin)
        if stop.signal is not None:
            display.say(f"stopped at step {progress.step:,} and saved; {advice}")
            return Outcome(request.path, progress.step, stop.signal)
    trained = progress.step > (origin.checkpoint or 0)
    finish_runs(sessions, state, progress.step, range(members) if trained else _incomplete(request))
    return Outcome(request.path, progress.step, None)


def _run(sessions: Sequence[TrainingSession], origin: ResumePoint) -> tuple[LoopState, Progress]:
    """Trains to the end or a signal; closes checkpoints and engines in any case."""
    session = sessions[0]
    try:
        return _begin_and_train(sessions, origin)
    except jax.errors.JaxRuntimeError as error:
        if mistake := memory_budget.out_of_memory(error, session.plan, session.mesh):
            raise mistake from error
        raise
    finally:
        _close(sessions, failed=sys.exception() is not None)


def _begin_and_train(
    sessions: Sequence[TrainingSession], origin: ResumePoint
) -> tuple[LoopState, Progress]:
    """Starts or restores, compiles and trains."""
    session = sessions[0]
    state, begun, new_games = _begin(sessions, origin)
    if begun[0].updates >= session.plan.num_updates:
        session.display.say("training had ended already")
        return state, begun[0]
    with session.display.busy("compiling", announced=True) as compiling:
        compiled = session.program.run.lower(state, np.int32(1)).compile()
    memory_budget.check_compiled(compiled, session.plan, session.mesh)
    _record_provenance(sessions, origin)
    return loop.run(sessions, compiled, state, begun, compiling.seconds, new_games)


def _close(sessions: Sequence[TrainingSession], failed: bool) -> None:
    """Closes checkpoints and engines; the first failure is the one to report."""
    # A process that fails must not wait for the others, which wait for it.
    waiting = () if failed and processes.count() > 1 else sessions
    unreported = (StorageError,) if failed else ()
    for session in waiting:
        with contextlib.suppress(*unreported):
            session.checkpoints.close()
    for engine in sessions[0].engines:
        engine.close()


class Beginning(NamedTuple):
    """The state and the progress of each run that a session trains on from."""

    state: LoopState
    progress: tuple[Progress, ...]
    new_games: bool  # whether all games begin with the session


def _begin(sessions: Sequence[TrainingSession], origin: ResumePoint) -> Beginning:
    """Starts the games, and takes over what the checkpoints hold, if there are some."""
    session = sessions[0]
    config, display = session.config, session.display
    random_steps = len(sessions) * config.num_envs * config.env.random_start_steps
    longest = SECONDS_TO_START + random_steps / SLOWEST_GAMES
    starting = display.busy("starting the games", announced=True)
    with starting, session.watchdog.expecting("the emulators", longest):
        state = session.program.init()
    if origin.checkpoint is None:
        return Beginning(state, (Progress(0, 0, 0.0, 0),) * len(sessions), new_games=True)
    restored = [
        member.checkpoints.restore(template, origin.checkpoint, moved_games.saved_shapes)
        for member, template in zip(sessions, session.run_states(state), strict=True)
    ]
    progress = tuple(member.description.progress for member in restored)
    display.say(f"resumed at step {progress[0].step:,}")
    if progress[0].updates >= session.plan.num_updates:
        joined = session.program.join(*(member.state for member in restored))
        return Beginning(joined, progress, new_games=False)
    with session.watchdog.expecting("the emulators", longest):
        state = resume_point.continue_games(sessions, state, restored)
    return Beginning(state, progress, new_games=restored[0].level is not RestoreLevel.GAMES)


def _record_provenance(sessions: Sequence[TrainingSession], origin: ResumePoint) -> None:
    """Writes which code trains, where and with which changes; process 0 does so for all."""
    if processes.index() > 0:
        return
    changed = origin.changes or ({},) * len(sessions)
    for session, changes in zip(sessions, changed, strict=True):
        devices, engine = list(session.mesh.devices.flat), session.plan.env.engine
        started = time.time() - session.seconds_since_start()
        write_provenance(session.config, session.run_dir, devices, engine, changes, started)
        if changes:
            write_config(session.run_dir, session.config)
