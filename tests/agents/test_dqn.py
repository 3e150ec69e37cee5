import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import make_agent, q_learning
from jaxrl.agents.dqn import agent as dqn
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.program import nonfinite
from jaxrl.program.program import make_program
from jaxrl.replay import prioritized
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import AXIS
from tests.agents.test_c51 import SPEC, trajectory
from tests.conftest import catch_config

METHOD = dqn.method()


def test_hand_worked_loss():
    # G + γᵐ q⁻: 1 + 0.5 · 2 = 2, 1 + 0 = 1
    there = jnp.array([[2.0, -1.0], [2.0, -1.0]])
    bootstrap = q_learning.bootstrap(METHOD, there, there)
    target = dqn.target(jnp.array([1.0, 1.0]), jnp.array([0.5, 0.0]), bootstrap)
    np.testing.assert_allclose(target, [2.0, 1.0])
    rows = q_learning.Batch(
        jnp.zeros(2), jnp.array([0, 1]), target, jnp.array([0.5, 0.5]), jnp.ones(2), None
    )
    prediction = jnp.array([[-1.0, 9.0], [9.0, 0.5]])
    total, (parts, priorities) = q_learning.loss(METHOD, prediction, rows)
    # Differences 3 and 0.5: 3 - ½ and ½ · 0.25
    assert float(total) == pytest.approx(0.5 * 2.5 + 0.5 * 0.125)
    np.testing.assert_allclose(priorities, [3.0, 0.5])
    assert float(parts["value/q"]) == pytest.approx(-0.25)
    # The gradient is the difference, clipped to ±1.
    slope = jax.grad(lambda x: q_learning.loss(METHOD, x, rows)[0])(prediction)
    np.testing.assert_allclose(slope, [[-0.5, 0], [0, -0.25]])


@pytest.mark.parametrize("double", [False, True])
def test_loss_equals_rlax(double):
    random = np.random.default_rng(0)
    draw = lambda: jnp.asarray(random.normal(size=(16, 4)) * 2, jnp.float32)  # noqa: E731
    online, there, selector = draw(), draw(), draw()
    action = jnp.asarray(random.integers(0, 4, 16))
    reward = jnp.asarray(random.normal(size=16), jnp.float32)
    discount = jnp.asarray(random.choice([0.0, 0.99], 16), jnp.float32)
    bootstrap = q_learning.bootstrap(METHOD, there, selector if double else there)
    target = dqn.target(reward, discount, bootstrap)
    rows = q_learning.Batch(jnp.zeros(16), action, target, jnp.full(16, 1 / 16), jnp.ones(16), None)
    total, (_, priorities) = q_learning.loss(METHOD, online, rows)
    if double:
        errors = jax.vmap(rlax.double_q_learning)(online, action, reward, discount, there, selector)
    else:
        errors = jax.vmap(rlax.q_learning)(online, action, reward, discount, there)
    assert float(total) == pytest.approx(float(rlax.huber_loss(errors).mean()), rel=1e-5)
    np.testing.assert_allclose(priorities, np.abs(errors), rtol=1e-4, atol=1e-6)


