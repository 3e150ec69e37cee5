"""Histograms of scalars: HL-Gauss and two-hot, by hand, by SciPy and by rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax
import scipy.stats

from jaxrl.ops import distributions, histograms

pytestmark = pytest.mark.usefixtures("strict_shapes")
EDGES = distributions.support(-1.5, 1.5, 4)  # three bins around -1, 0 and 1


def test_hand_worked_gaussian():
    """σ = 0.75, y = 0: Φ(2/3) = 0.747508 and Φ(2) = 0.977250.

    0.747508 - 0.252492 = 0.495015 in the middle and 0.977250 - 0.747508 = 0.229742 on each side,
    of 0.954500 between the edges.
    """
    shares = histograms.hl_gauss(jnp.zeros(1), EDGES, 0.75)
    np.testing.assert_allclose(shares, [[0.240694, 0.518612, 0.240694]], atol=1e-6)
    np.testing.assert_allclose(histograms.centers(EDGES), [-1, 0, 1], atol=1e-6)
    # At an edge half of the Gaussian lies beyond: Φ(4/3) = 0.908789, Φ(8/3) = 0.996170, and
    # Φ(4) = 0.999968.
    shares = histograms.hl_gauss(jnp.array([1.5]), EDGES, 0.75)
    half = 0.499968
    expected = [(0.999968 - 0.996170) / half, (0.996170 - 0.908789) / half, 0.408789 / half]
    np.testing.assert_allclose(shares, [expected], atol=3e-6)


def test_gaussian_equals_scipy():
    """The truncated normal's probabilities of the bins."""
    target = np.random.default_rng(0).uniform(-10, 10, 64).astype(np.float32)
    edges = distributions.support(-10.0, 10.0, 52)
    width = 20 / 51
    for ratio in (0.3, 0.75, 2.0):
        deviation = ratio * width
        ends = (np.array([[-10.0], [10.0]]) - target) / deviation
        below = [
            scipy.stats.truncnorm.cdf(edge, *ends, loc=target, scale=deviation)
            for edge in np.linspace(-10, 10, 52)
        ]
        shares = histograms.hl_gauss(jnp.asarray(target), edges, deviation)
        np.testing.assert_allclose(shares, np.diff(below, axis=0).T, atol=1e-5)


def test_the_mean_of_a_gaussian_is_the_target():
    """Away from the edges, where none of it is cut off; a wide one has no error of rounding."""
    target = jnp.linspace(-7.0, 7.0, 57)
    edges = distributions.support(-10.0, 10.0, 52)
    support = histograms.centers(edges)
    shares = histograms.hl_gauss(target, edges, 0.75 * 20 / 51)
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(shares @ support, target, atol=1e-4)
    np.testing.assert_allclose(histograms.mean(jnp.log(shares + 1e-30), support), target, atol=1e-4)


def test_a_narrow_gaussian_lies_in_one_bin():
    target = jnp.array([-1.2, 0.3, 0.7])
    shares = histograms.hl_gauss(target, EDGES, 0.01)
    np.testing.assert_allclose(shares, np.eye(3), atol=1e-6)


def test_targets_beyond_the_edges_are_taken_at_them():
    target = jnp.array([-1e6, -1.5, 1.5, 1e6])
    shares = histograms.hl_gauss(target, EDGES, 0.75)
    np.testing.assert_array_equal(shares[0], shares[1])
    np.testing.assert_array_equal(shares[3], shares[2])
    np.testing.assert_allclose(shares[0], shares[3, ::-1], atol=1e-6)
    # The mean of half a Gaussian is σ √(2/π) = 0.8 σ within.
    fine = distributions.support(-1.5, 1.5, 1001)
    shares = histograms.hl_gauss(jnp.array([9.0]), fine, 0.1)
    mean = shares @ histograms.centers(fine)
    np.testing.assert_allclose(mean, 1.5 - 0.1 * np.sqrt(2 / np.pi), atol=1e-4)


def test_hand_worked_two_hot():
    """A quarter of the way from 0 to 1; at an atom; beyond the last one."""
    shares = histograms.two_hot(jnp.array([0.25, -1.0, 5.0]), jnp.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(shares, [[0, 0.75, 0.25], [1, 0, 0], [0, 0, 1]], atol=1e-6)


def test_two_hot_equals_rlax():
    target = jnp.asarray(np.random.default_rng(0).normal(size=64) * 6, jnp.float32)
    shares = histograms.two_hot(target, distributions.support(-10.0, 10.0, 51))
    oracle = rlax.transform_to_2hot(target, min_value=-10.0, max_value=10.0, num_bins=51)
    np.testing.assert_allclose(shares, oracle, atol=5e-5)
    back = rlax.transform_from_2hot(shares, min_value=-10.0, max_value=10.0, num_bins=51)
    np.testing.assert_allclose(back, jnp.clip(target, -10, 10), atol=1e-4)


def test_cross_entropy_by_hand_and_by_optax():
    probabilities = np.array([[0.2, 0.3, 0.5]], np.float32)
    target = jnp.array([[0.5, 0.25, 0.25]])
    loss = histograms.cross_entropy(target, jnp.log(jnp.asarray(probabilities)))
    expected = -(0.5 * np.log(0.2) + 0.25 * np.log(0.3) + 0.25 * np.log(0.5))
    np.testing.assert_allclose(loss, [expected], rtol=1e-5)
    logits = jnp.asarray(np.random.default_rng(1).normal(size=(8, 51)), jnp.float32)
    shares = histograms.two_hot(jnp.linspace(-9, 9, 8), distributions.support(-10.0, 10.0, 51))
    oracle = optax.losses.softmax_cross_entropy(logits, shares)
    np.testing.assert_allclose(histograms.cross_entropy(shares, logits), oracle, rtol=1e-5)


@pytest.mark.parametrize("targets", [[3.0], [-4.0, 2.0]])
def test_descent_on_the_loss_finds_the_mean(targets):
    """Of one target its histogram; of two that take turns their mixture."""
    edges = distributions.support(-10.0, 10.0, 52)
    support = histograms.centers(edges)
    shares = histograms.hl_gauss(jnp.array(targets), edges, 0.75 * 20 / 51)

    def loss(logits):
        return histograms.cross_entropy(shares, jnp.broadcast_to(logits, shares.shape)).mean()

    step = jax.jit(lambda logits: logits - 3.0 * jax.grad(loss)(logits))
    logits = jnp.zeros(51)
    for _ in range(2000):
        logits = step(logits)
    np.testing.assert_allclose(histograms.mean(logits, support), np.mean(targets), atol=0.05)
