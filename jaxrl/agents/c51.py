"""Categorical DQN: the distribution of the return on fixed atoms (C51, Bellemare 2017).

The loss of a transition is the cross-entropy between the projected Bellman target of a target
network and the prediction,

L = -Σᵢ tᵢ · log pᵢ(s, a),  t = Φ(G + γᵐ z, p⁻(s', a*)),  a* = argmaxₐ Σᵢ zᵢ pᵢ⁻(s', a)

Its priority is the divergence from the prediction to the target, L - H(t). With double Q-learning,
dueling streams, priorities, n-step rewards and noisy networks this is Rainbow (Hessel 2018).
"""

import jax
import jax.numpy as jnp

from jaxrl.agents import q_learning
from jaxrl.config.algorithms import C51Config
from jaxrl.config.schema import Config
from jaxrl.ops import distributions
from jaxrl.types import Agent, EnvSpec


def target(
    reward: jax.Array, discount: jax.Array, bootstrap: jax.Array, atoms: jax.Array
) -> jax.Array:
    """The projected Bellman target; f32[B], f32[B], logits f32[B, N], f32[N] -> f32[B, N]."""
    project = jax.vmap(distributions.project, in_axes=(0, 0, None))
    moved = reward[:, None] + discount[:, None] * atoms
    return project(moved, jax.nn.softmax(bootstrap), atoms)


def error(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy and divergence of logits f32[B, N] from distributions f32[B, N]; f32[B]."""
    cross_entropy = -jnp.sum(target * jax.nn.log_softmax(chosen), axis=-1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(target, target), axis=-1)
    return cross_entropy, jnp.maximum(cross_entropy - entropy, 0.0)


def make(config: Config, spec: EnvSpec) -> Agent:
    """C51 as `config.agent` sets it up."""
    settings = config.agent
    assert isinstance(settings, C51Config)
    atoms = distributions.support(settings.v_min, settings.v_max, settings.num_atoms)
    method = q_learning.Method(
        num_atoms=settings.num_atoms,
        values=lambda logits: jax.nn.softmax(logits) @ atoms,
        target=lambda reward, discount, logits: target(reward, discount, logits, atoms),
        error=error,
        loss_name="loss/cross_entropy",
    )
    return q_learning.make(config, spec, method)
