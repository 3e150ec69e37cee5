import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.config.validation import check
from jaxrl.ops import gradients, optimizers
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.runtime.mesh import make_mesh, map_over_devices
from jaxrl.types import AXIS


def one_step(config, gradient, steps=1):
    optimizer = optimizers.make_optimizer(config)
    params = jnp.float32(1.0)
    state = optimizer.init(params)
    for _ in range(steps):
        params, state = optimizers.apply(
            optimizer,
            gradients=jnp.float32(gradient),
            opt_state=state,
            params=params,
            learning_rate=jnp.float32(config.learning_rate),
        )
    return float(params)


BASE = OptimizerConfig(learning_rate=0.1, decay=0.9, eps=0.04, max_grad_norm=0)


def test_rmsprop_as_a3c_writes_it_has_epsilon_inside_the_root():
    # g = 0.1 * 0.6^2 = 0.036;  1 - 0.1 * 0.6 / sqrt(0.036 + 0.04)
    assert one_step(BASE, 0.6) == pytest.approx(1 - 0.06 / np.sqrt(0.076), rel=1e-6)


def test_rmsprop_as_pytorch_has_it():
    config = OptimizerConfig(**(vars(BASE) | {"eps_inside_root": False}))
    assert one_step(config, 0.6) == pytest.approx(1 - 0.06 / (np.sqrt(0.036) + 0.04), rel=1e-6)


def test_rmsprop_as_tensorflow_starts_it():
    config = OptimizerConfig(**(vars(BASE) | {"initial_scale": 1.0}))
    # g = 0.9 * 1 + 0.1 * 0.36 = 0.936
    assert one_step(config, 0.6) == pytest.approx(1 - 0.06 / np.sqrt(0.976), rel=1e-6)


def test_adam_first_step_is_the_learning_rate():
    config = OptimizerConfig(name="adam", learning_rate=0.1, eps=1e-8, decay=0.999)
    assert one_step(config, 0.3) == pytest.approx(0.9, rel=1e-4)


def test_gradients_are_clipped_before_they_are_scaled():
    config = OptimizerConfig(**(vars(BASE) | {"max_grad_norm": 0.6}))
    assert one_step(config, 5.0) == pytest.approx(one_step(BASE, 0.6), rel=1e-6)


@pytest.mark.parametrize("updates", [10, (2**31 - 1) // 5])  # the longest run that is taken
def test_linear_schedule_ends_at_zero(updates):
    optimizer = OptimizerConfig(learning_rate=0.1, schedule="linear")
    config = Config(optimizer=optimizer, num_envs=2, total_steps=10 * updates)
    check(config)
    rate = optimizers.learning_rate(resolve(config))
    rates = [rate(jnp.int32(done)) for done in (0, updates // 2, updates)]
    np.testing.assert_allclose(rates, [0.1, 0.05, 0.0], atol=1e-8)


def test_row_weights_count_every_valid_row_of_all_devices_once():
    # Three valid rows on one device, one on the other; the mean of all four losses is 2.5.
    valid = jnp.array([[True, True, True], [True, False, False]])
    losses = jnp.array([[1.0, 2.0, 3.0], [4.0, 100.0, 100.0]])

    def per_device(valid, losses):
        return mean_over_devices(jnp.sum(gradients.row_weights(valid) * losses))

    means = jax.vmap(per_device, axis_name=AXIS)(valid, losses)
    np.testing.assert_allclose(means, [2.5, 2.5], rtol=1e-6)


def test_no_valid_row_gives_no_loss():
    weights = jax.vmap(gradients.row_weights, axis_name=AXIS)(jnp.zeros((1, 3), bool))
    np.testing.assert_array_equal(weights, np.zeros((1, 3)))


def test_mean_of_the_gradient_over_the_mesh_is_the_mean():
    # With shard_map's replication check the same line would give the sum.
    mesh = make_mesh(2)

    def program(weight, x):
        return mean_over_devices(jax.grad(lambda w: w * x[0])(weight))

    mapped = map_over_devices(
        program, mesh, (PartitionSpec(), PartitionSpec(AXIS)), PartitionSpec()
    )
    gradient = jax.jit(mapped)(jnp.float32(1.0), jnp.array([2.0, 4.0]))
    assert float(gradient) == pytest.approx(3.0)
