import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.ops import distributions

pytestmark = pytest.mark.usefixtures("strict_shapes")


def test_hand_worked_entropy_and_log_probability():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
    # H = 0.5 ln 2 + 2 * 0.25 ln 4 = 1.5 ln 2
    np.testing.assert_allclose(distributions.entropy(logits), [1.5 * np.log(2)], rtol=1e-6)
    log_policy = distributions.log_probabilities(logits)
    chosen = distributions.select(log_policy, jnp.array([1]))
    np.testing.assert_allclose(chosen, [np.log(0.25)], rtol=1e-6)


def test_epsilon_bounds_the_logarithm():
    logits = jnp.array([[0.0, -1000.0]])
    # GA3C: log(pi + eps) with pi = (1, 0)
    expected = np.log(np.array([[1 + 1e-6, 1e-6]]))
    np.testing.assert_allclose(
        distributions.log_probabilities(logits, 1e-6), expected, rtol=1e-5, atol=1e-6
    )
    gradient = jax.grad(lambda x: distributions.log_probabilities(x, 1e-6)[0, 1])(logits)
    assert np.isfinite(np.asarray(gradient)).all()


def test_entropy_equals_rlax():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(8, 6)), jnp.float32)
    oracle = rlax.softmax().entropy(logits)
    np.testing.assert_allclose(distributions.entropy(logits), oracle, rtol=1e-5)


def test_samples_follow_the_policy_and_each_row_its_own_key():
    policy = np.array([0.6, 0.3, 0.1])
    keys = jax.random.split(jax.random.key(0), 20_000)
    logits = jnp.tile(jnp.log(policy)[None], (20_000, 1))
    actions = np.asarray(distributions.sample(keys, logits))
    assert actions.dtype == np.int32
    np.testing.assert_allclose(np.bincount(actions) / 20_000, policy, atol=0.015)
    # A row's action does not depend on the rows beside it.
    np.testing.assert_array_equal(distributions.sample(keys[7:9], logits[7:9]), actions[7:9])
