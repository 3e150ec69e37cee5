import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.pqn import agent as pqn
from jaxrl.config.plan import resolve
from jaxrl.config.schema import OptimizerConfig
from jaxrl.networks.heads import ActionValueNetwork
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import optimizers
from jaxrl.types import AXIS
from tests.agents.test_c51 import SPEC, outputs_of_layers, trajectory
from tests.conftest import catch_config


def test_hand_worked_loss():
    rows = pqn.Batch(jnp.zeros(2), jnp.array([1, 0]), jnp.array([3.0, 1.0]), jnp.array([0.5, 0.5]))
    total, parts = pqn.loss(pqn.plain_values(), jnp.array([[9.0, 1.0], [2.0, 9.0]]), rows)
    assert float(total) == 0.5 * (0.5 * 4 + 0.5 * 1)
    assert float(parts["value/q"]) == 1.5


@pytest.mark.slow
def test_acting_values_the_best_action():
    config = catch_config("pqn", num_envs=4)
    agent = make_agent(resolve(config), SPEC)
    actor = jax.jit(agent.init)(jax.random.key(0)).actor
    observation = trajectory(0).observation[0]
    _, extras, _ = jax.jit(agent.act)(actor, observation, jax.random.split(jax.random.key(0), 4))
    network = ActionValueNetwork(3, 1, config.network)
    apply = jax.jit(network.apply)
    values = apply({"params": actor.params}, normalize(observation, ()))
    np.testing.assert_allclose(extras.value, values.max(-1), rtol=1e-5)


@pytest.mark.slow
def test_metrics_and_parameters_of_an_update():
    config = catch_config("pqn", num_envs=4, agent={"rollout_length": 4, "num_minibatches": 2})
    agent = make_agent(resolve(config), SPEC)
    state = jax.tree.map(lambda x: x[None], jax.jit(agent.init)(jax.random.key(0)))
    data = trajectory(0)._replace(extras=pqn.Extras(jnp.zeros((4, 4))))
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    after, metrics = mapped(state, jax.tree.map(lambda x: x[None], data), jax.random.key(0))
    changed = jax.tree.map(lambda a, b: (a != b).any(), state.actor.params, after.actor.params)
    assert all(jax.tree.leaves(changed))
    counts = [
        int(leaf[0])
        for path, leaf in jax.tree_util.tree_leaves_with_path(after.train_state)
        if "count" in jax.tree_util.keystr(path)
    ]
    assert counts == [2 * 2]  # epochs, minibatches
    assert float(metrics["policy/epsilon"][0]) == 1


@pytest.mark.slow
def test_targets_are_lambda_returns_of_the_best_values():
    """One gradient step of all rows draws q(s, a) to R as purejaxql computes it.

    There: Rₜ = rₜ + γ (1 - doneₜ) ((1 - λ) vₜ₊₁ + λ Rₜ₊₁), the last one by v_T alone.
    """
    agent = {"rollout_length": 4, "num_minibatches": 1, "epochs": 1, "q_lambda": 0.5, "gamma": 0.9}
    config = catch_config("pqn", num_envs=4, agent=agent)
    made = make_agent(resolve(config), SPEC)
    state = jax.jit(made.init)(jax.random.key(0))
    played = trajectory(1)
    done = np.zeros((4, 4))
    done[1, 2] = 1
    value = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    played = played._replace(
        discount=jnp.asarray(1 - done, jnp.float32), extras=pqn.Extras(jnp.asarray(value))
    )
    network = ActionValueNetwork(3, 1, config.network)
    apply = jax.jit(network.apply)
    last = apply({"params": state.actor.params}, normalize(played.observation[-1], ())).max(-1)
    value = np.concatenate([value, np.asarray(last)[None]])
    reward, expected = np.asarray(played.reward), np.zeros((4, 4))
    after = value[4]
    for t in reversed(range(4)):
        mixed = after if t == 3 else 0.5 * value[t + 1] + 0.5 * after
        expected[t] = after = reward[t] + 0.9 * (1 - done[t]) * mixed
    mapped = jax.vmap(made.update, in_axes=(0, 0, None), axis_name=AXIS)
    given = jax.tree.map(lambda x: x[None], (state, played))
    _, metrics = jax.jit(mapped)(*given, jax.random.key(0))
    assert float(metrics["value/target"][0]) == pytest.approx(expected.mean(), rel=1e-4)
    values = apply(
        {"params": state.actor.params},
        normalize(played.observation[:-1].reshape(16, 84, 84, 4), ()),
    )
    chosen = np.asarray(values)[np.arange(16), np.asarray(played.action).ravel()]
    loss = 0.5 * np.square(expected.ravel() - chosen).mean()
    assert float(metrics["loss/squared_error"][0]) == pytest.approx(loss, rel=1e-4)


@pytest.mark.slow
def test_layers_are_normalized_over_their_channels():
    """They are rectified in the same pass."""
    _, layers = outputs_of_layers(layer_norm=True)
    torso = {
        name: of["__call__"][0] for name, of in layers["Torso_0"].items() if name[-1].isdigit()
    }
    assert len(torso) == 6
    for number, before in enumerate((torso["Conv_0"], torso["Conv_1"], torso["Dense_0"])):
        out = (before - before.mean(-1, keepdims=True)) / before.std(-1, keepdims=True)
        expected = np.maximum(out, 0)
        np.testing.assert_allclose(torso[f"LayerNorm_{number}"], expected, atol=1e-3)


def test_rectified_adam_is_optax_own():
    config = OptimizerConfig(name="radam", learning_rate=0.1, decay=0.999, eps=1e-8,
                             max_grad_norm=0.0)  # fmt: skip
    ours, theirs = optimizers.make_optimizer(config), optax.radam(0.1)
    params = {"x": jnp.array([1.0, -2.0])}
    state, oracle = ours.init(params), theirs.init(params)
    expected = params
    for step in range(8):
        gradient = {"x": jnp.array([0.3, step - 4.0])}
        params, state = optimizers.apply(
            ours, gradients=gradient, opt_state=state, params=params, learning_rate=0.1
        )
        change, oracle = theirs.update(gradient, oracle)
        expected = optax.apply_updates(expected, change)
        np.testing.assert_allclose(params["x"], expected["x"], rtol=1e-5)
