import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.ops.returns import lambda_advantage, lambda_return, n_step_return, vtrace

pytestmark = pytest.mark.usefixtures("strict_shapes")


def maybe_jit(function, jit):
    return jax.jit(function, static_argnums=(4, 5)) if jit else function


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_episode_with_termination_and_reset(jit):
    # Row 1 terminates, row 2 is the reset, row 3 begins the next game; gamma = 0.5.
    reward = jnp.array([1.0, 2.0, 9.0, 3.0])
    discount = jnp.array([1.0, 0.0, 1.0, 1.0])
    valid = jnp.array([True, True, False, True])
    value = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0])
    target = maybe_jit(lambda *a: n_step_return(*a[:5]), jit)(
        reward, discount, valid, value, 0.5, None
    )
    # R3 = 3 + 0.5 * 50 = 28;  R2 = v2 = 30 (invalid);  R1 = 2;  R0 = 1 + 0.5 * 2 = 2
    np.testing.assert_allclose(target, [2.0, 2.0, 30.0, 28.0])


def test_truncation_bootstraps_from_the_frame_that_came_with_it():
    # Row 1 is truncated: its discount stays 1 and the reset row 2 cuts the sum behind it.
    reward = jnp.array([1.0, 2.0, 9.0, 3.0])
    valid = jnp.array([True, True, False, True])
    value = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0])
    target = n_step_return(reward, jnp.ones(4), valid, value, 0.5)
    # R3 = 28;  R1 = 2 + 0.5 * v2 = 17, not 2 + 0.5 * R3;  R0 = 1 + 0.5 * 17 = 9.5
    np.testing.assert_allclose(target, [9.5, 17.0, 30.0, 28.0])


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_lambda(jit):
    advantage = maybe_jit(lambda_advantage, jit)(
        jnp.array([1.0, 0.0]), jnp.ones(2), jnp.ones(2, bool), jnp.array([2.0, 4.0, 8.0]), 0.5, 0.5
    )
    # delta1 = 0 + 4 - 4 = 0;  delta0 = 1 + 2 - 2 = 1;  A0 = 1 + 0.5 * 0.5 * 0
    np.testing.assert_allclose(advantage, [1.0, 0.0])


