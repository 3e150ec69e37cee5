import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import make_agent
from jaxrl.agents.ppo import agent as ppo
from jaxrl.agents.ppo.settings import PPOConfig
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.networks.heads import PolicyValue
from jaxrl.networks.running_statistics import RunningStatistics, new_statistics
from jaxrl.ops import gradients
from jaxrl.program import episode_statistics
from jaxrl.program.program import make_program
from jaxrl.replay import minibatches
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import AXIS, EnvSpec, Trajectory
from tests.agents import invalid_rows
from tests.conftest import catch_config

SPEC = EnvSpec(4, 3, ("LEFT", "NOOP", "RIGHT"), "catch")
LN2 = np.log(2)


def rows(log_prob, advantage, weight, target=(0.0, 0.0), value=(0.0, 0.0)):
    return ppo.Batch(
        observation=jnp.zeros((2, 84, 84, 4), jnp.uint8),
        action=jnp.array([0, 1]),
        log_prob=jnp.log(jnp.array(log_prob)),
        value=jnp.array(value),
        target=jnp.array(target),
        advantage=jnp.array(advantage),
        weight=jnp.array(weight),
    )


def prediction(value=(0.0, 0.0)):
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]))
    return PolicyValue(logits, jnp.array(value))


def test_hand_worked_loss():
    config = PPOConfig(clip=0.2, value_coef=2.0)
    data = rows([0.25, 1.0], [3.0, 1.0], [0.5, 0.5], target=(4.0, 1.0))
    total, parts = ppo.loss(prediction(value=(1.0, 1.0)), data, config, 0.1)
    # ratios 0.5 / 0.25 = 2 and 0.5 / 1 = 0.5.
    # Row 0: min(2 * 3, 1.2 * 3) = 3.6, clipped. Row 1: min(0.5 * 1, 0.8 * 1) = 0.5, not.
    assert float(parts["loss/policy"]) == pytest.approx(-(3.6 + 0.5) / 2, rel=1e-6)
    # ((4 - 1)^2 + 0) / 2 rows, and half of it
    assert float(parts["loss/value"]) == pytest.approx(9 / 2 / 2)
    assert float(parts["policy/entropy"]) == pytest.approx(1.5 * LN2, rel=1e-5)
    # (2 - 1 - ln 2 + 0.5 - 1 + ln 2) / 2
    assert float(parts["policy/approx_kl"]) == pytest.approx(0.25, rel=1e-5)
    assert float(parts["policy/clip_fraction"]) == pytest.approx(1.0)
    assert float(total) == pytest.approx(-2.05 + 2 * 2.25 - 0.1 * 1.5 * LN2, rel=1e-5)


def test_a_row_without_weight_does_not_count():
    data = rows([0.25, 1.0], [3.0, 1.0], [1.0, 0.0], target=(4.0, 100.0))
    _, parts = ppo.loss(prediction(), data, PPOConfig(clip=0.2), 0.01)
    assert float(parts["loss/policy"]) == pytest.approx(-3.6, rel=1e-6)
    assert float(parts["loss/value"]) == pytest.approx(8.0)


def test_clipped_values_take_the_larger_error():
    config = PPOConfig(clip=0.5, clip_value=True)
    # Row 0: old 1, new 3 is clipped to 1.5: max((4 - 3)^2, (4 - 1.5)^2) = 6.25.
    # Row 1: old 1, new 1.2 is not clipped: (4 - 1.2)^2 = 7.84.
    data = rows([0.5, 0.5], [0.0, 0.0], [0.5, 0.5], target=(4.0, 4.0), value=(1.0, 1.0))
    _, parts = ppo.loss(prediction(value=(3.0, 1.2)), data, config, 0.01)
    assert float(parts["loss/value"]) == pytest.approx((6.25 + 7.84) / 2 / 2, rel=1e-6)


