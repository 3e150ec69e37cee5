"""Every file in configs/ builds and trains a few updates, on the real Pong."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.r2d2.settings import R2D2Config
from jaxrl.agents.vtrace.settings import VTraceConfig
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.config.validation import check
from jaxrl.config.value_based import ReplayConfig, ValueConfig
from jaxrl.envs import make_engine
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import CONFIGS


def few_environments(config: Config) -> Config:
    """Four, with batches shrunk as much, short rollouts, and a memory that is ready at once.

    Ten where a part of them explores otherwise than another.
    """
    spread = isinstance(config.agent, ValueConfig) and config.agent.epsilon_spread
    few = config.replaced(
        num_envs=10 if spread else 4, parallel={"num_devices": 1}, env={"random_start_steps": 5}
    )
    few = few.replaced(parallel={"num_learners": min(config.parallel.num_learners, 2)})
    if isinstance(config.agent, VTraceConfig):
        agent = dataclasses.replace(config.agent, num_minibatches=4)
        if config.agent.rollout_length == 1:
            agent = dataclasses.replace(agent, window=4)
        return dataclasses.replace(few, agent=agent)
    if not isinstance(config.agent, ReplayConfig):
        agent = config.agent
        # At least 16 steps, and as many minibatches as the recipe has.
        length = min(agent.rollout_length, max(16, getattr(agent, "num_minibatches", 1)))
        return dataclasses.replace(few, agent=dataclasses.replace(agent, rollout_length=length))
    if isinstance(config.agent, R2D2Config):
        short = {"rollout_length": 2, "sequence_length": 4, "burn_in": 2, "sequence_stride": 2}
        sizes = {"batch_size": 2, "training_intensity": 1.0, "replay_capacity": 4 * 32}
        agent = dataclasses.replace(config.agent, **short, **sizes, learning_starts=0)
        return dataclasses.replace(few, agent=agent)
    agent = dataclasses.replace(
        config.agent,
        batch_size=config.agent.batch_size * 4 // config.num_envs,
        replay_capacity=4 * 32,
        learning_starts=0,
    )
    return dataclasses.replace(few, agent=agent)


FILES = [pytest.param(path, id=path.stem) for path in sorted(CONFIGS.glob("*/*.toml"))]


@pytest.mark.slow
@pytest.mark.rotating(10)
@pytest.mark.parametrize("path", FILES)
def test_trains_a_few_updates(path):
    config = few_environments(load(path))
    check(config)
    # A replay needs some steps before a stack and a window fit.
    updates = 8 if isinstance(config.agent, ReplayConfig) or config.agent.rollout_length == 1 else 3
    engine = make_engine(config, config.num_envs)
    spec = engine.spec._replace(num_envs=config.num_envs // max(config.parallel.num_learners, 1))
    agent = make_agent(resolve(config), spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.init()
    before = jax.device_get(state.agent.actor.params)
    after = jax.block_until_ready(program.run(state, np.int32(updates)))
    engine.close()
    changed = jax.tree.map(
        lambda a, b: (np.asarray(a) != b).any(), before, after.agent.actor.params
    )
    assert all(jax.tree.leaves(changed))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(after.agent.actor)))
    assert all(np.isfinite(float(value)) for value in jax.tree.leaves(after.metrics))
    assert int(after.agent.actor.updates) == updates
