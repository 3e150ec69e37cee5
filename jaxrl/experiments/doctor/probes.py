"""The probes of `jaxrl doctor` that train: the overlapped order, and A2C on Catch."""

import contextlib
import re
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from jaxrl.agents import make_agent
from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.atari.games import CATCH
from jaxrl.config.plan import Plan, resolve
from jaxrl.envs import make_engine
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.envs.envpool.engine import has_custom_call
from jaxrl.experiments.doctor.emulators import NUM_ENVS, a2c_config
from jaxrl.experiments.doctor.protocol import Answer
from jaxrl.program import episode_statistics
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import fetch, make_mesh, num_local_devices
from jaxrl.types import Agent, EnvEngine

SOLVED = 0.9 * MAX_SCORE  # mean of the last 100 games
LEARNING_SECONDS = 120.0  # for all seeds together
SEEDS = (1, 2, 3)
# Agent steps of each seed. Where it learns at all, 9,600 to 12,800 were enough.
ATTEMPT_STEPS = 20_000

# --- the overlapped order ------------------------------------------------------------------------

SCOPE = "jaxrl_update"


def _overlapped(game: str) -> tuple[EnvEngine, Agent, Plan]:
    """An agent whose updates are marked in the compiled text."""
    config = a2c_config(
        game=game,
        num_envs=NUM_ENVS,
        parallel={"num_devices": 1, "order": "overlapped"},
        env={"random_start_steps": 0},
        agent=A2CConfig(rollout_length=1),
    )
    engine, plan = make_engine(config, NUM_ENVS), resolve(config, 1)
    agent = make_agent(plan, engine.spec)
    return engine, agent._replace(update=jax.named_scope(SCOPE)(agent.update)), plan


def read_schedule(text: str) -> bool | None:
    """Returns whether a compiled program starts the environments' step before the gradients.

    Its text lists instructions in the order of execution. None where it has no such list, or
    does not show the calls.
    """
    if "is_scheduled=true" not in text:
        return None
    for body in re.split(r"\n(?=\S)", text):
        lines = body.splitlines()

        def places(pattern: str, lines: list[str] = lines) -> list[int]:
            return [i for i, line in enumerate(lines) if re.search(pattern, line)]

        receives = places(r'custom_call_target="\w+_recv"')
        sends = places(r'custom_call_target="\w+_send"')
        # Not what needs no trajectory: zeros, or the parameters in another layout.
        product = r"(dot_general|conv_general_dilated)"
        gradients = places(rf'op_name="[^"]*{SCOPE}[^"]*transpose\([^"]*/{product}')
        if receives and sends and gradients:
            return max(receives) < min(sends) and max(sends) < min(gradients)
    return None


def _schedule_of_pong() -> bool | None:
    engine, agent, plan = _overlapped("pong")
    try:
        program = make_program(plan, agent, (engine,), make_mesh(1))
        lowered = program.run.lower(program.init(), np.int32(1))
        return read_schedule(lowered.compile().as_text() or "")
    finally:
        engine.close()


def _note(events: list[str], event: str, value: jax.Array) -> jax.Array:
    """Returns the value, after the event is noted; by data alone, as all that orders."""

    def call(x: Any) -> Any:
        events.append(event)
        return x

    return io_callback(call, jax.ShapeDtypeStruct(value.shape, value.dtype), value)


def observe_order(turns: int = 3) -> list[str]:
    """Returns what a program on Catch does, in the order of execution."""
    engine, agent, plan = _overlapped(CATCH)
    events: list[str] = []

    def send(env: Any, action: jax.Array) -> Any:
        return engine.send(env._replace(paddle=_note(events, "send", env.paddle)), action)

    def recv(env: Any) -> Any:
        return engine.recv(env._replace(paddle=_note(events, "receive", env.paddle)))

    def update(state: Any, trajectory: Any, key: jax.Array) -> Any:
        observation = _note(events, "update", trajectory.observation)
        return agent.update(state, trajectory._replace(observation=observation), key)

    noted = engine._replace(send=send, recv=recv)
    program = make_program(plan, agent._replace(update=update), (noted,), make_mesh(1))
    jax.block_until_ready(program.run(program.init(), np.int32(turns)))
    return events


def overlapped_order() -> Answer:
    """Reads XLA's schedule where it can be read, and else observes a run."""
    overlaps, how = None, "read in XLA's schedule"
    with contextlib.suppress(ImportError):
        overlaps = _schedule_of_pong() if has_custom_call() else None
    if overlaps is None:
        how = "observed through host callbacks, for XLA's schedule cannot be read"
        overlaps = observe_order() == ["send", *["receive", "send", "update"] * 3]
    if overlaps:
        return {"mark": "ok", "text": f"the emulators step while the update runs: {how}"}
    return {"mark": "cross", "text": f"the emulators wait for the update: {how}"}


# --- learning ------------------------------------------------------------------------------------


def learning() -> Answer:
    """Trains A2C on Catch, on every device that training would take, until it is solved.

    A seed may be unlucky, and rounding differs between machines: the next one is tried then.
    """
    mesh = make_mesh(0)
    num_envs = -(-16 // mesh.size) * mesh.size
    run: Any = None
    began, text = 0.0, ""
    for seed in SEEDS:
        config = a2c_config(game=CATCH, num_envs=num_envs, total_steps=30_000, seed=seed)
        plan = resolve(config, mesh.size)
        engine = make_engine(config, plan.envs_per_device, num_local_devices(mesh))
        program = make_program(plan, make_agent(plan, engine.spec), (engine,), mesh)
        state = program.init()
        if run is None:  # the program does not depend on the seed
            run = program.run.lower(state, np.int32(1)).compile()
            began = time.perf_counter()
        interval = max(1, 800 // program.steps_per_update)
        for steps in range(0, ATTEMPT_STEPS, interval * program.steps_per_update):
            state = run(state, np.int32(interval))
            games = episode_statistics.summarize(*(group.episodes for group in fetch(state.games)))
            score = -MAX_SCORE if games.return_mean is None else games.return_mean
            seconds = time.perf_counter() - began
            text = (
                f"A2C on Catch, {mesh.size} x {mesh.devices.flat[0].device_kind}, {_tried(seed)}: "
                f"return {score:.2f} of {MAX_SCORE:g} after "
                f"{steps + interval * program.steps_per_update:,} steps, {seconds:.0f} s in all"
            )
            if score >= SOLVED:
                return {"mark": "ok", "text": f"{text}, solved"}
            if seconds > LEARNING_SECONDS:
                remedy = "stop other programs, and run it once more"
                return {"mark": "warning", "text": f"{text}, too slow to tell", "remedy": remedy}
    return {"mark": "cross", "text": f"{text}, not solved"}


def _tried(seed: int) -> str:
    """Returns the seed with those that were tried before it."""
    before = " and ".join(map(str, SEEDS[: SEEDS.index(seed)]))
    return f"seed {seed}" + f" (not solved with {before})" * bool(before)
