import dataclasses

import jax
import numpy as np
import pytest

from jaxrl import distribute
from jaxrl.agents import make_agent
from jaxrl.config import UserError
from jaxrl.envs import make_engine
from jaxrl.program import envs_per_device, make_program
from tests.conftest import catch_config


def train(num_devices, order, turns=20):
    # Adam's first steps have the size of the learning rate whatever the gradient, so rounding
    # would grow; plain RMSProp that starts at 1 keeps it small.
    config = catch_config(num_envs=8, num_devices=num_devices, order=order)
    optimizer = dataclasses.replace(config.optimizer, initial_scale=1.0)
    config = dataclasses.replace(config, optimizer=optimizer)
    mesh = distribute.make_mesh(num_devices)
    engine = make_engine(config, envs_per_device(config, mesh), num_devices)
    agent = make_agent(config, engine.spec)
    program = make_program(config, agent, engine, mesh)
    return jax.device_get(program.run(program.init(), np.int32(turns)))


@pytest.mark.parametrize("order", ["strict", "overlapped"])
def test_two_devices_on_half_the_batch_equal_one_on_the_whole(order):
    one, two = train(1, order), train(2, order)
    np.testing.assert_array_equal(one.rollout.observation, two.rollout.observation)
    before = jax.tree.leaves(one.agent.actor)
    after = jax.tree.leaves(two.agent.actor)
    # float32: sums are taken in another order; relative 1e-4 after 20 updates.
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for name, value in one.metrics.items():
        np.testing.assert_allclose(value, two.metrics[name], rtol=1e-3, atol=1e-5)


def test_more_devices_than_there_are_is_a_users_mistake():
    with pytest.raises(UserError, match="2 cpu devices"):
        distribute.make_mesh(5)
