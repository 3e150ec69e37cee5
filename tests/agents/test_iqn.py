"""IQN and Beyond the Rainbow: quantiles at levels that are drawn anew for each use."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import q_learning
from jaxrl.agents.iqn import agent as iqn
from jaxrl.agents.iqn.settings import IQNConfig
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.networks.actors import forward, init_params
from jaxrl.networks.heads import QuantileNetwork, Quantiles
from jaxrl.networks.running_statistics import init_statistics
from jaxrl.replay import buffer
from jaxrl.types import ActorState
from tests.agents import btr_oracle
from tests.agents.test_dqn import updated
from tests.conftest import recipe_file
from tests.rotation import THOROUGH

SETTINGS = IQNConfig(num_quantiles=3, target_quantiles=4, acting_quantiles=5)
METHOD = iqn.method(SETTINGS)


def test_hand_worked_target_and_loss():
    # The first action's quantiles 2 and 8 have the mean 5, the second's 4.
    there = Quantiles(jnp.array([[[2.0, 8.0], [4.0, 4.0]]]), jnp.zeros((1, 2, 2)))
    bootstrap = q_learning.bootstrap(METHOD, there, there)
    target = METHOD.target(jnp.array([1.0]), jnp.array([0.5]), bootstrap)
    np.testing.assert_array_equal(target, [[1 + 0.5 * 2, 1 + 0.5 * 8]])  # 2, 5
    level = jnp.array([[0.25, 0.75]])

    def loss(value):
        return METHOD.error(target, Quantiles(value, level))[0][0]

    # At 1, level 1/4: errors 1 and 4, Huber 1/2 and 7/2, times 1/4: mean 1/2.
    # At 3, level 3/4: errors -1 and 2, Huber 1/2 and 3/2, times 1/4 and 3/4: mean 5/8.
    value = jnp.array([[1.0, 3.0]])
    assert float(loss(value)) == 1 / 2 + 5 / 8
    # Slopes are clipped errors, times the same weights: -(1/4 + 1/4) / 2 and -(-1/4 + 3/4) / 2.
    np.testing.assert_array_equal(jax.grad(loss)(value), [[-0.25, -0.25]])
    # |1|, |4| and |-1|, |2|: a mean, so that more quantiles do not reach the limit of priorities.
    priority = METHOD.error(target, Quantiles(value, level))[1]
    np.testing.assert_array_equal(priority, [2.0])


def test_loss_equals_rlax():
    random = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape) * 2, jnp.float32)  # noqa: E731
    chosen = Quantiles(draw(16, 9), jnp.asarray(random.random((16, 9)), jnp.float32))
    target = draw(16, 7)
    losses, _ = iqn.error(target, chosen)
    oracle = jax.vmap(lambda *row: rlax.quantile_regression_loss(*row, 1.0))(*chosen, target)
    np.testing.assert_allclose(losses, oracle, rtol=1e-5)


def small_network(**network):
    config = Config().network
    config = dataclasses.replace(config, torso="nips", units=16, dueling=True, **network)
    made = QuantileNetwork(3, 4, config)
    return made, init_params(made, jax.random.key(0), (36, 36))


IMAGES = np.random.default_rng(1).integers(0, 256, (2, 36, 36, 4)).astype(np.uint8)


def row_keys(count, seed=1):
    return jax.vmap(lambda key: jax.random.split(key, count))(
        jax.random.split(jax.random.key(seed), len(IMAGES))
    )


def test_levels_are_drawn_for_each_quantile_and_evenly_spaced_without_keys():
    network, params = small_network()
    plain = forward(network, params, (), IMAGES)
    assert plain.value.shape == plain.level.shape == (2, 3, 4)
    np.testing.assert_allclose(plain.level[1, 2], [0.125, 0.375, 0.625, 0.875])
    drawn = forward(network, params, (), IMAGES, row_keys(6))
    assert drawn.value.shape == (2, 3, 6)
    assert (drawn.level == drawn.level[:, :1]).all()  # one draw for all actions of a row
    assert len(np.unique(drawn.level)) == 2 * 6
    assert ((drawn.level >= 0) & (drawn.level < 1)).all()


@pytest.mark.parametrize("noisy", [False, True])
def test_the_network_equals_its_equations(noisy):
    """φ multiplies the convolutions' features; noise is one weight matrix for each observation."""
    network, params = small_network(noisy=noisy)
    keys = row_keys(5)
    outputs = forward(network, params, (), IMAGES, keys)
    value, level = btr_oracle.quantiles(network.config, params, IMAGES, keys)
    np.testing.assert_allclose(outputs.level[:, 0], level, rtol=1e-6)
    np.testing.assert_allclose(outputs.value, np.swapaxes(value, 1, 2), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("soft", "passes"), [("target", [4, 5]), ("online", [4])])
