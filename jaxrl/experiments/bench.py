"""Agent steps per second under three loads, beside a plain Python loop over EnvPool.

    loop        EnvPool stepped from Python with random actions: what the emulators can do
    emulation   the same through the compiled program, frames stacked on the device
    inference   the policy chooses the actions
    training    all of it

The loads take turns, because the speed of a machine changes: all of them meet the same changes.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.atari.games import atari_games
from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config
from jaxrl.config.validation import check
from jaxrl.envs import make_engines
from jaxrl.envs.envpool.engine import make_pool
from jaxrl.errors import UserError
from jaxrl.experiments.scaling import NOTHING, Traffic, traffic
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh, num_local_devices, simulate_cpu_devices
from jaxrl.training.display import Display
from jaxrl.training.planning import plan_training
from jaxrl.types import Agent, AgentState, Metrics, Trajectory

LOADS = ("loop", "emulation", "inference", "training")
SHARED = LOADS[1:]  # between which a step of training is divided


class Load(NamedTuple):
    """A program to time."""

    run: Callable[[int], None]  # runs this number of vector steps to the end
    num_envs: int
    chunk: int  # vector steps that are run at least, and in multiples of which
    close: Callable[[], None]
    compile_seconds: float
    traffic: Traffic = NOTHING  # between devices in an update
    warm_up: int = 0  # vector steps before those that are timed; a chunk at least


@dataclasses.dataclass(frozen=True)
class Rate:
    """The measured speed of a load."""

    steps_per_second: float  # agent steps over all devices, median of the repeats
    lowest: float
    highest: float
    share: float  # of the first load's rate, median of the repeats' shares
    compile_seconds: float
    bytes_per_update: float = 0.0  # that each device hands to all-reduces
    all_reduces_per_update: float = 0.0
    gathered_bytes_per_update: float = 0.0  # that each device hands to all-gathers
    all_gathers_per_update: float = 0.0


def _player(agent: Agent) -> Agent:
    """Returns an agent that plays and learns nothing; it has no memory, as three may not fit."""

    def init(key: jax.Array) -> AgentState:
        return agent.init(key)._replace(memory=())

    def update(
        state: AgentState, trajectory: Trajectory, _: jax.Array
    ) -> tuple[AgentState, Metrics]:
        # XLA would drop the steps if nothing read the rewards.
        return state, {"reward": jnp.sum(trajectory.reward)}

    return agent._replace(init=init, update=update, interrupt=lambda memory: memory)


def _random(agent: Agent, num_actions: int) -> Agent:
    """Returns an agent that acts at random; the bits of a fresh key are the random number."""

    def act(_: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, Any]:
        return (jax.random.key_data(key)[:, 0] % num_actions).astype(jnp.int32), ()

    return agent._replace(act=act, core=None)


def _compiled(plan: Plan, kind: str) -> Load:
    mesh = make_mesh(plan.num_devices)
    engines = make_engines(plan, num_local_devices(mesh))
    spec = engines[0].spec._replace(num_envs=plan.envs_per_learner)
    agent = make_agent(plan, spec)
    if kind != "training":
        agent = _player(agent)
    if kind == "emulation":
        agent = _random(agent, spec.num_actions)
    program = make_program(plan, agent, engines, mesh)
    length = agent.rollout_length
    least = length * program.updates_between_merges

    def close() -> None:
        for engine in engines:
            engine.close()

    try:
        state = program.init()
        began = time.perf_counter()
        compiled = program.run.lower(state, np.int32(1)).compile()
        compile_seconds = time.perf_counter() - began
    except BaseException:
        close()
        raise

    def run(vector_steps: int) -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(state, np.int32(vector_steps // length)))
        for engine in engines:
            engine.check()

    merges = program.updates_between_merges
    moved = traffic(compiled.as_text(), plan.gradient_steps) if mesh.size > 1 else NOTHING
    per_update = Traffic(*(number / merges for number in moved))
    chunk = least * -(-10 // least)
    # A replay of sequences has none to learn from before this step.
    num_envs = plan.config.num_envs
    first = plan.config.agent.first_learning_step(num_envs) // num_envs
    warm_up = chunk * max(1, -(-first // chunk)) if kind == "training" else chunk
    return Load(run, num_envs, chunk, close, compile_seconds, per_update, warm_up)


def _loop(plan: Plan) -> Load:
    config, devices = plan.config, num_local_devices(make_mesh(plan.num_devices))
    threads = config.env.num_threads * config.parallel.groups * devices
    options = {"num_threads": threads} if threads else {}
    pool = make_pool(config.game, config.env, config.num_envs, config.seed, **options)
    pool.reset()
    num_actions = pool.action_space.n
    random = np.random.default_rng(config.seed)

    def run(vector_steps: int) -> None:
        for _ in range(vector_steps):
            pool.step(random.integers(0, num_actions, config.num_envs).astype(np.int32))

    return Load(run, config.num_envs, 10, pool.close, 0.0)


def prepare(config: Config) -> Plan:
    """Returns the plan of a configuration without waits before training. Raises `UserError`."""
    if config.parallel.num_devices > 1:
        simulate_cpu_devices(config.parallel.num_devices)
    # Nothing here depends on where the games start.
    config = config.replaced(env={"random_start_steps": 0})
    # Training is timed, not the filling of a replay before it, nor its size.
    config = config.replaced(agent=config.agent.for_timing(config.num_envs))
    plan, _ = plan_training(config)
    return plan


def make_load(plan: Plan, kind: str) -> Load:
    """Makes one of LOADS, ready to run; close it before the process ends."""
    return _loop(plan) if kind == "loop" else _compiled(plan, kind)


def take_turns(
    loads: dict[str, Load],
    seconds: float,
    repeats: int,
    show: Callable[[str], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Returns the agent steps per second of every load, in each repeat.

    Every load warms up once; each of its repeats takes about `seconds`. `show` is called with the
    name of each load that is timed.
    """
    counts: dict[str, int] = {}
    for name, load in loads.items():
        show(f"warming up {name} ...")
        load.run(max(load.chunk, load.warm_up))
        began = time.perf_counter()
        load.run(load.chunk)
        chunks = seconds / (time.perf_counter() - began)
        counts[name] = max(1, round(chunks)) * load.chunk
    rates: dict[str, list[float]] = {name: [] for name in loads}
    for repeat in range(repeats):
        for name, load in loads.items():
            show(f"timing {name}, turn {repeat + 1} of {repeats} ...")
            began = time.perf_counter()
            load.run(counts[name])
            rates[name].append(counts[name] * load.num_envs / (time.perf_counter() - began))
    return rates


