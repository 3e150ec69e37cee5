import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents.ppo.agent import explained_variance as of_a_rollout
from jaxrl.ops.moments import explained_variance, moments
from jaxrl.types import AXIS


def test_hand_worked_share_of_the_variance():
    # Returns 1 and 3 have variance 1; the errors 0 and 1 have 1/4.
    sums = moments(jnp.array([1.0, 3.0]), jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5]))
    assert float(sums["loss/value"]) == 0.5
    assert float(sums["value/target"]) == 2
    logged = explained_variance(sums | {"policy/entropy": 1.5})
    assert set(logged) == {
        *("loss/value", "value/target", "policy/entropy"),
        "value/explained_variance",
    }
    total, number = logged["value/explained_variance"]
    assert (float(total), float(number)) == (0.75, 1)


def test_a_constant_error_costs_nothing_and_equal_returns_have_no_variance_to_explain():
    target, weight = jnp.array([1.0, 3.0]), jnp.array([0.5, 0.5])
    total, number = explained_variance(moments(target, target - 7, weight))[
        "value/explained_variance"
    ]
    assert float(total / number) == 1
    same = jnp.array([4.0, 4.0])
    assert (
        float(explained_variance(moments(same, target, weight))["value/explained_variance"][1]) == 0
    )


def test_batches_are_pooled_by_their_variances():
    """NumPy's variances are the oracle; rows without weight could hold anything."""
    rng = np.random.default_rng(0)
    target, value = rng.normal(2, [[1], [5], [0.1]], (3, 64)), rng.normal(2, 1, (3, 64))
    valid = rng.random((3, 64)) < 0.8
    weight = valid / valid.sum(1, keepdims=True)
    spoiled = np.where(valid, target, 1e4)
    rows = [
        explained_variance(moments(*map(jnp.float32, row)))
        for row in zip(spoiled, value, weight, strict=True)
    ]
    total = sum(float(row["value/explained_variance"].total) for row in rows)
    number = sum(float(row["value/explained_variance"].number) for row in rows)
    errors = [np.var((t - v)[ok]) for t, v, ok in zip(target, value, valid, strict=True)]
    variances = [np.var(t[ok]) for t, ok in zip(target, valid, strict=True)]
    assert total / number == pytest.approx(1 - sum(errors) / sum(variances), rel=1e-4)


def test_it_is_that_of_ppo_for_one_batch():
    rng = np.random.default_rng(1)
    target, value = (jnp.float32(rng.normal(size=50)) for _ in range(2))
    weight = jnp.full(50, 1 / 50)
    total, number = explained_variance(moments(target, value, weight))["value/explained_variance"]
    [expected] = jax.vmap(lambda *rows: of_a_rollout(*rows), axis_name=AXIS)(
        value[None], target[None], weight[None]
    )
    assert float(total / number) == pytest.approx(float(expected), abs=1e-5)
