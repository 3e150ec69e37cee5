from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.ops.returns import (
    lambda_advantage,
    lambda_return,
    n_step_return,
    truncated_n_step_return,
    vtrace,
)

pytestmark = pytest.mark.usefixtures("strict_shapes")


def sequences(*rows):
    """Time-major [T, E] of sequences [T], one for each environment."""
    return jnp.stack([jnp.asarray(row) for row in rows], axis=1)


def maybe_jit(function, jit):
    return jax.jit(function, static_argnames=("gamma", "lambda_")) if jit else function


def rows(reward, discount, valid, value):
    """The arrays that every function takes."""
    return {"reward_t": reward, "discount_t": discount, "valid_t": valid, "value": value}


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_episode_with_termination_and_reset(jit):
    # Row 1 terminates, row 2 is the reset, row 3 begins the next game; gamma = 0.5.
    reward = sequences([1.0, 2.0, 9.0, 3.0])
    discount = sequences([1.0, 0.0, 1.0, 1.0])
    valid = sequences([True, True, False, True])
    value = sequences([10.0, 20.0, 30.0, 40.0, 50.0])
    function = jax.jit(n_step_return, static_argnames="gamma") if jit else n_step_return
    target = function(**rows(reward, discount, valid, value), gamma=0.5)
    # R3 = 3 + 0.5 * 50 = 28;  R2 = v2 = 30 (invalid);  R1 = 2;  R0 = 1 + 0.5 * 2 = 2
    np.testing.assert_allclose(target[:, 0], [2.0, 2.0, 30.0, 28.0])


def test_hand_worked_returns_that_shorten_at_the_end():
    reward = sequences([1.0, 2.0, 4.0, 8.0])
    value = sequences([10.0, 20.0, 30.0, 40.0, 50.0])
    ones = jnp.ones((4, 1))
    target = truncated_n_step_return(**rows(reward, ones, ones > 0, value), gamma=0.5, n_step=2)
    # Two rewards each, 1 + 0.5 * 2 + 0.25 * 30; of row 3 one, 8 + 0.5 * 50
    np.testing.assert_allclose(target[:, 0], [9.5, 14.0, 20.5, 33.0])
    # Row 1 ends the game, row 2 is the reset: R0 = 1 + 0.5 * 2, R1 = 2, R2 = v2
    discount, valid = ones.at[1].set(0), (ones > 0).at[2].set(False)
    ended = truncated_n_step_return(**rows(reward, discount, valid, value), gamma=0.5, n_step=3)
    np.testing.assert_allclose(ended[:, 0], [2.0, 2.0, 30.0, 33.0])
    # Truncated: R1 = 2 + 0.5 * v2, R0 = 1 + 0.5 * 17
    cut = truncated_n_step_return(**rows(reward, ones, valid, value), gamma=0.5, n_step=3)
    np.testing.assert_allclose(cut[:, 0], [9.5, 17.0, 30.0, 33.0])


def test_truncation_bootstraps_from_the_frame_that_came_with_it():
    # Row 1 is truncated: its discount stays 1 and the reset row 2 cuts the sum behind it.
    reward = sequences([1.0, 2.0, 9.0, 3.0])
    valid = sequences([True, True, False, True])
    value = sequences([10.0, 20.0, 30.0, 40.0, 50.0])
    target = n_step_return(**rows(reward, jnp.ones((4, 1)), valid, value), gamma=0.5)
    # R3 = 28;  R1 = 2 + 0.5 * v2 = 17, not 2 + 0.5 * R3;  R0 = 1 + 0.5 * 17 = 9.5
    np.testing.assert_allclose(target[:, 0], [9.5, 17.0, 30.0, 28.0])


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_lambda(jit):
    reward, value = sequences([1.0, 0.0], [0.0, 1.0]), sequences([2.0, 4.0, 8.0], [2.0, 2.0, 2.0])
    ones = jnp.ones((2, 2))
    advantage = maybe_jit(lambda_advantage, jit)(
        **rows(reward, ones, ones > 0, value), gamma=0.5, lambda_=0.5
    )
    # delta1 = 0 + 4 - 4 = 0;  delta0 = 1 + 2 - 2 = 1;  A0 = 1 + 0.5 * 0.5 * 0
    # Of the other environment: delta1 = 1 + 1 - 2 = 0;  delta0 = 0 + 1 - 2 = -1
    np.testing.assert_allclose(advantage, [[1.0, -1.0], [0.0, 0.0]])


