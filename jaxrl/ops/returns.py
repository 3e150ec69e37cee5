"""Returns and advantages of time-major batches [T, E], under the one masking rule of resets.

`valid_t` is False where the answer to `action_t` was an auto-reset, `discount_t` is 0 where it was
a termination. An invalid row has no advantage and cuts the sum; the row before it bootstraps from
the true last frame. Every environment is a sequence for itself.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Trajectory


def rows(trajectory: Trajectory) -> dict[str, jax.Array]:
    """Returns the arguments [T, E] that every function here takes of a trajectory."""
    reward, discount, valid = trajectory.reward, trajectory.discount, trajectory.valid
    return {"reward_t": reward, "discount_t": discount, "valid_t": valid}


def lambda_advantage(
    *,
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
    lambda_: float,
) -> jax.Array:
    """Returns the advantages of the λ-return (GAE, Schulman 2016, eq. 16).

    Aₜ = validₜ · (δₜ + γ · discountₜ · λ · Aₜ₊₁),  δₜ = rₜ + γ · discountₜ · vₜ₊₁ - vₜ,  A_T = 0

    Args:
      reward_t: f32[T, E], answer to action t.
      discount_t: f32[T, E], 0 on termination, else 1.
      valid_t: b[T, E], False on auto-reset rows.
      value: f32[T+1, E], v_0 .. v_T.
      gamma: discount per step.
      lambda_: 1 gives n-step returns, 0 one-step temporal differences.

    Returns:
      f32[T, E]; 0 on invalid rows.
    """
    chex.assert_rank([reward_t, discount_t, valid_t, value], 2)
    chex.assert_equal_shape([reward_t, discount_t, valid_t, value[1:]])
    continuation_t = gamma * discount_t
    delta_t = reward_t + continuation_t * value[1:] - value[:-1]
    return _sum_backwards(delta_t, continuation_t * lambda_, valid_t)


def lambda_return(
    *,
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
    lambda_: float,
) -> jax.Array:
    """Returns λ-returns (Sutton & Barto 2018, eq. 12.2): advantages plus values.

    Rₜ = rₜ + γ · discountₜ · ((1 - λ) · vₜ₊₁ + λ · Rₜ₊₁),  R_T = v_T;  vₜ where row t is invalid,
    and vₜ₊₁ in place of Rₜ₊₁ before such a row

    Args and shapes as `lambda_advantage`. Returns f32[T, E].
    """
    advantage = lambda_advantage(
        reward_t=reward_t,
        discount_t=discount_t,
        valid_t=valid_t,
        value=value,
        gamma=gamma,
        lambda_=lambda_,
    )
    return value[:-1] + advantage


def n_step_return(
    *,
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
) -> jax.Array:
    """Returns n-step returns, bootstrapped from the last value (A3C, Mnih 2016, section 4).

    Rₜ = rₜ + γ · discountₜ · Rₜ₊₁,  R_T = v_T;  vₜ where row t is invalid

    Args and shapes as `lambda_advantage`. Returns f32[T, E].
    """
    return lambda_return(
        reward_t=reward_t,
        discount_t=discount_t,
        valid_t=valid_t,
        value=value,
        gamma=gamma,
        lambda_=1.0,
    )


def truncated_n_step_return(
    *,
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
    n_step: int,
) -> jax.Array:
    """Returns n-step returns from every step of a sequence, which are shorter at its end.

    R⁰ₜ = vₜ,  Rᵏₜ = rₜ + γ · discountₜ · Rᵏ⁻¹ₜ₊₁,  Rᵏ_T = v_T;  vₜ where row t is invalid

    So with m ≤ n the rows from t on that are valid and inside, Rⁿₜ is the m-step return.

    Args and shapes as `lambda_advantage`, and n_step is n. Returns f32[T, E].
    """
    chex.assert_rank([reward_t, discount_t, valid_t, value], 2)
    chex.assert_equal_shape([reward_t, discount_t, valid_t, value[1:]])

    def longer(_: int, returns: jax.Array) -> jax.Array:
        extended = reward_t + gamma * discount_t * returns[1:]
        return returns.at[:-1].set(jnp.where(valid_t, extended, value[:-1]))

    return jax.lax.fori_loop(0, n_step, longer, value)[:-1]


class VTrace(NamedTuple):
    """Targets and advantages of off-policy sequences."""

    target: jax.Array  # f32[T, E], vₜ, for the values
    advantage: jax.Array  # f32[T, E], for the policy gradient; 0 on invalid rows


def vtrace(
    *,
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    ratio_t: jax.Array,
    gamma: float,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    lambda_: float = 1.0,
    time_axis: int = 0,
) -> VTrace:
    """Returns V-trace targets and advantages (Espeholt 2018, eq. 1, remark 2, section 4.2).

    With ρₜ = min(ρ̄, π(aₜ|sₜ) / μ(aₜ|sₜ)) and cₜ = λ · min(c̄, the same ratio):

    vₜ - Vₜ = validₜ · (ρₜ δₜ + γ · discountₜ · cₜ · (vₜ₊₁ - Vₜ₊₁)),  v_T = V_T,
    δₜ = rₜ + γ · discountₜ · Vₜ₊₁ - Vₜ,
    advantageₜ = validₜ · ρₜ · (rₜ + γ · discountₜ · ((1 - λ) · Vₜ₊₁ + λ · vₜ₊₁) - Vₜ)

    On-policy the target is the λ-return, and the advantage is its difference to the value.

    Args:
      reward_t, discount_t, valid_t, gamma: as `lambda_advantage`.
      value: f32[T+1, E], V_0 .. V_T by the network that learns.
      ratio_t: f32[T, E], of the policy that learns to the one that acted.
      clip_rho: ρ̄; decides which values are the fixed point.
      clip_c: c̄; decides how fast the values converge.
      lambda_: λ; less than 1 trusts the values more and the rewards far ahead less.
      time_axis: 0; 1 for arrays with environments first, [E, T], arguments and results.
    """
    value_t = jax.lax.slice_in_dim(value, 0, -1, axis=time_axis)
    value_tp1 = jax.lax.slice_in_dim(value, 1, None, axis=time_axis)
    chex.assert_rank([reward_t, discount_t, valid_t, value, ratio_t], 2)
    chex.assert_equal_shape([reward_t, discount_t, valid_t, ratio_t, value_tp1])
    continuation_t = gamma * discount_t
    rho_t = jnp.minimum(clip_rho, ratio_t)
    delta_t = rho_t * (reward_t + continuation_t * value_tp1 - value_t)
    trace_t = continuation_t * lambda_ * jnp.minimum(clip_c, ratio_t)
    sequences = (jnp.swapaxes(x, 0, time_axis) for x in (delta_t, trace_t, valid_t))
    error_t = jnp.swapaxes(_sum_backwards(*sequences), 0, time_axis)
    later = jax.lax.slice_in_dim(error_t, 1, None, axis=time_axis)
    last = jnp.zeros_like(jax.lax.slice_in_dim(error_t, 0, 1, axis=time_axis))
    bootstrap_t = value_tp1 + lambda_ * jnp.concatenate([later, last], axis=time_axis)
    advantage = rho_t * (reward_t + continuation_t * bootstrap_t - value_t)
    return VTrace(value_t + error_t, jnp.where(valid_t, advantage, 0.0))


def _sum_backwards(delta_t: jax.Array, trace_t: jax.Array, valid_t: jax.Array) -> jax.Array:
    """Returns xₜ = validₜ · (δₜ + traceₜ · xₜ₊₁) with x_T = 0; [T, E] all."""

    def step(
        x_tp1: jax.Array, row: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta, trace, valid = row
        x = jnp.where(valid, delta + trace * x_tp1, 0.0)
        return x, x

    rows = (delta_t, trace_t, valid_t)
    return jax.lax.scan(step, jnp.zeros_like(delta_t[0]), rows, reverse=True)[1]
