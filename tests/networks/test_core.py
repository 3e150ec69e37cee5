import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.network import NetworkConfig
from jaxrl.networks.actors import burn_in, forward, init_params
from jaxrl.networks.core import (
    RecurrentCore,
    core_of,
    first_observation,
    gru_step,
    lstm_step,
)
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.types import Core, RecurrentObservation

ENVS, LENGTH, UNITS, ACTIONS, FEATURES = 3, 7, 5, 4, 6
FRAME = (36, 36)
SMALL = {"torso": "nips", "core_units": UNITS}


def sequences(core, shape=(ENVS, LENGTH), seed=0):
    """Random steps whose games begin in the middle, too; steps 3 of environment 1 is a reset."""
    random = np.random.default_rng(seed)
    fresh = np.zeros(shape, bool)
    fresh[1, 3] = fresh[0, 0] = True
    return RecurrentObservation(
        stack=jnp.asarray(random.integers(0, 256, (*shape, *FRAME, 4)), jnp.uint8),
        core=jnp.asarray(random.normal(size=(*shape, core.size)), jnp.float32),
        last_action=jnp.where(fresh, -1, random.integers(0, ACTIONS, shape)),
        last_reward=jnp.where(fresh, 0.0, random.normal(size=shape) * 2).astype(jnp.float32),
        fresh=jnp.asarray(fresh),
    )


def test_an_lstm_step_by_hand():
    # sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4, tanh(ln 2) = (4 - 1) / (4 + 1) = 3/5
    ln = np.log
    gates = jnp.array([[0.0, ln(3.0), ln(2.0), 0.0]])  # input, forget, cell, output
    cell, hidden = lstm_step(jnp.array([[2.0, 9.0]]), gates)[0]
    # c = 3/4 · 2 + 1/2 · 3/5 = 1.8
    assert cell == pytest.approx(1.8, rel=1e-5)
    assert hidden == pytest.approx(0.5 * np.tanh(1.8), rel=1e-5)


def test_a_gru_step_by_hand():
    # r = sigmoid(0) = 1/2, z = sigmoid(ln 3) = 3/4, n = tanh(0.1 + 1/2 · 0.4) = tanh(0.3)
    inputs = jnp.array([[-1.0, np.log(3.0), 0.1]])
    recurrent = jnp.array([[1.0, 0.0, 0.4]])
    got = gru_step(jnp.array([[2.0]]), inputs, recurrent)[0, 0]
    assert got == pytest.approx(0.25 * np.tanh(0.3) + 0.75 * 2.0, rel=1e-5)


@pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_a_sequence_equals_flaxs_cell_step_by_step(kind):
    """Flax has its gates apart, and names them; the state starts at zero where a game begins."""
    config = NetworkConfig(**SMALL, core=kind, core_inputs=False)
    core = core_of(config)
    steps = sequences(core)._replace(stack=())
    features = jnp.asarray(np.random.default_rng(1).normal(size=(ENVS, LENGTH, FEATURES)), "f4")
    layer = RecurrentCore(config, ACTIONS)
    params = layer.init(jax.random.key(0), features, steps)["params"]
    params = jax.tree.map(lambda x: x + 0.1, params)  # biases that are not 0
    outputs, state = layer.apply({"params": params}, features, steps)
    hidden_slice = slice(-UNITS, None)
    for env in range(ENVS):
        carry = steps.core[env, 0]
        for t in range(LENGTH):
            carry = jnp.where(steps.fresh[env, t], 0.0, carry)
            carry = flax_step(kind, params, carry, features[env, t])
            np.testing.assert_allclose(outputs[env, t], carry[hidden_slice], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state[env], carry, rtol=1e-4, atol=1e-5)