ENVS = 3


def random_sequences(seed, length=30):
    random = np.random.default_rng(seed)
    reward = random.normal(size=(length, ENVS)).astype(np.float32)
    discount = (random.random((length, ENVS)) > 0.2).astype(np.float32)
    value = random.normal(size=(length + 1, ENVS)).astype(np.float32)
    return reward, discount, np.ones((length, ENVS), bool), value


def each_environment(function, *batches):
    """Time-major results [T, E] of an oracle for one sequence [T]."""
    return jax.vmap(function, in_axes=1, out_axes=1)(*map(jnp.asarray, batches))


def gae_oracle(reward, discount, value, lambda_):
    """rlax's advantages with gamma = 0.9; [T, E]."""

    def one(reward, discount, value):
        return rlax.truncated_generalized_advantage_estimation(
            reward, 0.9 * discount, lambda_, value
        )

    return each_environment(one, reward, discount, value)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_equals_rlax_where_every_row_is_valid(seed, lambda_):
    reward, discount, valid, value = random_sequences(seed)
    ours = lambda_advantage(**rows(reward, discount, valid, value), gamma=0.9, lambda_=lambda_)
    oracle = gae_oracle(reward, discount, value, lambda_)
    np.testing.assert_allclose(ours, oracle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_n_step_return_equals_rlax(seed):
    reward, discount, valid, value = random_sequences(seed)
    oracle = each_environment(rlax.discounted_returns, reward, 0.9 * discount, value[1:])
    ours = n_step_return(**rows(reward, discount, valid, value), gamma=0.9)
    np.testing.assert_allclose(ours, oracle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_valid_rows_equal_rlax_on_each_part_between_resets(seed):
    reward, discount, valid, value = random_sequences(seed)
    cuts = [7, 19]
    valid[cuts] = False
    arrays = rows(reward, discount, valid, value)
    ours = np.asarray(lambda_advantage(**arrays, gamma=0.9, lambda_=0.8))
    assert (ours[cuts] == 0).all()
    for begin, end in ((0, 7), (8, 19), (20, 30)):
        part = slice(begin, end)
        oracle = gae_oracle(reward[part], discount[part], value[begin : end + 1], 0.8)
        np.testing.assert_allclose(ours[part], oracle, rtol=1e-5, atol=1e-5)


def test_a_reset_cuts_only_its_own_environment():
    reward, discount, valid, value = random_sequences(0)
    valid[7, 0] = False
    arrays = rows(reward, discount, valid, value)
    together = lambda_advantage(**arrays, gamma=0.9, lambda_=0.8)
    for env in range(ENVS):
        alone = slice(env, env + 1)
        part = {name: array[:, alone] for name, array in arrays.items()}
        single = lambda_advantage(**part, gamma=0.9, lambda_=0.8)
        np.testing.assert_allclose(together[:, alone], single, rtol=1e-5, atol=1e-6)


def test_wrong_shapes_are_refused():
    short, flat = jnp.ones((3, 1)), jnp.ones(3)
    with pytest.raises(AssertionError):
        n_step_return(**rows(short, short, short > 0, short), gamma=0.9)
    with pytest.raises(AssertionError):
        n_step_return(**rows(flat, flat, flat > 0, jnp.ones(4)), gamma=0.9)


def off_policy():
    """Two rows of one environment, of another policy."""
    ones = jnp.ones((2, 1))
    arrays = rows(sequences([1.0, 2.0]), ones, ones > 0, sequences([2.0, 4.0, 8.0]))
    return arrays | {"ratio_t": sequences([0.5, 4.0])}


@pytest.mark.parametrize("jit", [False, True])
def test_hand_worked_vtrace(jit):
    # Ratios 0.5 and 4, rho cut at 2 and c at 1; gamma = 0.5.
    function = jax.jit(vtrace, static_argnames=("gamma", "clip_rho", "clip_c")) if jit else vtrace
    target, advantage = function(**off_policy(), gamma=0.5, clip_rho=2.0, clip_c=1.0)
    # v1 = 4 + 2 * (2 + 4 - 4) = 8;  v0 = 2 + 0.5 * (1 + 2 - 2) + 0.5 * 0.5 * (8 - 4) = 3.5
    np.testing.assert_allclose(target[:, 0], [3.5, 8.0])
    # 0.5 * (1 + 0.5 * 8 - 2) = 1.5;  2 * (2 + 0.5 * 8 - 4) = 4
    np.testing.assert_allclose(advantage[:, 0], [1.5, 4.0])


def test_hand_worked_vtrace_with_shorter_traces():
    # As above, with lambda = 0.5.
    target, advantage = vtrace(**off_policy(), gamma=0.5, clip_rho=2.0, clip_c=1.0, lambda_=0.5)
    # v1 = 8 as above;  v0 = 2 + 0.5 * (1 + 2 - 2) + 0.5 * 0.5 * 0.5 * (8 - 4) = 3
    np.testing.assert_allclose(target[:, 0], [3.0, 8.0])
    # 0.5 * (1 + 0.5 * (4 + 8) / 2 - 2) = 1;  2 * (2 + 0.5 * 8 - 4) = 4
    np.testing.assert_allclose(advantage[:, 0], [1.0, 4.0])


@pytest.mark.parametrize("lambda_", [0.8, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "clip_rho", [0.7, *(pytest.param(c, marks=pytest.mark.slow) for c in (1.0, 3.0))]
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_vtrace_equals_rlax_on_each_part_between_resets(seed, clip_rho, lambda_):
    reward, discount, valid, value = random_sequences(seed)
    normal = np.random.default_rng(seed + 100).normal(size=(30, ENVS))
    ratio = np.exp(normal).astype(np.float32)
    cuts = [7, 19]
    valid[cuts] = False
    target, advantage = vtrace(
        **rows(reward, discount, valid, value), ratio_t=ratio, gamma=0.9,
        clip_rho=clip_rho, clip_c=1.0, lambda_=lambda_,
    )  # fmt: skip
    np.testing.assert_array_equal(target[np.array(cuts)], value[cuts])
    assert (np.asarray(advantage)[cuts] == 0).all()
    for begin, end in ((0, 7), (8, 19), (20, 30)):
        part, after = slice(begin, end), slice(begin + 1, end + 1)
        oracle = each_environment(
            partial(
                rlax.vtrace_td_error_and_advantage, lambda_=lambda_,
                clip_rho_threshold=clip_rho, clip_pg_rho_threshold=clip_rho,
            ),
            value[part], value[after], reward[part], 0.9 * discount[part], ratio[part],
        )  # fmt: skip
        np.testing.assert_allclose(target[part] - value[part], oracle.errors, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(advantage[part], oracle.pg_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_on_policy_vtrace_is_the_lambda_return(seed, lambda_):
    reward, discount, valid, value = random_sequences(seed)
    valid[[3, 20]] = False
    ones = np.ones((30, ENVS), np.float32)
    arrays = rows(reward, discount, valid, value)
    target, advantage = vtrace(**arrays, ratio_t=ones, gamma=0.9, lambda_=lambda_)
    expected = lambda_return(**arrays, gamma=0.9, lambda_=lambda_)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)
    expected = lambda_advantage(**arrays, gamma=0.9, lambda_=lambda_)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)


def test_vtrace_with_environments_first_is_the_same():
    reward, discount, valid, value = random_sequences(0)
    valid[7, 0] = False
    ratio = np.exp(np.random.default_rng(1).normal(size=(30, ENVS))).astype(np.float32)
    arrays = rows(reward, discount, valid, value) | {"ratio_t": ratio}
    time_first = vtrace(**arrays, gamma=0.9, lambda_=0.8)
    turned = {name: np.swapaxes(array, 0, 1) for name, array in arrays.items()}
    envs_first = vtrace(**turned, gamma=0.9, lambda_=0.8, time_axis=1)
    np.testing.assert_allclose(envs_first.target.T, time_first.target, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(envs_first.advantage.T, time_first.advantage, rtol=1e-5, atol=1e-6)


def test_without_trust_vtrace_learns_nothing():
    reward, discount, valid, value = random_sequences(0)
    zeros = np.zeros((30, ENVS), np.float32)
    target, advantage = vtrace(**rows(reward, discount, valid, value), ratio_t=zeros, gamma=0.9)
    np.testing.assert_array_equal(target, value[:-1])
    np.testing.assert_array_equal(advantage, np.zeros((30, ENVS)))
