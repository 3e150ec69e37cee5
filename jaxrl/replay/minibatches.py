"""Epochs of minibatches from one rollout: what PPO and PQN share.

Each epoch permutes the steps of every environment, and a minibatch takes as many steps of each:
so minibatches, and with them all results, do not depend on the number of devices.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxrl.config.algorithms import PPOConfig, PQNConfig
from jaxrl.ops.gradients import row_weights
from jaxrl.types import AXIS

Rows = TypeVar("Rows", bound=Any)  # a NamedTuple with `observation` and `weight`


def order(key: jax.Array, config: PPOConfig | PQNConfig, num_envs: int) -> jax.Array:
    """Which steps of each environment the minibatches take: i32[epochs * M, T / M, E].

    Each epoch is a permutation of every environment's steps, with a key of its own.
    """
    env_ids = jax.lax.axis_index(AXIS) * num_envs + jnp.arange(num_envs)

    def epoch(key: jax.Array) -> jax.Array:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, env_ids)
        steps = jax.vmap(lambda k: jax.random.permutation(k, config.rollout_length))(keys)
        return steps.T.reshape(config.num_minibatches, -1, num_envs)

    orders = jax.vmap(epoch)(jax.random.split(key, config.epochs))
    return orders.reshape(-1, *orders.shape[2:])


def take(rollout: Rows, steps: jax.Array) -> Rows:
    """The minibatch of steps i32[T / M, E] of each environment: [T, E] -> [B].

    A row counts where its weight in the rollout is above 0; then it weighs as `row_weights` says.
    """
    # Four bytes of a pixel's stack travel as one word.
    words = jax.lax.bitcast_convert_type(rollout.observation, jnp.uint32)

    def pick(x: jax.Array) -> jax.Array:
        x = x[steps, jnp.arange(steps.shape[1])]
        return x.reshape(-1, *x.shape[2:])

    rows = jax.tree.map(pick, rollout._replace(observation=words))
    return rows._replace(
        observation=jax.lax.bitcast_convert_type(rows.observation, jnp.uint8),
        weight=row_weights(rows.weight > 0),
    )