def test_each_use_draws_its_own_number_of_levels(soft, passes):
    config = load(recipe_file("btr_fast"))
    numbers = {"num_quantiles": 3, "target_quantiles": 4, "acting_quantiles": 5}
    numbers["munchausen_network"] = soft
    config = config.replaced(env={"frame_height": 36, "frame_width": 36}, agent=numbers)
    setup, params = btr_oracle.setup_of(config, 2, (36, 36), 3)
    counts = []

    def call(self, x, keys=None):
        counts.append(None if keys is None else keys.shape[1])
        return plain(self, x, keys)

    plain = QuantileNetwork.__call__
    actor = ActorState(params[0], init_statistics(config.network, (36, 36)), jnp.int32(0))
    rows = jnp.zeros(2)
    data = buffer.Transitions(IMAGES, jnp.zeros(2, jnp.int32), rows, rows, IMAGES, rows == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuantileNetwork, "__call__", call)
        batch = jax.eval_shape(
            lambda key: btr_oracle.on_device(
                lambda: q_learning.make_batch(setup, actor, params[1], data, key)
            ),
            jax.random.key(0),
        )
        assert counts == passes  # of the target network, and of its log-probability
        assert (batch.target.shape, batch.keys.shape) == ((2, 4), (2, 3))
        jax.eval_shape(lambda x: q_learning.objective(setup, (), params[0], x), batch)
        row = jax.random.split(jax.random.key(0), 2)
        jax.eval_shape(lambda: q_learning.act(setup, actor, IMAGES, row))
        jax.eval_shape(lambda: q_learning.predict(setup, actor, IMAGES))
        assert counts[len(passes) :] == [3, 5, None]  # to learn, to act and to predict


def test_layers_of_bfloat16_have_quantiles_of_float32():
    network, params = small_network(noisy=True, dtype="bfloat16")
    outputs = forward(network, params, (), IMAGES, row_keys(5))
    assert outputs.value.dtype == outputs.level.dtype == jnp.float32
    exact, _ = btr_oracle.quantiles(network.config, params, IMAGES, row_keys(5))
    np.testing.assert_allclose(outputs.value, np.swapaxes(exact, 1, 2), atol=0.01)


@pytest.mark.slow
@pytest.mark.rotating(2)
def test_an_update_of_btr_fast_sets_priorities_and_keeps_the_importance():
    numbers = {"num_quantiles": 3, "target_quantiles": 4, "acting_quantiles": 5}
    state, metrics = updated("btr_fast", 4, rollout_length=4, training_intensity=2.0,
                             n_step=1, **numbers)  # fmt: skip
    assert np.isfinite(float(metrics["loss/quantile"].total[0]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.actor.params))
    power = np.asarray(state.memory.priorities.power)
    assert len(np.unique(power)) > 10
    # 0.2 at the start and at the end.
    assert float(metrics["replay/importance_exponent"][0]) == pytest.approx(0.2)


# Of the small images 8 x 7 pixels are left, which are pooled to 6 x 6.
SMALL, WHOLE = (4, (60, 56), 5, 5e-3, 0.0), (256, (84, 84), 18, 2e-3, 1e-3)


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("rows", "pixels", "actions", "tolerance", "flips"), [SMALL, WHOLE] if THOROUGH else [SMALL]
)
def test_an_update_of_btr_equals_float64(rows, pixels, actions, tolerance, flips):
    """Loss, priorities and every gradient of btr.toml's own network."""
    config = load(recipe_file("btr"))
    btr_oracle.check_update(config, rows, pixels, actions, tolerance, flips)


def test_btr_has_the_papers_number_of_parameters():
    """2.91 million with all 18 actions: Clark 2024 count the mean weights of noisy layers."""
    config = load(recipe_file("btr"))
    network = QuantileNetwork(18, 8, config.network)
    params = jax.eval_shape(lambda: init_params(network, jax.random.key(0)))
    paths = jax.tree_util.tree_leaves_with_path(params)
    sizes = {jax.tree_util.keystr(path): int(np.prod(x.shape)) for path, x in paths}
    assert sum(size for name, size in sizes.items() if "noise" not in name) == 2_908_851
    assert sum(sizes.values()) == 5_278_918