def updated(recipe, updates=4, devices=1, network=None, **agent):
    """The state after some updates on random steps, and the last metrics."""
    settings = {"learning_starts": 0, "batch_size": 32} | agent
    config = catch_config(recipe, num_envs=4, agent=settings)
    config = dataclasses.replace(config, network=network or config.network)
    made = make_agent(resolve(config), SPEC._replace(num_envs=4 // devices))
    state = jax.tree.map(lambda x: jnp.stack([x] * devices), made.init(jax.random.key(0)))
    mapped = jax.jit(jax.vmap(made.update, in_axes=(0, 0, None), axis_name=AXIS))
    metrics = None
    for i in range(updates):
        data = jax.tree.map(
            lambda x: jnp.moveaxis(x.reshape(x.shape[0], devices, -1, *x.shape[2:]), 1, 0),
            trajectory(i),
        )
        state, metrics = mapped(state, data, jax.random.key(i))
    return state, metrics


@pytest.mark.slow
@pytest.mark.rotating(4, group="dqn")
def test_priorities_are_the_newest_errors():
    state, metrics = updated("dqn", priority_exponent=0.5)
    power = np.asarray(state.memory.priorities.power)
    # 16 steps each: 3 without a stack, 1 without a successor
    assert (power > 0).sum() == 4 * 12
    assert len(np.unique(power)) > 10
    # It may have been learned from again since the largest was seen.
    largest = float(metrics["replay/largest_priority"][0])
    assert largest == float(state.memory.priorities.largest[0, 0])
    assert max(1.0, power.max()) <= largest < 10
    # From 0.4 to 1; total_steps is 20,000: 3 of 1,250 updates are done.
    exponent = float(metrics["replay/importance_exponent"][0])
    assert exponent == pytest.approx(0.4 + 0.6 * 3 / 1250, rel=1e-4)


@pytest.mark.slow
def test_rows_count_by_their_importance(monkeypatch):
    """One update whose errors and weights are known: the loss is that of the weighted rows."""
    seen = []

    def importance(probability, exponent):
        seen.append(exponent)
        return jnp.where(jnp.arange(len(probability)) == 3, 0.7, 0.0)

    def update(memory, place, error, exponent):
        return memory.priorities._replace(largest=error[3:4])

    monkeypatch.setattr(prioritized, "importance", importance)
    monkeypatch.setattr(prioritized, "update", update)
    one, metrics = updated("dqn", 2, priority_exponent=0.5, training_intensity=2.0)
    assert len(seen) == 1
    error = abs(float(one.memory.priorities.largest[0, 0]))
    huber = 0.5 * error**2 if error < 1 else error - 0.5
    loss = metrics["loss/huber"]
    assert huber > 0
    np.testing.assert_allclose(float(loss.total[0] / loss.number[0]), 0.7 * huber / 32, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.rotating(4, group="dqn")
def test_an_update_that_is_skipped_does_not_poison_the_priorities():
    config = catch_config("dqn", num_envs=4, agent={"learning_starts": 0, "priority_exponent": 0.5})
    agent = nonfinite.guarded(make_agent(resolve(config), SPEC), skip=True)
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    for poison in (np.nan, 1e30):
        state = jax.tree.map(lambda x: x[None], jax.jit(agent.init)(jax.random.key(0)))
        skipped, losses = [], []
        for i in range(6):
            given = state
            if i == 3:
                broken = jax.tree.map(lambda x, poison=poison: x * poison, state.actor.params)
                given = state._replace(actor=state.actor._replace(params=broken))
            data = jax.tree.map(lambda x: x[None], trajectory(i))
            after, metrics = mapped(given, data, jax.random.key(i))
            skipped.append(float(metrics[nonfinite.SKIPPED].total[0]))
            losses.append(float(metrics["loss/huber"].total[0]))
            restored = state.actor.params if i == 3 else after.actor.params
            state = after._replace(actor=after.actor._replace(params=restored))
            priorities = state.memory.priorities
            assert np.isfinite(np.asarray(priorities.power)).all()
            assert float(priorities.largest[0, 0]) <= 10.1  # the root of the largest that counts
        assert skipped == [0, 0, 0, 1, 0, 0]
        assert losses[4] > 0
        assert losses[5] > 0


@pytest.mark.slow
@pytest.mark.rotating(4, group="dqn")
def test_devices_share_parameters_whatever_their_priorities():
    state, _ = updated("dqn", devices=2, priority_exponent=0.5)
    for leaf in jax.tree.leaves((state.actor.params, state.train_state)):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    assert (np.asarray(state.memory.priorities.power[0] != state.memory.priorities.power[1])).any()


@pytest.mark.slow
@pytest.mark.rotating(4, group="dqn")
def test_several_devices_play_and_learn_with_priorities():
    settings = {"priority_exponent": 0.5, "learning_starts": 64, "rollout_length": 2}
    config = catch_config("rainbow", num_envs=4, parallel={"num_devices": 2}, agent=settings)
    mesh = make_mesh(2)
    engine = make_engine(config, 2, 2)
    program = make_program(
        resolve(config), make_agent(resolve(config), engine.spec), (engine,), mesh
    )
    state = program.run(program.init(), np.int32(20))
    assert int(state.metrics["loss/cross_entropy"].number) > 0
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(state.agent.actor.params))
