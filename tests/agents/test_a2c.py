import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.a2c import agent as a2c
from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.networks.heads import PolicyValue
from jaxrl.program import episode_statistics
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import AXIS, EnvSpec, Trajectory
from tests.agents import invalid_rows
from tests.conftest import catch_config

SPEC = EnvSpec(4, 3, ("LEFT", "NOOP", "RIGHT"), "catch")


def rows(weight):
    return a2c.Batch(
        observation=jnp.zeros((2, 84, 84, 4), jnp.uint8),
        action=jnp.array([0, 1]),
        target=jnp.array([3.0, 9.0]),
        advantage=jnp.array([2.0, 7.0]),
        weight=jnp.array(weight),
    )


def test_hand_worked_loss_with_an_invalid_row():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    prediction = PolicyValue(logits, jnp.array([1.0, 2.0]))
    config = A2CConfig(value_coef=0.5, entropy_coef=0.1, loss_scale=2.0)
    total, parts = a2c.loss(prediction, rows([1.0, 0.0]), config)
    # policy: -ln 0.5 * 2 = 2 ln 2;  value: (3 - 1)^2 = 4;  entropy: 1.5 ln 2
    ln2 = np.log(2)
    assert float(parts["loss/policy"]) == pytest.approx(2 * ln2, rel=1e-5)
    assert float(parts["loss/value"]) == pytest.approx(4.0)
    assert float(parts["policy/entropy"]) == pytest.approx(1.5 * ln2, rel=1e-5)
    assert float(total) == pytest.approx(2 * (2 * ln2 + 0.5 * 4 - 0.1 * 1.5 * ln2), rel=1e-5)


def test_gradient_of_the_policy_is_the_score_function():
    def policy_loss(logits):
        prediction = PolicyValue(logits, jnp.zeros(2))
        return a2c.loss(prediction, rows([0.5, 0.5]), A2CConfig(entropy_coef=0, value_coef=0))[0]

    logits = jnp.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    policy = np.asarray(jax.nn.softmax(logits))
    # d(-log pi(a) A)/d logits = A (pi - onehot(a)), with weight 1/2
    expected = 0.5 * np.array([[2.0], [7.0]]) * (policy - np.eye(3)[[0, 1]])
    np.testing.assert_allclose(jax.grad(policy_loss)(logits), expected, atol=1e-5)


def trajectory(seed=0, envs=4, steps=5):
    random = np.random.default_rng(seed)
    return Trajectory(
        observation=jnp.asarray(random.integers(0, 256, (steps + 1, envs, 84, 84, 4)), jnp.uint8),
        action=jnp.asarray(random.integers(0, 3, (steps, envs)), jnp.int32),
        reward=jnp.asarray(random.normal(size=(steps, envs)), jnp.float32),
        discount=jnp.asarray(random.random((steps, envs)) > 0.2, jnp.float32),
        valid=jnp.asarray(random.random((steps, envs)) > 0.2),
        extras=a2c.Extras(jnp.asarray(random.normal(size=(steps, envs)), jnp.float32)),
    )


def update(data, **settings):
    config = catch_config(num_envs=4)
    config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, **settings))
    agent = make_agent(resolve(config), SPEC)
    state = jax.tree.map(lambda x: x[None], agent.init(jax.random.key(0)))
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    return mapped(state, jax.tree.map(lambda x: x[None], data), jax.random.key(1))


@pytest.mark.slow
def test_micro_batches_add_up_to_one_gradient():
    whole, metrics = update(trajectory(), micro_batch=20)
    parts, parted = update(trajectory(), micro_batch=4)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(value, parted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_invalid_rows_change_nothing():
    data = trajectory()
    # The frames of an invalid row enter the statistics, but neither a value nor an entropy counts.
    other = invalid_rows.changed(data)
    learned = [(x.actor.params, x.train_state) for x in (update(data)[0], update(other)[0])]
    for a, b in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.optimized
def test_a2c_solves_catch():
    config = catch_config(total_steps=28_000)
    engine = make_engine(config, config.num_envs)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.run(program.init(), np.int32(20))
    start = episode_statistics.summarize(state.games[0].episodes).return_mean
    end = start
    while end < 0.9 * MAX_SCORE and state.agent.actor.updates < resolve(config).num_updates:
        state = program.run(state, np.int32(20))
        end = episode_statistics.summarize(state.games[0].episodes).return_mean
    assert start < 0
    assert end >= 0.9 * MAX_SCORE