def random_sequence(seed, length=30):
    random = np.random.default_rng(seed)
    reward = random.normal(size=length).astype(np.float32)
    discount = (random.random(length) > 0.2).astype(np.float32)
    value = random.normal(size=length + 1).astype(np.float32)
    return reward, discount, np.ones(length, bool), value


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_equals_rlax_where_every_row_is_valid(seed, lambda_):
    reward, discount, valid, value = random_sequence(seed)
    ours = lambda_advantage(reward, discount, valid, value, 0.9, lambda_)
    oracle = rlax.truncated_generalized_advantage_estimation(
        reward, 0.9 * discount, lambda_, jnp.asarray(value)
    )
    np.testing.assert_allclose(ours, oracle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_n_step_return_equals_rlax(seed):
    reward, discount, valid, value = random_sequence(seed)
    oracle = rlax.discounted_returns(reward, 0.9 * discount, jnp.asarray(value[1:]))
    ours = n_step_return(reward, discount, valid, value, 0.9)
    np.testing.assert_allclose(ours, oracle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_valid_rows_equal_rlax_on_each_part_between_resets(seed):
    reward, discount, valid, value = random_sequence(seed)
    cuts = [7, 19]
    valid[cuts] = False
    ours = np.asarray(lambda_advantage(reward, discount, valid, value, 0.9, 0.8))
    assert (ours[cuts] == 0).all()
    for begin, end in ((0, 7), (8, 19), (20, 30)):
        part = slice(begin, end)
        oracle = rlax.truncated_generalized_advantage_estimation(
            reward[part], 0.9 * discount[part], 0.8, jnp.asarray(value[begin : end + 1])
        )
        np.testing.assert_allclose(ours[part], oracle, rtol=1e-5, atol=1e-5)


def test_wrong_shapes_are_refused():
    with pytest.raises(AssertionError):
        n_step_return(jnp.ones(3), jnp.ones(3), jnp.ones(3, bool), jnp.ones(3), 0.9)


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_vtrace(jit):
    # Ratios 0.5 and 4, rho cut at 2 and c at 1; gamma = 0.5.
    function = jax.jit(vtrace, static_argnums=(5, 6, 7)) if jit else vtrace
    target, advantage = function(
        jnp.array([1.0, 2.0]), jnp.ones(2), jnp.ones(2, bool), jnp.array([2.0, 4.0, 8.0]),
        jnp.array([0.5, 4.0]), 0.5, 2.0, 1.0,
    )  # fmt: skip
    # v1 = 4 + 2 * (2 + 4 - 4) = 8;  v0 = 2 + 0.5 * (1 + 2 - 2) + 0.5 * 0.5 * (8 - 4) = 3.5
    np.testing.assert_allclose(target, [3.5, 8.0])
    # 0.5 * (1 + 0.5 * 8 - 2) = 1.5;  2 * (2 + 0.5 * 8 - 4) = 4
    np.testing.assert_allclose(advantage, [1.5, 4.0])


def test_hand_worked_vtrace_with_shorter_traces():
    # As above, with lambda = 0.5.
    target, advantage = vtrace(
        jnp.array([1.0, 2.0]), jnp.ones(2), jnp.ones(2, bool), jnp.array([2.0, 4.0, 8.0]),
        jnp.array([0.5, 4.0]), 0.5, 2.0, 1.0, 0.5,
    )  # fmt: skip
    # v1 = 8 as above;  v0 = 2 + 0.5 * (1 + 2 - 2) + 0.5 * 0.5 * 0.5 * (8 - 4) = 3
    np.testing.assert_allclose(target, [3.0, 8.0])
    # 0.5 * (1 + 0.5 * (4 + 8) / 2 - 2) = 1;  2 * (2 + 0.5 * 8 - 4) = 4
    np.testing.assert_allclose(advantage, [1.0, 4.0])


@pytest.mark.parametrize("lambda_", [0.8, 1.0])
@pytest.mark.parametrize("clip_rho", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_vtrace_equals_rlax_on_each_part_between_resets(seed, clip_rho, lambda_):
    reward, discount, valid, value = random_sequence(seed)
    ratio = np.exp(np.random.default_rng(seed + 100).normal(size=30)).astype(np.float32)
    cuts = [7, 19]
    valid[cuts] = False
    target, advantage = vtrace(reward, discount, valid, value, ratio, 0.9, clip_rho, 1.0, lambda_)
    np.testing.assert_array_equal(target[np.array(cuts)], value[cuts])
    assert (np.asarray(advantage)[cuts] == 0).all()
    for begin, end in ((0, 7), (8, 19), (20, 30)):
        part, after = slice(begin, end), slice(begin + 1, end + 1)
        oracle = rlax.vtrace_td_error_and_advantage(
            value[part], value[after], reward[part], 0.9 * discount[part], ratio[part],
            lambda_=lambda_, clip_rho_threshold=clip_rho, clip_pg_rho_threshold=clip_rho,
        )  # fmt: skip
        np.testing.assert_allclose(target[part] - value[part], oracle.errors, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(advantage[part], oracle.pg_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_on_policy_vtrace_is_the_lambda_return(seed, lambda_):
    reward, discount, valid, value = random_sequence(seed)
    valid[[3, 20]] = False
    ones = np.ones(30, np.float32)
    target, advantage = vtrace(reward, discount, valid, value, ones, 0.9, lambda_=lambda_)
    expected = lambda_return(reward, discount, valid, value, 0.9, lambda_)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)
    expected = lambda_advantage(reward, discount, valid, value, 0.9, lambda_)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)


def test_without_trust_vtrace_learns_nothing():
    reward, discount, valid, value = random_sequence(0)
    target, advantage = vtrace(reward, discount, valid, value, np.zeros(30, np.float32), 0.9)
    np.testing.assert_array_equal(target, value[:-1])
    np.testing.assert_array_equal(advantage, np.zeros(30))