def flax_step(kind, params, carry, x):
    """One step of one environment by Flax's own cell, with our weights."""

    def part(array, index):
        return array[..., index * UNITS : (index + 1) * UNITS]

    if kind == "lstm":
        cell_params = {}
        for index, gate in enumerate("ifgo"):
            cell_params["i" + gate] = {"kernel": part(params["inputs"], index)}
            cell_params["h" + gate] = {
                "kernel": part(params["recurrent"], index),
                "bias": part(params["bias"], index),
            }
        cell = nn.LSTMCell(UNITS)
        (c, h), _ = cell.apply({"params": cell_params}, tuple(jnp.split(carry, 2)), x)
        return jnp.concatenate([c, h])
    cell_params = {}
    for index, gate in enumerate("rzn"):
        cell_params["i" + gate] = {
            "kernel": part(params["inputs"], index),
            "bias": part(params["bias"], index),
        }
        cell_params["h" + gate] = {"kernel": part(params["recurrent"], index)}
    cell_params["hn"]["bias"] = params["new_bias"]
    return nn.GRUCell(UNITS).apply({"params": cell_params}, carry, x)[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_one_scan_equals_one_step_at_a_time(kind):
    config = NetworkConfig(**SMALL, core=kind)
    network = PolicyValueNetwork(ACTIONS, config)
    params = init_params(network, jax.random.key(0), FRAME)
    steps = sequences(core_of(config))
    whole = jax.jit(lambda p, x: forward(network, p, (), x))(params, steps)
    step = jax.jit(lambda p, x: forward(network, p, (), x))
    state = steps.core[:, 0]
    for t in range(LENGTH):
        now = jax.tree.map(lambda x, t=t: x[:, t], steps)._replace(core=state)
        outputs = step(params, now)
        state = outputs.core
        np.testing.assert_allclose(outputs.logits, whole.logits[:, t], atol=1e-5)
        np.testing.assert_allclose(outputs.value, whole.value[:, t], atol=1e-5)
    np.testing.assert_allclose(state, whole.core, atol=1e-5)


def test_nothing_before_a_reset_reaches_the_steps_after_it():
    config = NetworkConfig(**SMALL, core="lstm")
    network = PolicyValueNetwork(ACTIONS, config)
    params = init_params(network, jax.random.key(0), FRAME)
    steps = sequences(core_of(config))

    def value(features):
        outputs = forward(network, params, (), steps._replace(core=features))
        return outputs.value

    jacobian = jax.jacobian(value)(steps.core)  # [ENVS, LENGTH, ENVS, LENGTH, S]
    reached = np.abs(jacobian).sum(-1) > 0
    expected = np.zeros_like(reached)
    expected[1, :3, 1, 0] = True  # until its reset at step 3
    expected[2, :, 2, 0] = True
    np.testing.assert_array_equal(reached, expected)


@pytest.mark.slow
def test_the_last_action_and_the_clipped_reward_are_inputs():
    config = NetworkConfig(**SMALL, core="gru")
    network = PolicyValueNetwork(ACTIONS, config)
    params = init_params(network, jax.random.key(0), FRAME)
    first = first_observation(jnp.zeros((2, *FRAME, 4), jnp.uint8), core_of(config))

    def values(**changes):
        return forward(network, params, (), first._replace(**changes)).value

    plain = values()
    assert plain[0] == plain[1]
    actions = values(last_action=jnp.array([0, 3]))
    assert len({float(x) for x in (*actions, plain[0])}) == 3
    rewards = values(last_reward=jnp.array([1.0, 200.0]))  # an evaluation's reward, not clipped
    assert rewards[0] == rewards[1] != plain[0]
    blind = PolicyValueNetwork(ACTIONS, NetworkConfig(**SMALL, core="gru", core_inputs=False))
    params = init_params(blind, jax.random.key(0), FRAME)
    outputs = forward(blind, params, (), first._replace(last_action=jnp.array([0, 3])))
    assert outputs.value[0] == outputs.value[1]


@pytest.mark.slow
def test_a_burn_in_refreshes_the_state_without_a_gradient():
    config = NetworkConfig(**SMALL, core="lstm")
    network = PolicyValueNetwork(ACTIONS, config)
    params = init_params(network, jax.random.key(0), FRAME)
    steps = sequences(core_of(config))
    whole = forward(network, params, (), steps)
    rest = burn_in(network, params, (), steps, 2)
    assert rest.fresh.shape == (ENVS, LENGTH - 2)
    np.testing.assert_allclose(
        forward(network, params, (), rest).value, whole.value[:, 2:], atol=1e-5
    )
    refreshing = jax.grad(lambda p: burn_in(network, p, (), steps, 2).core[:, 0].sum())(params)
    assert all((x == 0).all() for x in jax.tree.leaves(refreshing))


def test_no_core_is_the_network_as_it_was():
    assert core_of(NetworkConfig()) is None
    assert core_of(NetworkConfig(core="lstm", core_units=3)) == Core(6, forgets_lives=False)
    assert core_of(NetworkConfig(core="gru", core_units=3, core_resets="life")) == Core(3, True)
    stack = jnp.zeros((2, *FRAME, 4), jnp.uint8)
    assert first_observation(stack, None) is stack
