"""The host's loop: run a compiled second, log it, keep it; at the end draw and evaluate."""

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import episodes, evaluate, metrics, plotting, processes, runs
from jaxrl.agents import make_agent
from jaxrl.checkpoint import Checkpoints, Progress, num_devices
from jaxrl.checks import check, check_divides
from jaxrl.config import Config, UserError, learning_starts
from jaxrl.distribute import fetch, make_mesh, num_local_devices, simulate_cpu_devices
from jaxrl.envs import has_custom_call, make_engines
from jaxrl.program import (
    LoopState,
    Program,
    check_memory,
    envs_per_device,
    envs_per_learner,
    make_program,
)
from jaxrl.progress import Display, Moment
from jaxrl.types import FRAME_SKIP, EnvEngine

SECONDS_TO_SEE = 60.0  # a new directory on another machine: network file systems keep old listings
SECONDS_PER_CALL = 1.0  # of one compiled call: how long Ctrl-C and the progress line wait


class Outcome(NamedTuple):
    """How training ended."""

    step: int  # agent steps
    signal: int | None  # what stopped it early


class _Stop:
    """Notes the first SIGINT or SIGTERM, so that training saves and ends; a second one kills."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def agreed(self) -> bool:
        """Whether any process was told to stop; all of them ask together."""
        told = int(processes.agree(self.signal or 0).max())
        self.signal = told or self.signal  # one that came meanwhile waits for the next time
        return bool(told)

    @contextlib.contextmanager
    def watching(self) -> Iterator["_Stop"]:
        """Handlers are the process's own, so they are put back."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, _: FrameType | None) -> None:
            self.signal = number
            # A handler may interrupt any print, so it must not print itself.
            os.write(2, b"\nsaving, then stopping; once more stops at once\n")
            for again in before:
                signal.signal(again, signal.SIG_DFL)

        for number in before:
            signal.signal(number, note)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Session(NamedTuple):
    """What one process trains with."""

    config: Config
    run_dir: Path
    engines: tuple[EnvEngine, ...]
    program: Program
    checkpoints: Checkpoints
    display: Display

    @property
    def log_updates(self) -> int:
        """Updates between two lines of the log, so that lines fall at the same steps every time."""
        whole = self.program.updates_between_merges
        steps = self.program.steps_per_update * whole
        return whole * max(1, round(self.config.log_interval / steps))

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return self.config.num_updates()

    @property
    def total_steps(self) -> int:
        """Agent steps at the end: of whole updates, so at least those that were asked for."""
        return self.num_updates * self.program.steps_per_update


def start(config: Config) -> Outcome:
    """Trains a new run. Raises `UserError` before anything is compiled or overwritten."""
    mesh = _open_mesh(config)
    if config.sync_every and not config.num_learners:  # as many on whatever it is resumed on
        config = dataclasses.replace(config, num_learners=mesh.size)
    run_dir = Path(processes.from_first(lambda: str(runs.create(config))))
    return _train(config, _seen(run_dir), mesh, checkpoint=None)


def resume(run_dir: Path, num_devices: int | None = None) -> Outcome:
    """Continues a run from its newest checkpoint; `num_devices` takes the configuration's place."""
    config = runs.load_config(run_dir)
    if num_devices is not None:
        config = dataclasses.replace(config, num_devices=num_devices)
        _check_fits(config)
    mesh = _open_mesh(config)
    checkpoints = Checkpoints(run_dir)
    # Of what process 0 sees: another may see an older listing of a network's file system.
    steps = [int(step) for step in processes.from_first(lambda: _listed(checkpoints)).split()]
    checkpoints.close()
    if not steps:
        if processes.index() == 0:
            print("no checkpoint yet: training begins from the start", file=sys.stderr)
        return _train(config, run_dir, mesh, checkpoint=None)
    ended = steps[-1] >= config.num_updates() * config.steps_per_update()
    if ended and processes.from_first(lambda: "yes" * _finished(config, run_dir)):
        if processes.index() == 0:
            print(f"training had ended already, at step {steps[-1]:,}", file=sys.stderr)
        return Outcome(steps[-1], None)
    return _train(config, run_dir, mesh, checkpoint=steps[-1])


def _check_fits(config: Config) -> None:
    """Refuses devices among which a run does not divide; naming numbers of them that do."""
    try:
        check_divides(config, max(config.num_devices, 1))
    except UserError:
        fitting = []
        for number in range(1, 2 * config.num_devices + 1):
            with contextlib.suppress(UserError):
                check_divides(config, number)
                fitting.append(str(number))
        raise UserError(
            f"num_devices = {config.num_devices}: this run divides among {', '.join(fitting)}"
        ) from None


