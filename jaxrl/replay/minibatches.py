"""Epochs of minibatches from one rollout, for PPO and PQN.

Each epoch permutes the steps of every environment, and a minibatch takes the same number of
steps from each. Therefore minibatches, and all results, do not depend on the number of devices.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxrl.config.algorithm_base import EpochsConfig
from jaxrl.ops import batches
from jaxrl.ops.gradients import row_weights

Batch = TypeVar("Batch", bound=Any)  # a NamedTuple with `observation` and `weight`


def order(key: jax.Array, config: EpochsConfig, num_envs: int) -> jax.Array:
    """Returns the steps of each environment in every minibatch: i32[epochs · M, T / M, E].

    Each epoch is a permutation of every environment's steps, with a separate key.
    """

    def epoch(key: jax.Array) -> jax.Array:
        keys = batches.keys_per_index(key, num_envs)
        steps = jax.vmap(lambda k: jax.random.permutation(k, config.rollout_length))(keys)
        return steps.T.reshape(config.num_minibatches, -1, num_envs)

    orders = jax.vmap(epoch)(jax.random.split(key, config.epochs))
    return orders.reshape(-1, *orders.shape[2:])


def order_of_sequences(key: jax.Array, config: EpochsConfig, num_envs: int) -> jax.Array:
    """Returns the environments of every minibatch, with all their steps: i32[epochs · M, E / M].

    Each epoch deals every M neighboring environments to the M minibatches, one to each, so that
    the number of devices changes no minibatch.
    """
    count = config.num_minibatches

    def epoch(key: jax.Array) -> jax.Array:
        keys = batches.keys_per_index(key, num_envs // count)
        dealt = jax.vmap(lambda k: jax.random.permutation(k, count))(keys)
        return (dealt + count * jnp.arange(num_envs // count)[:, None]).T

    orders = jax.vmap(epoch)(jax.random.split(key, config.epochs))
    return orders.reshape(-1, orders.shape[2])


def take_sequences(rollout: Batch, envs: jax.Array) -> Batch:
    """Takes the minibatch of all steps of environments i32[B] from a rollout: [T, E] -> [B, T].

    Weights are as in `take`.
    """
    batch = jax.tree.map(lambda x: jnp.swapaxes(x[:, envs], 0, 1), rollout)
    return batch._replace(weight=row_weights(batch.weight > 0))


def take(rollout: Batch, steps: jax.Array) -> Batch:
    """Takes the minibatch of steps i32[T / M, E] from a rollout: [T, E] -> [B].

    A row counts where its weight in the rollout is above 0; `row_weights` gives its weight.
    """

    def pick(x: jax.Array) -> jax.Array:
        return x[steps, jnp.arange(steps.shape[1])]

    # Four bytes of a pixel's stack travel as one word.
    as_words = rollout.observation.shape[-1] == 4
    if as_words:
        words = jax.lax.bitcast_convert_type(rollout.observation, jnp.uint32)
        rollout = rollout._replace(observation=words)
    batch = batches.flatten(jax.tree.map(pick, rollout))
    stacks = batch.observation
    return batch._replace(
        observation=jax.lax.bitcast_convert_type(stacks, jnp.uint8) if as_words else stacks,
        weight=row_weights(batch.weight > 0),
    )
