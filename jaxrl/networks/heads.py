"""The networks of the agents: a torso and heads (Flax Linen)."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config.convolutions import units_above
from jaxrl.config.network import NetworkConfig
from jaxrl.kernels.convolution import Pixels
from jaxrl.networks.convolution import multiplies_bfloat16
from jaxrl.networks.core import RecurrentCore
from jaxrl.networks.layers import Dense
from jaxrl.networks.torsos import Torso, activated, dense, embedded, features
from jaxrl.ops import batches, quantiles
from jaxrl.types import PyTree, RecurrentObservation

NUM_COSINES = 64  # of a level (Dabney 2018)


class PolicyValue(NamedTuple):
    """The outputs of a policy-value network."""

    logits: jax.Array  # f32[B, A], of the policy
    value: jax.Array  # f32[B], expected return
    core: PyTree = ()  # f32[B, S], state of the recurrent core after the last step


class PolicyValueNetwork(nn.Module):
    """A torso, and a core if configured, shared by a policy head and a value head."""

    num_actions: int
    config: NetworkConfig
    planes: int = 1  # planes of a frame, as `EnvSpec` has them

    @nn.compact
    def __call__(self, x: Any) -> PolicyValue:
        """Maps observations f32[B, 84, 84, 4] from `normalize` to policies and values.

        With a core it maps sequences [B, T] of recurrent observations to outputs [B, T].
        """
        if not self.config.remembers:
            (features,) = Torso(self.config, self.planes)(x)
            core: PyTree = ()
        else:
            features, core = remember(self.config, self.num_actions, self.planes, x)
        logits = Dense(self.num_actions, 0.01, self.config.init)(features)
        value = Dense(1, 1.0, self.config.init)(features)
        return PolicyValue(logits, value[..., 0], core)


def remember(
    config: NetworkConfig, num_actions: int, planes: int, steps: RecurrentObservation
) -> tuple[jax.Array, jax.Array]:
    """Maps sequences [B, T] to features f32[B, T, U] of a torso and a core, inside a network.

    Returns the core's state f32[B, S] after them, too. Stacks come from `normalize`.
    """
    rows: Any = steps.stack
    if isinstance(rows, Pixels):
        rows = rows._replace(stack=batches.flatten(rows.stack))
    else:
        rows = batches.flatten(rows)
    (features,) = Torso(config, planes)(rows)
    features = batches.unflatten(features, steps.stack.shape[:2])
    return RecurrentCore(config, num_actions)(features, steps)


class ActionValues(NamedTuple):
    """The outputs of an action-value network with a core."""

    values: jax.Array  # f32[B, A]
    core: PyTree = ()  # f32[B, S], state of the recurrent core after the last step


class ActionValueNetwork(nn.Module):
    """A torso and a head with every action's value, or the logits of its return's distribution.

    With `config.dueling` (Wang 2016, eq. 9): Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'),
    for each atom. The hidden layers of the two streams are the torso's last; those of a network
    with a core follow it and have its size (R2D2).
    """

    num_actions: int
    num_atoms: int  # 1 for plain action values
    config: NetworkConfig
    planes: int = 1  # planes of a frame, as `EnvSpec` has them

    @nn.compact
    def __call__(self, x: Any, noise: Any = None) -> jax.Array | ActionValues:
        """Maps f32[B, 84, 84, 4] from `normalize` to f32[B, A, atoms]; f32[B, A] for 1 atom.

        Noisy networks draw their noise from key[B]; with None they use their mean weights. With a
        core it maps sequences [B, T] of recurrent observations to plain action values [B, T, A].
        """
        if self.config.remembers:
            features, core = remember(self.config, self.num_actions, self.planes, x)
            return ActionValues(self._after_core(features), core)

        def head(features: int, number: int, x: jax.Array) -> jax.Array:
            return dense(self.config, features, 1.0, number, x, noise)

        torso = Torso(self.config, self.planes, streams=2 if self.config.dueling else 1)
        streams = torso(x, noise)
        x = head(self.num_actions * self.num_atoms, 2, streams[0])
        x = x.reshape(-1, self.num_actions, self.num_atoms)
        if self.config.dueling:
            state_value = head(self.num_atoms, 3, streams[1])
            x = state_value[:, None] + x - x.mean(axis=1, keepdims=True)
        return x[..., 0] if self.num_atoms == 1 else x

    def _after_core(self, features: jax.Array) -> jax.Array:
        """Maps the core's outputs f32[B, T, U] to action values f32[B, T, A]."""
        init = self.config.init
        if not self.config.dueling:
            return Dense(self.num_actions, 1.0, init)(features)
        advantage, state_value = (
            Dense(size, 1.0, init)(
                activated(self.config, Dense(self.config.core_units, 2**0.5, init)(features))
            )
            for size in (self.num_actions, 1)
        )
        return state_value + advantage - advantage.mean(axis=-1, keepdims=True)


class Quantiles(NamedTuple):
    """The outputs of a network of implicit quantiles."""

    value: jax.Array  # f32[B, A, N], of all actions' returns
    level: jax.Array  # f32[B, A, N], from 0 to 1; the same for all actions


class QuantileNetwork(nn.Module):
    """A network of implicit quantiles (IQN, Dabney 2018, section 3.1).

    z(s, τ) = f(ψ(s) ⊙ φ(τ)),  φ(τ) = relu(W (cos(π i τ))ᵢ + b),  i = 0 ... 63

    ψ are the torso's convolutions, f the layers above them, in two streams with `config.dueling`.
    """

    num_actions: int
    num_quantiles: int  # where none are drawn
    config: NetworkConfig
    planes: int = 1  # planes of a frame, as `EnvSpec` has them

    @nn.compact
    def __call__(self, x: Any, keys: Any = None) -> Quantiles:
        """Maps f32[B, 84, 84, 4] from `normalize` to quantiles at the levels that key[B, N] draw.

        Without keys the levels are the middles of `num_quantiles` equal parts, and noisy layers
        have their mean weights. The quantiles of an observation share its noise.
        """
        config, noise = self.config, None
        x, units = features(config, self.planes, x), units_above(config)
        if keys is None:
            level = jnp.tile(quantiles.midpoints(self.num_quantiles), (len(x), 1))
        else:
            level = jax.vmap(jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 0))))(
                keys
            )
            noise = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys[:, 0])
        cosines = jnp.cos(jnp.pi * jnp.arange(NUM_COSINES) * level[..., None]).astype(x.dtype)
        half = multiplies_bfloat16(config.dtype)
        embedding = nn.relu(Dense(x.shape[-1], 2**0.5, config.init, half)(cosines))
        x = x[:, None] * embedding  # [B, N, F]

        def stream(outputs: int, number: int) -> jax.Array:
            above = dense(config, units, 2**0.5, number, x, noise, half)
            hidden = embedded(config, above, number)
            return dense(config, outputs, 1.0, number + 2, hidden, noise)

        value = stream(self.num_actions, 0)
        if config.dueling:
            value = stream(1, 1) + value - value.mean(axis=-1, keepdims=True)
        value = jnp.swapaxes(value, 1, 2)
        return Quantiles(value, jnp.broadcast_to(level[:, None], value.shape))


def hidden_layers(params: PyTree) -> tuple[str, ...]:
    """Returns the names of both streams' hidden layers in a `QuantileNetwork`; none of another."""
    embedding = params.get("Dense_0", {}).get("Dense_0", {}).get("kernel")
    if embedding is None or embedding.shape[0] != NUM_COSINES:
        return ()
    return ("NoisyDense_0", "NoisyDense_2") if "NoisyDense_0" in params else ("Dense_1", "Dense_3")