def test_surrogate_equals_rlax():
    random = np.random.default_rng(0)
    logits = jnp.asarray(random.normal(size=(64, 6)), jnp.float32)
    action = jnp.asarray(random.integers(0, 6, 64))
    old = jnp.asarray(random.normal(-2, 0.5, 64), jnp.float32)
    advantage = jnp.asarray(random.normal(size=64), jnp.float32)
    zeros = jnp.zeros(64)
    data = ppo.Batch(zeros, action, old, zeros, zeros, advantage, jnp.full(64, 1 / 64))
    _, parts = ppo.loss(PolicyValue(logits, zeros), data, PPOConfig(clip=0.2), 0.01)
    ratio = jnp.exp(jax.nn.log_softmax(logits)[jnp.arange(64), action] - old)
    oracle = rlax.clipped_surrogate_pg_loss(ratio, advantage, 0.2)
    np.testing.assert_allclose(parts["loss/policy"], oracle, rtol=1e-5)


def test_at_the_old_policy_the_gradient_is_the_policy_gradient():
    logits = jnp.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    policy = np.asarray(jax.nn.softmax(logits))
    data = rows([policy[0, 0], policy[1, 1]], [2.0, 7.0], [0.5, 0.5])
    config = PPOConfig(value_coef=0)
    gradient = jax.grad(lambda x: ppo.loss(PolicyValue(x, jnp.zeros(2)), data, config, 0.0)[0])
    expected = 0.5 * np.array([[2.0], [7.0]]) * (policy - np.eye(3)[[0, 1]])
    np.testing.assert_allclose(gradient(logits), expected, atol=1e-5)


def test_advantages_are_normalized_over_the_valid_rows_of_all_devices():
    valid = jnp.array([[True, True], [True, False]])
    advantage = jnp.array([[1.0, 2.0], [6.0, 1000.0]])

    def per_device(valid, advantage):
        return ppo.normalize_advantages(advantage, gradients.row_weights(valid))

    ours = np.asarray(jax.vmap(per_device, axis_name=AXIS)(valid, advantage))
    # mean 3, variance (4 + 1 + 9) / 3
    expected = (np.array([1.0, 2.0, 6.0]) - 3) / np.sqrt(14 / 3)
    np.testing.assert_allclose([*ours[0], ours[1, 0]], expected, rtol=1e-5)


def test_explained_variance():
    target = jnp.array([[1.0, 3.0]])
    weight = jnp.array([[0.5, 0.5]])
    over = jax.vmap(ppo.explained_variance, axis_name=AXIS)
    assert float(over(target, target, weight)[0]) == pytest.approx(1.0)
    assert float(over(jnp.zeros((1, 2)), target, weight)[0]) == pytest.approx(0.0)
    # errors 1 and 2: variance 0.25 of 1
    assert float(over(jnp.array([[0.0, 1.0]]), target, weight)[0]) == pytest.approx(0.75)


