import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.ops import munchausen


def test_hand_worked_log_policy_and_bonus():
    """Values 0 and τ ln 3: π = 1/4, 3/4."""
    tau = 0.5
    values = jnp.array([[0.0, tau * np.log(3)]])
    np.testing.assert_allclose(
        munchausen.log_policy(values, tau), tau * np.log([[0.25, 0.75]]), rtol=1e-6
    )
    for action, clip, expected in ((1, -1.0, 0.9 * tau * np.log(0.75)), (0, -0.25, 0.9 * -0.25)):
        bonus = munchausen.bonus(values, jnp.array([action]), 0.9, tau, clip)
        np.testing.assert_allclose(bonus, [expected], rtol=1e-6)


def test_a_small_temperature_is_exact_for_large_values():
    """exp(q / τ) of 300 / 0.03 is no number; the policy is that of the best action."""
    values = jnp.array([[300.0, 299.0, -300.0]])
    scaled = munchausen.log_policy(values, 0.03)
    np.testing.assert_allclose(scaled, [[0.0, -1.0, -600.0]], atol=1e-4)
    np.testing.assert_allclose(munchausen.soft_bootstrap(values, values, 0.03), [300.0], rtol=1e-6)


def test_the_soft_bootstrap_of_values_is_their_soft_maximum():
    """Σ π (q - τ log π) = τ log Σ exp(q / τ), the value of soft Q-learning."""
    values = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    soft = munchausen.soft_bootstrap(values, values, 0.3)
    expected = 0.3 * jax.nn.logsumexp(values / 0.3, axis=-1)
    np.testing.assert_allclose(soft, expected, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.03, 1.0])
def test_each_quantile_is_averaged_over_the_actions(temperature):
    random = np.random.default_rng(0)
    outputs = jnp.asarray(random.normal(size=(5, 3, 8)), jnp.float32)
    values = outputs.mean(axis=-1)
    soft = munchausen.soft_bootstrap(outputs, values, temperature)
    policy = np.asarray(jax.nn.softmax(values / temperature), np.float64)
    for row in range(5):
        log = temperature * np.log(np.maximum(policy[row], 1e-300))
        expected = (policy[row][:, None] * (np.asarray(outputs)[row] - log[:, None])).sum(axis=0)
        np.testing.assert_allclose(soft[row], expected, rtol=1e-4, atol=1e-5)
