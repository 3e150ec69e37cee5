"""Agent steps per second under three loads, beside a plain Python loop over EnvPool.

    loop        EnvPool stepped from Python with random actions: what the emulators can do
    emulation   the same through the compiled program, frames stacked on the device
    inference   the policy chooses the actions
    training    all of it

The loads take turns, so that a machine's changing speed touches all of them alike.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import program as programs
from jaxrl import rollout
from jaxrl.agents import make_agent
from jaxrl.config import CATCH, C51Config, Config
from jaxrl.distribute import (
    REPLICATED,
    make_mesh,
    map_over_devices,
    num_local_devices,
    simulate_cpu_devices,
)
from jaxrl.envs import make_engine
from jaxrl.envs.envpool import make_pool
from jaxrl.program import SPECS, LoopState
from jaxrl.types import Agent, EnvEngine

LOADS = ("loop", "emulation", "inference", "training")


class Load(NamedTuple):
    """Something to time."""

    run: Callable[[int], None]  # runs so many vector steps, to the end
    close: Callable[[], None]
    compile_seconds: float


@dataclasses.dataclass(frozen=True)
class Rate:
    """What a load reached."""

    steps_per_second: float  # agent steps over all devices, median of the repeats
    lowest: float
    highest: float
    share: float  # of the first load's rate, median of the repeats' own shares
    compile_seconds: float


def _random_agent(agent: Agent, num_actions: int) -> Agent:
    """Acts at random; a fresh key's own bits are the random number."""

    def act(_: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        return (jax.random.key_data(key)[:, 0] % num_actions).astype(jnp.int32), ()

    return agent._replace(act=act)


def _compiled(config: Config, kind: str) -> Load:
    mesh = make_mesh(config.num_devices)
    local = num_local_devices(mesh)
    engine: EnvEngine = make_engine(config, programs.envs_per_device(config, mesh), local)
    agent = make_agent(config, engine.spec)
    program = programs.make_program(config, agent, engine, mesh)
    state = program.init()
    if kind != "training":
        # Playing reads no memory, and three replays need not fit.
        state = state._replace(agent=state.agent._replace(memory=()))
    player = _random_agent(agent, engine.spec.num_actions) if kind == "emulation" else agent
    length = agent.rollout_length

    def play(state: LoopState, turns: jax.Array) -> LoopState:
        """As training, without the update."""

        def turn(_: Any, games: rollout.RolloutState) -> rollout.RolloutState:
            played, trajectory = rollout.play(player, engine, state.agent.actor, games)
            # Rewards are read, so that the steps cannot be left out.
            return jax.lax.optimization_barrier((played, trajectory.reward))[0]

        return state._replace(rollout=jax.lax.fori_loop(0, turns, turn, state.rollout))

    if kind == "training":
        jitted = program.run
    else:
        mapped = map_over_devices(play, mesh, (SPECS, REPLICATED), SPECS)
        jitted = jax.jit(mapped, donate_argnums=0)
    began = time.perf_counter()
    compiled = jitted.lower(state, np.int32(1)).compile()
    compile_seconds = time.perf_counter() - began

    def run(vector_steps: int) -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(state, np.int32(max(1, vector_steps // length))))

    return Load(run, engine.close, compile_seconds)


def _loop(config: Config) -> Load:
    pool = make_pool(config, config.num_envs, config.seed, num_threads=config.num_threads)
    pool.reset()
    num_actions = pool.action_space.n
    random = np.random.default_rng(config.seed)

    def run(vector_steps: int) -> None:
        for _ in range(vector_steps):
            pool.step(random.integers(0, num_actions, config.num_envs).astype(np.int32))

    return Load(run, pool.close, 0.0)


def measure(config: Config, seconds: float, repeats: int) -> dict[str, Rate]:
    """Times every load, in turns.

    Args:
      config: what to play and to train.
      seconds: of one repeat of one load, about.
      repeats: of every load; the first, a warm-up, is not counted.
    """
    if config.num_devices > 1:
        simulate_cpu_devices(config.num_devices)
    # Nothing here depends on where the games start.
    config = dataclasses.replace(config, random_start_steps=0)
    if isinstance(config.agent, C51Config):
        # Training is timed, not the filling of the replay before it.
        agent = dataclasses.replace(config.agent, learning_starts=0)
        config = dataclasses.replace(config, agent=agent)
    programs.check_memory(config, make_mesh(config.num_devices))
    loads = {
        kind: _loop(config) if kind == "loop" else _compiled(config, kind)
        for kind in LOADS
        if kind != "loop" or config.game != CATCH
    }
    rates: dict[str, list[float]] = {kind: [] for kind in loads}
    counts: dict[str, int] = {}
    for kind, load in loads.items():
        began = time.perf_counter()
        load.run(50)
        counts[kind] = max(10, round(50 * seconds / (time.perf_counter() - began)))
    for _ in range(repeats + 1):
        for kind, load in loads.items():
            count = counts[kind]
            if kind != "loop":
                count = max(1, count // config.agent.rollout_length) * config.agent.rollout_length
            began = time.perf_counter()
            load.run(count)
            rates[kind].append(count * config.num_envs / (time.perf_counter() - began))
    for load in loads.values():
        load.close()
    first = rates[next(iter(loads))]
    return {
        kind: Rate(
            statistics.median(values[1:]),
            min(values[1:]),
            max(values[1:]),
            statistics.median(a / b for a, b in zip(values[1:], first[1:], strict=True)),
            loads[kind].compile_seconds,
        )
        for kind, values in rates.items()
    }
