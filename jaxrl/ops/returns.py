"""Returns and advantages of one sequence [T], under the one masking rule of EnvPool's resets.

`valid_t` is False where the answer to `action_t` was an auto-reset, `discount_t` is 0 where it was
a termination. An invalid row has no advantage and cuts the sum; the row before it bootstraps from
the true last frame. Callers vmap over environments.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


def lambda_advantage(
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
    lambda_: float,
) -> jax.Array:
    """Advantages by the lambda-return (GAE, Schulman 2016, eq. 16).

    Aₜ = validₜ · (δₜ + γ · discountₜ · λ · Aₜ₊₁),  δₜ = rₜ + γ · discountₜ · vₜ₊₁ - vₜ,  A_T = 0

    Args:
      reward_t: f32[T], answer to action t.
      discount_t: f32[T], 0 on termination, else 1.
      valid_t: b[T], False on auto-reset rows.
      value: f32[T+1], v_0 .. v_T.
      gamma: discount per step.
      lambda_: 1 gives n-step returns, 0 one-step temporal differences.

    Returns:
      f32[T]; 0 on invalid rows.
    """
    chex.assert_rank([reward_t, discount_t, valid_t, value], 1)
    chex.assert_equal_shape([reward_t, discount_t, valid_t, value[1:]])
    continuation_t = gamma * discount_t
    delta_t = reward_t + continuation_t * value[1:] - value[:-1]

    def step(
        advantage_tp1: jax.Array, row: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta, continuation, valid = row
        advantage = jnp.where(valid, delta + continuation * lambda_ * advantage_tp1, 0.0)
        return advantage, advantage

    rows = (delta_t, continuation_t, valid_t)
    return jax.lax.scan(step, jnp.zeros_like(value[0]), rows, reverse=True)[1]


def lambda_return(
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    gamma: float,
    lambda_: float,
) -> jax.Array:
    """λ-returns (Sutton & Barto 2018, eq. 12.2): the advantages on top of their values.

    Rₜ = rₜ + γ · discountₜ · ((1 - λ) · vₜ₊₁ + λ · Rₜ₊₁),  R_T = v_T;  vₜ where row t is invalid,
    and vₜ₊₁ in place of Rₜ₊₁ before such a row

    Args and shapes as `lambda_advantage`. Returns f32[T].
    """
    advantage = lambda_advantage(reward_t, discount_t, valid_t, value, gamma, lambda_)
    return value[:-1] + advantage


def n_step_return(
    reward_t: jax.Array, discount_t: jax.Array, valid_t: jax.Array, value: jax.Array, gamma: float
) -> jax.Array:
    """n-step returns, bootstrapped from the last value (A3C, Mnih 2016, section 4).

    Rₜ = rₜ + γ · discountₜ · Rₜ₊₁,  R_T = v_T;  vₜ where row t is invalid

    Args and shapes as `lambda_advantage`. Returns f32[T].
    """
    return lambda_return(reward_t, discount_t, valid_t, value, gamma, 1.0)


class VTrace(NamedTuple):
    """What an off-policy sequence teaches."""

    target: jax.Array  # f32[T], vₛ, for the values
    advantage: jax.Array  # f32[T], for the policy gradient; 0 on invalid rows


def vtrace(
    reward_t: jax.Array,
    discount_t: jax.Array,
    valid_t: jax.Array,
    value: jax.Array,
    ratio_t: jax.Array,
    gamma: float,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """V-trace targets and advantages (IMPALA, Espeholt 2018, eq. 1, remark 2 and section 4.2).

    With ρₜ = min(ρ̄, π(aₜ|sₜ) / μ(aₜ|sₜ)) and cₜ = λ · min(c̄, the same ratio):

    vₜ - Vₜ = validₜ · (ρₜ δₜ + γ · discountₜ · cₜ · (vₜ₊₁ - Vₜ₊₁)),  v_T = V_T,
    δₜ = rₜ + γ · discountₜ · Vₜ₊₁ - Vₜ,
    advantageₜ = validₜ · ρₜ · (rₜ + γ · discountₜ · ((1 - λ) · Vₜ₊₁ + λ · vₜ₊₁) - Vₜ)

    On-policy the target is the λ-return, and the advantage its difference to the value.

    Args:
      reward_t, discount_t, valid_t, gamma: as `lambda_advantage`.
      value: f32[T+1], V_0 .. V_T by the network that learns.
      ratio_t: f32[T], of the policy that learns to the one that acted.
      clip_rho: ρ̄; decides what the values converge to.
      clip_c: c̄; decides how fast.
      lambda_: λ; less than 1 trusts the values more and the rewards far ahead less.
    """
    chex.assert_rank([reward_t, discount_t, valid_t, value, ratio_t], 1)
    chex.assert_equal_shape([reward_t, discount_t, valid_t, ratio_t, value[1:]])
    continuation_t = gamma * discount_t
    rho_t = jnp.minimum(clip_rho, ratio_t)
    delta_t = rho_t * (reward_t + continuation_t * value[1:] - value[:-1])

    def step(
        error_tp1: jax.Array, row: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta, trace, valid = row
        error = jnp.where(valid, delta + trace * error_tp1, 0.0)
        return error, error

    rows = (delta_t, continuation_t * lambda_ * jnp.minimum(clip_c, ratio_t), valid_t)
    error_t = jax.lax.scan(step, jnp.zeros_like(value[0]), rows, reverse=True)[1]
    target = value[:-1] + error_t
    bootstrap_t = value[1:] + lambda_ * jnp.append(error_t[1:], 0.0)
    advantage = rho_t * (reward_t + continuation_t * bootstrap_t - value[:-1])
    return VTrace(target, jnp.where(valid_t, advantage, 0.0))