def steps_of(num_devices, config):
    def one(_):
        return minibatches.order(jax.random.key(3), config, 4 // num_devices)

    steps = jax.vmap(one, axis_name=AXIS)(jnp.arange(num_devices))
    return np.concatenate(list(np.asarray(steps)), axis=-1)


def test_minibatches_permute_every_environments_steps_whatever_the_devices():
    config = PPOConfig(rollout_length=8, epochs=3, num_minibatches=2)
    steps = steps_of(1, config)
    assert steps.shape == (3 * 2, 4, 4)
    for epoch in steps.reshape(3, 8, 4):
        for env in epoch.T:
            assert sorted(env) == list(range(8))
    orders = {tuple(env) for epoch in steps.reshape(3, 8, 4) for env in epoch.T}
    assert len(orders) == 12
    np.testing.assert_array_equal(steps, steps_of(2, config))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_minibatch_has_the_rows_of_its_steps(size):
    random = np.random.default_rng(0)
    shape = 4, 3  # steps of each environment
    stacks = random.integers(0, 256, (*shape, 8, 4, size), np.uint8)
    numbers = random.normal(size=(5, *shape)).astype(np.float32)
    weight = np.ones(shape, np.float32)
    weight[2, 1] = 0
    rollout = ppo.Batch(jnp.asarray(stacks), *numbers, weight)
    steps = np.array([[3, 2, 0], [1, 0, 2]])
    take = jax.jit(jax.vmap(minibatches.take, (None, None), axis_name=AXIS, axis_size=1))
    batch = jax.tree.map(lambda x: x[0], take(rollout, steps))
    for row, (part, env) in enumerate(np.ndindex(2, 3)):
        place = steps[part, env], env
        np.testing.assert_array_equal(batch.observation[row], stacks[place])
        rows = [x[row] for x in batch[1:-1]]
        np.testing.assert_array_equal(rows, numbers[:, *place])
        assert batch.weight[row] == pytest.approx(weight[place] / 5)


def test_adaptive_rate_keeps_the_divergence():
    rate = jnp.float32(3e-4)
    assert float(ppo.adapt(rate, jnp.float32(0.021), 0.01)) == pytest.approx(2e-4)
    assert float(ppo.adapt(rate, jnp.float32(0.004), 0.01)) == pytest.approx(4.5e-4)
    assert float(ppo.adapt(rate, jnp.float32(0.015), 0.01)) == pytest.approx(3e-4)
    assert float(ppo.adapt(jnp.float32(9e-3), jnp.float32(0.0), 0.01)) == pytest.approx(1e-2)
    assert float(ppo.adapt(jnp.float32(1.2e-6), jnp.float32(1.0), 0.01)) == pytest.approx(1e-6)


def test_value_statistics_count_the_valid_returns_of_all_devices():
    target = jnp.array([[[1.0], [2.0]], [[6.0], [1000.0]]])
    valid = jnp.array([[[True], [True]], [[True], [False]]])
    statistics = jax.tree.map(lambda x: jnp.stack([x, x]), new_statistics(()))
    merged = jax.vmap(ppo.update_value_statistics, axis_name=AXIS)(statistics, target, valid)
    for device in range(2):
        assert float(merged.samples[device]) == 3
        assert float(merged.mean[device]) == pytest.approx(3.0)
        assert float(merged.variance[device]) == pytest.approx(14 / 3, rel=1e-5)
    one = jax.tree.map(lambda x: x[0], merged)
    back = ppo.to_returns(ppo.from_returns(jnp.array([5.0]), one), one)
    np.testing.assert_allclose(back, [5.0], rtol=1e-5)


@pytest.mark.parametrize(("mean", "deviation"), [(5_000, 2), (20_000, 5), (-3e6, 40)])
def test_value_statistics_of_large_returns(mean, deviation):
    """The deviation is that of float64, and the same on any number of devices."""
    random = np.random.default_rng(0)
    target = np.float32(random.normal(mean, deviation, (3, 128, 8)))
    valid = random.random(target.shape) > 0.1
    update = jax.jit(jax.vmap(ppo.update_value_statistics, (None, 0, 0), axis_name=AXIS))

    def of(devices):
        merged = new_statistics(())
        for rollout in zip(target, valid, strict=True):
            parts = (np.stack(np.split(x, devices, axis=1)) for x in rollout)
            merged = jax.tree.map(lambda x: x[0], update(merged, *parts))
        return merged

    merged, seen = of(4), np.float64(target[valid])
    assert int(merged.samples) == len(seen)
    assert float(merged.mean) == pytest.approx(seen.mean(), rel=1e-6)
    assert float(merged.variance) == pytest.approx(seen.var(), rel=1e-4)
    assert of(1) == merged


def trajectory(agent, actor, steps=8, envs=4):
    random = np.random.default_rng(0)
    observation = random.integers(0, 256, (steps + 1, envs, 84, 84, 4))
    observation = jnp.asarray(observation, jnp.uint8)
    keys = jax.random.split(jax.random.key(5), (steps, envs))
    action, extras, _ = jax.vmap(agent.act, in_axes=(None, 0, 0))(actor, observation[:-1], keys)
    return Trajectory(
        observation=observation,
        action=action,
        reward=jnp.asarray(random.normal(size=(steps, envs)), jnp.float32),
        discount=jnp.asarray(random.random((steps, envs)) > 0.2, jnp.float32),
        valid=jnp.asarray(random.random((steps, envs)) > 0.2),
        extras=extras,
    )


def make(**settings):
    config = catch_config("ppo_pong", num_envs=4, agent={"rollout_length": 8} | settings)
    agent = make_agent(resolve(config), SPEC)
    return agent, agent.init(jax.random.key(0))


def update(agent, state, data):
    one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    return jax.tree.map(lambda x: x[0], mapped(one(state), one(data), jax.random.key(1)))


@pytest.mark.slow
def test_before_the_first_step_the_policy_is_the_old_one():
    agent, state = make(epochs=1, num_minibatches=1)
    data = trajectory(agent, state.actor)
    _, metrics = update(agent, state, data)
    assert float(metrics["policy/approx_kl"]) == pytest.approx(0, abs=1e-6)
    assert float(metrics["policy/clip_fraction"]) == 0
    # Advantages of mean 0 and ratio 1: nothing is gained yet.
    assert float(metrics["loss/policy"]) == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_invalid_rows_change_nothing():
    agent, state = make(normalize_values=True)
    data = trajectory(agent, state.actor)
    # The frames of an invalid row enter the statistics, but neither a value nor an entropy counts.
    log_prob = data.extras.log_prob
    other_log_prob = jnp.where(data.valid, log_prob, log_prob - 5)
    other = invalid_rows.changed(data)
    other = other._replace(extras=data.extras._replace(log_prob=other_log_prob))
    before, after = (update(agent, state, rollout)[0] for rollout in (data, other))
    learned = [(x.actor.params, x.actor.statistics.value, x.train_state) for x in (before, after)]
    for a, b in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(a, b)
    changed = jax.tree.map(lambda a, b: (a != b).any(), before.actor.params, state.actor.params)
    assert all(jax.tree.leaves(changed))


@pytest.mark.slow
def test_normalized_values_are_told_in_units_of_the_return():
    agent, state = make(normalize_values=True)
    observation = jnp.ones((4, 84, 84, 4), jnp.uint8)
    keys = jax.random.split(jax.random.key(0), 4)
    _, plain, _ = agent.act(state.actor, observation, keys)
    value = RunningStatistics(jnp.float32(9), jnp.float32(3.0), jnp.float32(4.0))
    actor = state.actor._replace(statistics=state.actor.statistics._replace(value=value))
    _, scaled, _ = agent.act(actor, observation, keys)
    np.testing.assert_allclose(scaled.value, 3 + 2 * plain.value, rtol=1e-4)


@pytest.mark.slow
def test_the_linear_rate_falls_by_update():
    config = catch_config("ppo_pong", num_envs=4, total_steps=32 * 10, agent={"rollout_length": 8})
    linear = dataclasses.replace(config.optimizer, schedule="linear", learning_rate=1e-3)
    agent = make_agent(resolve(dataclasses.replace(config, optimizer=linear)), SPEC)
    state = agent.init(jax.random.key(0))
    data = trajectory(agent, state.actor)
    rates = []
    for _ in range(2):
        state, metrics = update(agent, state, data)
        rates.append(float(metrics["loss/learning_rate"]))
    np.testing.assert_allclose(rates, [1e-3, 0.9e-3], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
def test_ppo_solves_catch():
    # The recipe for Pong, but for a rate that comes to rest.
    config = catch_config("ppo_pong", num_envs=8, total_steps=16_000)
    linear = dataclasses.replace(config.optimizer, schedule="linear", learning_rate=1e-3, eps=1e-5)
    config = dataclasses.replace(config, optimizer=linear)
    engine = make_engine(config, config.num_envs)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.run(program.init(), np.int32(4))
    start = episode_statistics.summarize(state.games[0].episodes).return_mean
    state = program.run(state, np.int32(resolve(config).num_updates - 4))
    end = episode_statistics.summarize(state.games[0].episodes)
    assert start < 0
    assert end.return_mean >= 0.9 * MAX_SCORE
