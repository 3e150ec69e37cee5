"""Epsilon-greedy: how value-based agents explore."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrl.config.value_based import ValueConfig
from jaxrl.ops import batches

# Mnih 2016, section 5.1: (share of the actors, their final epsilon).
SPREAD = ((0.4, 0.1), (0.3, 0.01), (0.3, 0.5))


def _final(config: ValueConfig, num_envs: int) -> jax.Array:
    """Returns the final epsilon of each environment: f32[E], in the proportions of SPREAD."""
    if not config.epsilon_spread:
        return jnp.full(num_envs, config.epsilon_end)
    place = (jnp.arange(num_envs) + 0.5) / num_envs
    shares = jnp.cumsum(jnp.array([share for share, _ in SPREAD]))[:-1]
    return jnp.array([end for _, end in SPREAD])[jnp.searchsorted(shares, place, side="right")]


def epsilon(config: ValueConfig, steps: jax.Array, num_envs: int) -> jax.Array:
    """Returns the probability of a random action after `steps` agent steps.

    ε = start + share · (end - start),  share = min(t / T, 1), or 1 - exp(-t / T) if geometric

    f32[E], of each environment of one call of `Agent.act`.
    """
    share = jnp.minimum(steps / config.epsilon_decay_steps, 1.0)
    if config.epsilon_schedule == "geometric":
        share = -jnp.expm1(-steps / config.epsilon_decay_steps)
    return config.epsilon_start + share * (_final(config, num_envs) - config.epsilon_start)


def schedule(config: ValueConfig, steps_per_update: int) -> Callable[[jax.Array, int], jax.Array]:
    """Returns `epsilon` as a function of the updates done i32[] and E: f32[E]."""
    steps = float(steps_per_update)  # 2³¹ agent steps are within reach of int32
    return lambda updates, num_envs: epsilon(config, updates * steps, num_envs)


def ladder(base: float, exponent: float, num_envs: int) -> Callable[[int], jax.Array]:
    """Returns epsilons by environment as a function of E: f32[E] (Ape-X, Horgan 2018, section 4.1).

    εᵢ = base^(1 + exponent · i / (N - 1)), with i the environment's number among the N of all
    devices; the same in all for an exponent of 0.
    """

    def epsilon(size: int) -> jax.Array:
        if exponent == 0 or num_envs == 1:  # evaluations are outside of the mesh
            return jnp.full(size, base)
        share = batches.global_indices(size) / (num_envs - 1)
        return jnp.float32(base) ** (1 + exponent * share)

    return epsilon


def epsilon_greedy(key: jax.Array, values: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Returns the best action, or any with probability ε; key[E], f32[E, A], f32[E] -> i32[E]."""
    keys = jax.vmap(jax.random.split)(key)
    explores = jax.vmap(jax.random.uniform)(keys[:, 0]) < epsilon
    draw = jax.vmap(lambda k: jax.random.randint(k, (), 0, values.shape[-1]))
    return jnp.where(explores, draw(keys[:, 1]), jnp.argmax(values, axis=-1)).astype(jnp.int32)