def _listed(checkpoints: Checkpoints) -> str:
    return " ".join(map(str, checkpoints.steps()))


def _finished(config: Config, run_dir: Path) -> bool:
    """Whether a run that has ended was evaluated and drawn."""
    evaluated = not config.evaluation_episodes or (run_dir / evaluate.FILE).exists()
    return evaluated and (run_dir / plotting.FILE).exists()


def _open_mesh(config: Config) -> jax.sharding.Mesh:
    """The devices to train on. Raises `UserError` where the configuration does not fit them."""
    check(config)
    if config.engine == "xla" and not has_custom_call():
        raise UserError(
            "engine = 'xla': EnvPool has no custom call for this platform; take auto or callback"
        )
    if config.num_devices > processes.count():
        simulate_cpu_devices(config.num_devices // processes.count())
    mesh = make_mesh(config.num_devices)
    envs_per_device(config, mesh)
    check_memory(config, mesh)
    with processes.quiet():  # the first time that they speak to each other
        processes.check_same(runs.settings(config))
    return mesh


def _train(
    config: Config, run_dir: Path, mesh: jax.sharding.Mesh, checkpoint: int | None
) -> Outcome:
    num_envs = envs_per_device(config, mesh)
    engines = make_engines(config, num_envs, num_local_devices(mesh))
    spec = engines[0].spec._replace(num_envs=envs_per_learner(config, mesh))
    agent = make_agent(config, spec)
    program = make_program(config, agent, engines, mesh)
    checkpoints = Checkpoints(
        run_dir, config.keep_checkpoints, engines[0].restorable, config.checkpoint_memory
    )
    if processes.index() == 0:
        runs.write_provenance(run_dir, list(mesh.devices.flat))
    with Display(silent=processes.index() > 0) as display:
        session = _Session(config, run_dir, engines, program, checkpoints, display)
        display.say(_headline(session, mesh))
        again = f"jaxrl resume {run_dir}" + " in every process" * (processes.count() > 1)
        processes.advise(f"go on with: {again}")
        with _Stop().watching() as stop:
            state, progress = _run(session, stop, checkpoint)
        if stop.signal is not None:
            display.say(f"stopped at step {progress.step:,} and saved; go on with: {again}")
            return Outcome(progress.step, stop.signal)
        if processes.index() == 0:
            _finish(session, state, progress.step)
    return Outcome(progress.step, None)


def _seen(run_dir: Path) -> Path:
    """Refuses a directory that process 0 has made and this one does not see."""
    deadline = time.monotonic() + SECONDS_TO_SEE
    while not (run_dir / "config.toml").is_file():
        if time.monotonic() > deadline:
            raise UserError(
                f"process {processes.index()} does not see '{run_dir}': put it on a file system "
                "that all machines share, with --run-dir"
            )
        time.sleep(0.5)
    return run_dir


def _run(session: _Session, stop: _Stop, checkpoint: int | None) -> tuple[LoopState, Progress]:
    """From the first game, or a checkpoint, to the last update or a signal."""
    display, program = session.display, session.program
    try:
        with display.busy("starting the games"):
            state = program.init()
        progress = Progress(0, 0, 0.0, 0)
        if checkpoint is not None:
            state, progress, saved_on = session.checkpoints.restore(state, checkpoint)
            display.say(f"resumed at step {progress.step:,}")
            if progress.updates >= session.num_updates:
                display.say("training had ended already")
                return state, progress
            state = _restart(session, state, progress, saved_on)
        with display.busy("compiling") as compiling:
            run = program.run.lower(state, np.int32(1)).compile()
        return _loop(session, stop, run, state, progress, compiling.seconds)
    finally:
        # Of several processes one that fails must not wait for the others, who wait for it.
        if processes.count() == 1 or sys.exception() is None:
            session.checkpoints.close()
        for engine in session.engines:
            engine.close()


def _devices(count: int, kind: str = "") -> str:
    return " ".join(filter(None, [str(count), kind, "device" + "s" * (count > 1)]))


def _headline(session: _Session, mesh: jax.sharding.Mesh) -> str:
    config, total = session.config, session.total_steps
    devices = _devices(mesh.size, mesh.devices.flat[0].device_kind)
    if processes.count() > 1:
        devices += f" of {processes.count()} processes"
    rounded = f" ({total - config.total_steps:,} more, to end with a whole update)"
    lines = [
        f"{config.algorithm} on {config.game}: {config.num_envs} environments, {devices}, "
        f"{total:,} steps{rounded * (total > config.total_steps)}, into {session.run_dir}"
    ]
    if config.num_learners:
        often = "update" if config.sync_every == 1 else f"{config.sync_every} updates"
        lines.append(f"{config.num_learners} learners, which merge after every {often}")
    rate, start = config.optimizer.learning_rate, config.initial_learning_rate()
    if start != rate:
        lines.append(
            f"learning rate {start:.3g}: {rate:g} for {config.optimizer.recipe_envs} environments, "
            f"scaled ({config.optimizer.lr_scaling})"
        )
    if learning_starts(config) >= total:
        lines.append(
            f"nothing will be learned: agent.learning_starts = {learning_starts(config):,} is "
            "above total_steps"
        )
    return "\n".join(lines)


def _restart(session: _Session, state: LoopState, progress: Progress, saved_on: int) -> LoopState:
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
    if not moved and not session.config.checkpoint_memory and remembers:
        session.display.say("checkpoints hold no replay: it fills anew before learning goes on")
    return state


def _loop(
    session: _Session,
    stop: _Stop,
    run: Any,
    state: LoopState,
    progress: Progress,
    compile_seconds: float,
) -> tuple[LoopState, Progress]:
    """Compiled calls until the last update or a signal; saves before it returns."""
    config, program, display = session.config, session.program, session.display
    log = metrics.MetricsLog(session.run_dir, progress.step) if processes.index() == 0 else None
    updates, seconds = progress.updates, progress.seconds
    update_seconds = SECONDS_PER_CALL  # until it is measured: one update in the first call
    interval_start = (progress.step, seconds)
    next_save = (progress.step // config.checkpoint_interval + 1) * config.checkpoint_interval
    extra = {"compile_seconds": round(compile_seconds, 3)}
    # Of devices that it was moved from; theirs are not among this state's.
    elsewhere = progress.episodes - _games(state).episodes
    began = time.perf_counter() - seconds
    while updates < session.num_updates and not stop.agreed():
        boundary = (updates // session.log_updates + 1) * session.log_updates
        boundary = min(boundary, session.num_updates)
        whole = program.updates_between_merges
        count = max(1, int(SECONDS_PER_CALL / update_seconds / whole)) * whole
        count = min(count, boundary - updates)
        count = int(processes.agree(count)[0, 0])
        call_began = time.perf_counter()
        state = jax.block_until_ready(run(state, np.int32(count)))
        for engine in session.engines:
            engine.check()
        now = time.perf_counter()
        update_seconds = (now - call_began) / count
        updates += count
        seconds = now - began
        step = updates * program.steps_per_update
        rate = (step - interval_start[0]) / (seconds - interval_start[1])
        games = _games(state, elsewhere)
        since = (updates - 1) % session.log_updates + 1
        means = metrics.means(jax.device_get(state.metrics), since)
        if updates == boundary:
            if log is not None:
                log.write(_line(step, updates, seconds, rate, games) | extra | means)
            state = state._replace(metrics=jax.tree.map(jnp.zeros_like, state.metrics))
            extra, interval_start = {}, (step, seconds)
        note = "filling the memory" if None in means.values() else ""
        moment = Moment(step, session.total_steps, rate, games, note)
        display.update(moment, updates == boundary)
        progress = Progress(step, updates, seconds, games.episodes)
        if updates == boundary and step >= next_save:
            saving = time.perf_counter()
            session.checkpoints.save(state, progress, games.return_mean)
            began += time.perf_counter() - saving  # no training happened meanwhile
            next_save += config.checkpoint_interval
    stop.agreed()  # a signal that came with the last update
    session.checkpoints.save(state, progress, _games(state).return_mean)
    if log is not None:
        log.close()
    return state, progress


def _games(state: LoopState, elsewhere: int = 0) -> episodes.Summary:
    games = episodes.summarise(*fetch([group.episodes for group in state.games]))
    return games._replace(episodes=games.episodes + elsewhere)


def _line(
    step: int, updates: int, seconds: float, rate: float, games: episodes.Summary
) -> dict[str, Any]:
    return {
        "step": step,
        "frames": step * FRAME_SKIP,
        "seconds": round(seconds, 3),
        "steps_per_second": round(rate, 1),
        "updates": updates,
        **games._asdict(),
    }


def _finish(session: _Session, state: LoopState, step: int) -> None:
    """The picture and the evaluation of a run that has ended."""
    config, run_dir, display = session.config, session.run_dir, session.display
    plotting.learning_curve([run_dir], run_dir / plotting.FILE)
    if config.evaluation_episodes:
        with display.busy(f"evaluating {config.evaluation_episodes} games"):
            actor = jax.device_put(jax.device_get(state.agent.actor), jax.local_devices()[0])
            result = evaluate.evaluate(config, actor, "noop", config.evaluation_episodes, step=step)
        evaluate.write(run_dir, result)
        display.say(evaluate.describe(result))
    display.say(f"learning curve: {run_dir / plotting.FILE}; watch it play: jaxrl play {run_dir}")
