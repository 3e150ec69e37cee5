import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl import networks, optimizers
from jaxrl.agents import make_agent, pqn
from jaxrl.config import OptimizerConfig
from jaxrl.types import AXIS
from tests.conftest import catch_config
from tests.test_c51 import SPEC, trajectory


def test_hand_worked_loss():
    rows = pqn.Rows(jnp.zeros(2), jnp.array([1, 0]), jnp.array([3.0, 1.0]), jnp.array([0.5, 0.5]))
    total, parts = pqn.loss(jnp.array([[9.0, 1.0], [2.0, 9.0]]), rows)
    assert float(total) == 0.5 * (0.5 * 4 + 0.5 * 1)
    assert float(parts["value/q"]) == 1.5


def test_acting_values_the_best_action():
    config = catch_config("pqn", num_envs=4)
    agent = make_agent(config, SPEC)
    actor = agent.init(jax.random.key(0)).actor
    observation = trajectory(0).observation[0]
    _, extras = agent.act(actor, observation, jax.random.split(jax.random.key(0), 4))
    network = networks.ActionValueNetwork(3, 1, config.network)
    said = network.apply({"params": actor.params}, networks.normalise(observation, ()))
    np.testing.assert_allclose(extras.value, said.max(-1), rtol=1e-5)


def test_metrics_and_parameters_of_an_update():
    config = catch_config("pqn", num_envs=4, agent={"rollout_length": 4, "num_minibatches": 2})
    agent = make_agent(config, SPEC)
    state = jax.tree.map(lambda x: x[None], agent.init(jax.random.key(0)))
    data = trajectory(0)._replace(extras=pqn.Extras(jnp.zeros((4, 4))))
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    after, metrics = mapped(state, jax.tree.map(lambda x: x[None], data), jax.random.key(0))
    changed = jax.tree.map(lambda a, b: (a != b).any(), state.actor.params, after.actor.params)
    assert all(jax.tree.leaves(changed))
    counts = [
        int(leaf[0])
        for path, leaf in jax.tree_util.tree_leaves_with_path(after.optimizer)
        if "count" in jax.tree_util.keystr(path)
    ]
    assert counts == [2 * 2]  # epochs, minibatches
    assert float(metrics["policy/epsilon"][0]) == 1


def test_layers_are_normalised_over_their_channels():
    config = networks.NetworkConfig(torso="nips", layer_norm=True)
    network = networks.ActionValueNetwork(3, 1, config)
    params = networks.init_params(network, jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).random((2, 84, 84, 4)), jnp.float32)
    _, kept = network.apply({"params": params}, x, capture_intermediates=True)
    norms = [v for k, v in kept["intermediates"]["Torso_0"].items() if k.startswith("LayerNorm")]
    assert len(norms) == 3
    for norm in norms:
        out = norm["__call__"][0]
        np.testing.assert_allclose(out.mean(-1), 0, atol=1e-4)
        np.testing.assert_allclose(out.std(-1), 1, atol=0.02)


def test_rectified_adam_is_optax_own():
    config = OptimizerConfig(name="radam", learning_rate=0.1, decay=0.999, eps=1e-8,
                             max_grad_norm=0.0)  # fmt: skip
    ours, theirs = optimizers.make_optimizer(config), optax.radam(0.1)
    params = {"x": jnp.array([1.0, -2.0])}
    state, oracle = ours.init(params), theirs.init(params)
    expected = params
    for step in range(8):
        gradient = {"x": jnp.array([0.3, step - 4.0])}
        params, state = optimizers.apply(ours, gradient, state, params, jnp.float32(0.1))
        change, oracle = theirs.update(gradient, oracle)
        expected = optax.apply_updates(expected, change)
        np.testing.assert_allclose(params["x"], expected["x"], rtol=1e-5)