def measure(
    config: Config,
    seconds: float,
    repeats: int,
    display: Display,
    profile: Path | None = None,
    only: Sequence[str] = LOADS,
) -> dict[str, Rate]:
    """Times the loads of `only` as `take_turns` does; Catch has no `loop`.

    JAX's profiler writes a trace of one more repeat of `training` into the directory `profile`.
    Raises `UserError` where a device runs out of memory.
    """
    plan = prepare(config)
    kinds = [kind for kind in LOADS if kind in only]
    if config.game not in atari_games():
        kinds = [kind for kind in kinds if kind != "loop"]
    loads: dict[str, Load] = {}
    try:
        for kind in kinds:
            with display.busy(f"{kind}: starting and compiling"):
                loads[kind] = make_load(plan, kind)
        rates = take_turns(loads, seconds, repeats, display.show)
        display.show("")
        if profile is not None:
            training = loads["training"]
            with jax.profiler.trace(str(profile)):
                training.run(training.chunk)
    except jax.errors.JaxRuntimeError as error:
        refuse_out_of_memory(error, f"num_envs = {config.num_envs}: ")
    finally:
        for load in loads.values():
            load.close()
    first = rates[kinds[0]]
    return {
        kind: Rate(
            statistics.median(values),
            min(values),
            max(values),
            statistics.median(a / b for a, b in zip(values, first, strict=True)),
            loads[kind].compile_seconds,
            *loads[kind].traffic,
        )
        for kind, values in rates.items()
    }


def sweep(
    config: Config,
    num_envs: Sequence[int],
    seconds: float,
    repeats: int,
    display: Display,
    only: Sequence[str] = LOADS,
) -> Iterator[tuple[int, dict[str, Rate]]]:
    """Yields the rates for several numbers of environments, one after another.

    Raises `UserError` before the first where any cannot train, and where memory runs out.
    """
    configs = {number: dataclasses.replace(config, num_envs=number) for number in num_envs}
    for sized in configs.values():
        check(sized)
        prepare(sized)
    for number, sized in configs.items():
        yield number, measure(sized, seconds, repeats, display, None, only)


def refuse_out_of_memory(error: jax.errors.JaxRuntimeError, what: str = "") -> NoReturn:
    """Raises `UserError` where a device ran out of memory, and any other error unchanged."""
    if "RESOURCE_EXHAUSTED" not in str(error):
        raise error
    raise UserError(f"{what}does not fit into memory") from error


def time_shares(rates: dict[str, Rate]) -> dict[str, float]:
    """Returns the shares of a training step: emulators, choosing actions, learning; sum 1.

    Each share is the time that its load takes beyond the load before it; work that hides behind
    the emulators (overlapped order, two groups) has no share.
    """
    seconds = [1 / rates[kind].steps_per_second for kind in SHARED]
    emulators, inference, training = seconds
    parts = {
        "emulators": emulators,
        "choosing actions": max(0.0, inference - emulators),
        "learning": max(0.0, training - max(inference, emulators)),
    }
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def bottleneck(rates: dict[str, Rate]) -> str:
    """Returns the part of a training step that takes the most time."""
    shares = time_shares(rates)
    return max(shares, key=lambda name: shares[name])
