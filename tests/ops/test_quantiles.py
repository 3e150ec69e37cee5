import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.ops import quantiles


def test_levels_are_the_middles_of_equal_parts():
    np.testing.assert_allclose(quantiles.midpoints(4), [0.125, 0.375, 0.625, 0.875])


def test_hand_worked_loss():
    """Quantiles 0 and 2 at levels 0.25 and 0.75; targets 1 and -2."""
    delta = quantiles.differences(jnp.array([[1.0, -2.0]]), jnp.array([[0.0, 2.0]]))
    np.testing.assert_allclose(delta, [[[1, -2], [-1, -4]]])
    # Huber: ½, 1½, ½, 3½. Weights: τ above, 1 - τ below the quantile.
    expected = (0.25 * 0.5 + 0.75 * 1.5) / 2 + (0.25 * 0.5 + 0.25 * 3.5) / 2
    loss = quantiles.huber_loss(delta, quantiles.midpoints(2))
    np.testing.assert_allclose(loss, [expected])


def test_loss_equals_rlax():
    random = np.random.default_rng(0)
    target, mine = (jnp.asarray(random.normal(size=(8, n)) * 3, jnp.float32) for n in (5, 7))
    levels = jnp.asarray(random.random((8, 7)), jnp.float32)
    loss = quantiles.huber_loss(quantiles.differences(target, mine), levels)
    oracle = jax.vmap(lambda z, tau, t: rlax.quantile_regression_loss(z, tau, t, huber_param=1.0))
    np.testing.assert_allclose(loss, oracle(mine, levels, target), rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_descent_finds_the_quantiles_of_a_distribution(seed):
    """Of many samples, where the differences are small the loss is that of expectiles."""
    samples = jnp.sort(jax.random.exponential(jax.random.key(seed), (1, 400)) * 20)
    levels = quantiles.midpoints(5)
    loss = lambda z: quantiles.huber_loss(quantiles.differences(samples, z), levels)[0]  # noqa: E731
    step = jax.jit(lambda z: z - 2.0 * jax.grad(loss)(z))
    z = jnp.zeros((1, 5))
    for _ in range(2000):
        z = step(z)
    np.testing.assert_allclose(z[0], jnp.quantile(samples, levels), atol=1.0)
