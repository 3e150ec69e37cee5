"""Counts the arithmetic of a configuration by XLA's cost analysis; nothing is compiled or run.

The analysis reads the programs of an action and of one gradient step, made for shapes alone. Two
things are changed for it. Layers are XLA's: our kernels in C++ are calls, which count as
nothing. Loops are written out: of a loop the analysis counts one round.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.agents import make_agent
from jaxrl.atari.games import atari_games, full_actions, minimal_actions
from jaxrl.config.plan import Plan, resolve
from jaxrl.config.schema import Config
from jaxrl.experiments.doctor.gradients import xla_layers
from jaxrl.experiments.price.table import Price
from jaxrl.networks.core import first_observation
from jaxrl.runtime.mesh import REPLICATED, make_mesh, map_over_devices
from jaxrl.types import Agent, Choice, EnvSpec, Trajectory


def count(config: Config) -> Price:
    """Returns the floating-point operations of a configuration, on one device.

    A gradient step is everything that an update computes for it: the passes of the network and of
    its target, the draws, the optimizer.
    """
    plan = _plan(config)
    single = _plan(_one_gradient(config))
    with xla_layers(), _written_out():
        act, update = _flops(single)
    learn = update * single.num_learners / _transitions(single)
    learned = plan.gradient_steps * _transitions(plan) / plan.steps_per_update
    return Price(act, learn, act + learned * learn)


def _plan(config: Config) -> Plan:
    return resolve(config.replaced(parallel={"num_devices": 1}))


def _one_gradient(config: Config) -> Config:
    """Returns the configuration with one gradient step to an update, in one pass."""
    config = dataclasses.replace(config, agent=config.agent.with_one_gradient())
    return config.replaced(agent={"micro_batch": _plan(config).batch_per_learner})


def _transitions(plan: Plan) -> int:
    """Returns the transitions that a gradient step of every learner learns from."""
    each = plan.config.agent.transitions_per_row(plan.config.network.remembers)
    return plan.batch_per_learner * plan.num_learners * each


@contextlib.contextmanager
def _written_out() -> Iterator[None]:
    """Makes loops of known length a round after another in programs."""
    module: Any = jax.lax
    before = module.scan
    module.scan = partial(before, unroll=True)
    try:
        yield
    finally:
        module.scan = before


def _spec(plan: Plan) -> EnvSpec:
    """Returns the games of a learner; no emulator is opened."""
    config = plan.config
    actions: tuple[str, ...] = ("NOOP", "LEFT", "RIGHT")  # of Catch
    if config.game in atari_games():
        choose = full_actions if config.env.full_action_space else minimal_actions
        actions = choose(config.game)
    env, number = config.env, plan.envs_per_learner
    return EnvSpec(
        number, len(actions), actions, config.game, env.frame_shape, env.stack, env.planes
    )


def _flops(plan: Plan) -> tuple[float, float]:
    """Returns the operations of an action of one environment, and of an update."""
    spec, mesh = _spec(plan), make_mesh(1)
    agent = make_agent(plan, spec)
    state, key = jax.eval_shape(lambda: (agent.init(jax.random.key(0)), jax.random.key(0)))
    observation, keys = jax.eval_shape(partial(_first, agent, spec))

    def act(*arguments: Any) -> Choice:
        return Choice(*agent.act(*arguments))

    act = map_over_devices(act, mesh, REPLICATED, REPLICATED)
    update = map_over_devices(agent.update, mesh, REPLICATED, REPLICATED)
    choice = jax.eval_shape(act, state.actor, observation, keys)
    trajectory = _trajectory(agent, spec, observation, choice)
    return (
        _analyzed(act, state.actor, observation, keys) / spec.num_envs,
        _analyzed(update, state, trajectory, key),
    )


def _first(agent: Agent, spec: EnvSpec) -> tuple[Any, jax.Array]:
    """Returns what an agent sees in every environment at first, and keys to act by."""
    stack = jnp.zeros((spec.num_envs, *spec.frame_shape, spec.stack_size), jnp.uint8)
    seen = stack if agent.core is None else first_observation(stack, agent.core)
    return seen, jax.random.split(jax.random.key(0), spec.num_envs)


def _trajectory(agent: Agent, spec: EnvSpec, observation: Any, choice: Choice) -> Trajectory:
    """Returns the shapes of a rollout, of those of one step."""
    length = agent.rollout_length

    def rows(number: int, tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((number, *x.shape), x.dtype), tree)

    def row(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((length, spec.num_envs), dtype)

    return Trajectory(
        observation=rows(length + 1, observation),
        action=row(jnp.int32),
        reward=row(jnp.float32),
        discount=row(jnp.float32),
        valid=row(jnp.bool_),
        extras=rows(length, choice.extras),
    )


def _analyzed(function: Callable[..., Any], *shapes: Any) -> float:
    """Returns the operations of a function, by XLA."""
    analysis: Any = jax.jit(function).lower(*shapes).cost_analysis()
    return float(analysis["flops"])
