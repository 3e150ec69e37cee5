"""The recurrent core between a torso and its heads: an LSTM or a GRU, unrolled over sequences.

With xₜ the torso's features, the last action and the last reward, and hₜ = 0 before a game's start,

    LSTM   i, f, g, o = W xₜ + U hₜ₋₁ + b,  cₜ = σ(f)·cₜ₋₁ + σ(i)·tanh(g),  hₜ = σ(o)·tanh(cₜ)
    GRU    r, z = σ(W xₜ + U hₜ₋₁ + b),  n = tanh(W' xₜ + b' + r·(U' hₜ₋₁ + b'')),
           hₜ = (1 - z)·n + z·hₜ₋₁

(Hochreiter & Schmidhuber 1997; Cho 2014). The inputs' products of all steps are one matrix product;
only those of the state are in the loop. An LSTM's state is cₜ, then hₜ.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config.network import NetworkConfig
from jaxrl.networks.layers import uniform_fan_in
from jaxrl.types import Core, RecurrentObservation

GATES = {"lstm": 4, "gru": 3}


def core_of(config: NetworkConfig) -> Core | None:
    """Returns the state that acting carries from step to step; None without a core."""
    if not config.remembers:
        return None
    return Core(config.core_size, config.core_resets == "life")


def first_observation(stack: jax.Array, core: Core | None) -> jax.Array | RecurrentObservation:
    """Returns the observation of stacks u8[E, 84, 84, 4] with which games begin."""
    if core is None:
        return stack
    num_envs = stack.shape[0]
    return RecurrentObservation(
        stack=stack,
        core=jnp.zeros((num_envs, core.size)),
        last_action=jnp.full(num_envs, -1, jnp.int32),
        last_reward=jnp.zeros(num_envs),
        fresh=jnp.ones(num_envs, bool),
    )


def lstm_step(state: jax.Array, gates: jax.Array) -> jax.Array:
    """Returns the next state f32[B, 2U] from the state and the gates f32[B, 4U]."""
    cell = jnp.split(state, 2, axis=-1)[0]
    write, keep, new, show = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(new)
    return jnp.concatenate([cell, jax.nn.sigmoid(show) * jnp.tanh(cell)], axis=-1)


def gru_step(hidden: jax.Array, inputs: jax.Array, recurrent: jax.Array) -> jax.Array:
    """Returns the next state f32[B, U] from the products f32[B, 3U] of inputs and of the state."""
    reset_x, update_x, new_x = jnp.split(inputs, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(recurrent, 3, axis=-1)
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (1 - update) * new + update * hidden


class RecurrentCore(nn.Module):
    """A recurrent layer over sequences, whose state is zeroed where a game begins."""

    config: NetworkConfig
    num_actions: int

    @nn.compact
    def __call__(
        self, features: jax.Array, steps: RecurrentObservation
    ) -> tuple[jax.Array, jax.Array]:
        """Maps features f32[B, T, F] to outputs f32[B, T, U] and the state after them f32[B, S].

        Args:
          features: the torso's.
          steps: [B, T]; the state at the start is `core` of the first step.
        """
        config = self.config
        if config.core_inputs:
            action = jax.nn.one_hot(steps.last_action, self.num_actions)  # -1 gives zeros
            reward = jnp.clip(steps.last_reward, -1, 1)[..., None]
            features = jnp.concatenate([features, action, reward], axis=-1)
        inputs = self._weights("inputs", features.shape[-1])
        bias = self._bias("bias", inputs.shape[-1])
        products = jnp.moveaxis(features @ inputs + bias, 1, 0)  # [T, B, gates]
        recurrent = self._weights("recurrent", config.core_units)
        new_bias = self._bias("new_bias", config.core_units) if config.core == "gru" else None

        def step(state: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            product, fresh = now
            state = jnp.where(fresh[:, None], 0.0, state)
            state_product = state[:, -config.core_units :] @ recurrent
            if new_bias is None:
                state = lstm_step(state, product + state_product)
            else:
                state_product = state_product.at[:, -config.core_units :].add(new_bias)
                state = gru_step(state, product, state_product)
            return state, state[:, -config.core_units :]

        start, fresh = steps.core[:, 0], jnp.moveaxis(steps.fresh, 1, 0)
        if len(products) == 1:  # XLA keeps a loop of one round
            state, output = step(start, (products[0], fresh[0]))
            return output[:, None], state
        state, outputs = jax.lax.scan(step, start, (products, fresh))
        return jnp.moveaxis(outputs, 0, 1), state

    def _weights(self, name: str, fan_in: int) -> jax.Array:
        """Returns weights f32[inputs, gates · U]."""
        units = self.config.core_units
        orthogonal = self.config.init == "orthogonal"
        weights = nn.initializers.orthogonal() if orthogonal else uniform_fan_in(units)
        return self.param(name, weights, (fan_in, GATES[self.config.core] * units))

    def _bias(self, name: str, size: int) -> jax.Array:
        """Returns a bias f32[size]."""
        orthogonal = self.config.init == "orthogonal"
        zeros = nn.initializers.zeros
        bias = zeros if orthogonal else uniform_fan_in(self.config.core_units)
        return self.param(name, bias, (size,))
