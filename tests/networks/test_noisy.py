"""Noisy networks: the noise is of the paper's form, of each row's own, and explores."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import ActionValueNetwork, NetworkConfig
from jaxrl.networks.layers import NoisyDense
from jaxrl.networks.torsos import Torso
from tests.agents.test_c51 import SPEC
from tests.agents.test_dqn import updated
from tests.conftest import catch_config

NOISY = NetworkConfig(torso="nips", noisy=True, dueling=True)


def test_a_layer_by_hand():
    layer = NoisyDense(3, number=7)
    x, key = jnp.array([[1.0, 2.0], [0.5, -1.0]]), jax.random.split(jax.random.key(0))
    params = layer.init(jax.random.key(1), x, None)["params"]
    np.testing.assert_allclose(params["kernel_noise"], 0.5 / np.sqrt(2), rtol=1e-6)
    assert np.abs(params["kernel"]).max() <= 1 / np.sqrt(2)
    outputs = layer.apply({"params": params}, x, key)
    for row in range(2):
        noise = np.asarray(jax.random.normal(jax.random.fold_in(key[row], 7), (5,)))
        noise = np.sign(noise) * np.sqrt(np.abs(noise))
        within, out = noise[:2], noise[2:]
        kernel = params["kernel"] + params["kernel_noise"] * np.outer(within, out)
        bias = params["bias"] + params["bias_noise"] * out
        np.testing.assert_allclose(outputs[row], x[row] @ kernel + bias, rtol=1e-4, atol=1e-6)
    mean = layer.apply({"params": params}, x, None)
    np.testing.assert_allclose(mean, x @ params["kernel"] + params["bias"], rtol=1e-5)


@pytest.mark.slow
def test_no_two_rows_or_layers_have_the_same_noise():
    network = ActionValueNetwork(3, 5, NOISY)
    params = init_params(network, jax.random.key(0))
    assert {name for name in params if "Noisy" in name} == {"NoisyDense_0", "NoisyDense_1"}
    x = jnp.tile(jnp.asarray(np.random.default_rng(0).random((1, 84, 84, 4)), jnp.float32),
                 (4, 1, 1, 1))  # fmt: skip
    keys = jax.random.split(jax.random.key(0), 4)
    outputs = network.apply({"params": params}, x, keys)
    assert len({row.tobytes() for row in np.asarray(outputs)}) == 4
    again = network.apply({"params": params}, x[:1], keys[2:3])
    np.testing.assert_allclose(again[0], outputs[2], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_layers_of_one_network_have_noise_of_their_own():
    """The two streams of a dueling network, with the same weights and the same input."""
    made = Torso(NOISY, streams=2)
    x = jnp.asarray(np.random.default_rng(0).random((1, 84, 84, 4)), jnp.float32)
    params = jax.jit(made.init)(jax.random.key(0), x)["params"]
    params = params | {"NoisyDense_1": params["NoisyDense_0"]}
    first, second = made.apply({"params": params}, x, jax.random.split(jax.random.key(1), 1))
    assert (np.asarray(first) != np.asarray(second)).mean() > 0.3
    first, second = made.apply({"params": params}, x, None)
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_networks_that_are_compared_have_noise_of_their_own(monkeypatch):
    """The target, the selector and the learner, and the draw of the places."""
    given = []
    apply = ActionValueNetwork.apply

    def spy(self, variables, x, noise):
        jax.debug.callback(lambda k: given.append(np.asarray(k)), jax.random.key_data(noise))
        return apply(self, variables, x, noise)

    monkeypatch.setattr(ActionValueNetwork, "apply", spy)
    updated("rainbow", 2, network=NOISY, training_intensity=2.0, micro_batch=32)
    jax.effects_barrier()
    rows = [row.tobytes() for keys in given for row in keys.reshape(-1, keys.shape[-1])]
    assert len(rows) == len(set(rows)) == 3 * 32


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
def test_it_explores_without_epsilon():
    settings = {"epsilon_start": 0.0, "epsilon_end": 0.0}
    config = catch_config("rainbow", num_envs=4, agent=settings)
    config = dataclasses.replace(config, network=NOISY)
    agent = make_agent(resolve(config), SPEC)
    actor = agent.init(jax.random.key(0)).actor
    observation = jnp.asarray(np.random.default_rng(0).integers(0, 256, (4, 84, 84, 4)), jnp.uint8)
    act = jax.jit(agent.act)
    keys = jax.random.split(jax.random.key(0), (30, 4))
    actions = np.array([act(actor, observation, k)[0] for k in keys])
    assert all(len(set(column)) > 1 for column in actions.T)
    # A prediction draws nothing: all but evaluation's random actions is one action's.
    best = jax.jit(agent.predict)(actor, observation).probabilities.max(-1)
    np.testing.assert_allclose(best, 1 - 0.001 * (1 - 1 / SPEC.num_actions), rtol=1e-6)


@pytest.mark.slow
def test_learning_changes_the_noise():
    state, _ = updated("rainbow", network=NOISY)
    layer = state.actor.params["NoisyDense_0"]
    assert np.unique(np.asarray(layer["kernel_noise"])).size > 100
