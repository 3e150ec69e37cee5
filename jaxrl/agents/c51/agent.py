"""Categorical DQN: the distribution of the return on a fixed support (C51, Bellemare 2017).

The loss of a transition is the cross-entropy between the projected Bellman target of a target
network and the prediction,

L = -Σᵢ tᵢ · log pᵢ(s, a),  t = Φ(G + γᵐ z, p⁻(s', a*)),  a* = argmaxₐ Σᵢ zᵢ pᵢ⁻(s', a)

Its priority is the divergence from the prediction to the target, L - H(t). With double Q-learning,
dueling streams, priorities, n-step rewards and noisy networks this is Rainbow (Hessel 2018).
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.agents import q_learning
from jaxrl.agents.c51.settings import C51Config
from jaxrl.agents.learner import value_learner
from jaxrl.config.plan import Plan
from jaxrl.ops import distributions, histograms
from jaxrl.types import Agent, EnvSpec


def target(
    reward: jax.Array, discount: jax.Array, bootstrap: jax.Array, support: jax.Array
) -> jax.Array:
    """Returns the projected Bellman target.

    Args:
      reward: f32[B], G.
      discount: f32[B], γᵐ.
      bootstrap: f32[B, N], logits of the bootstrap's action.
      support: f32[N].

    Returns:
      f32[B, N], probabilities.
    """
    project = jax.vmap(distributions.project, in_axes=(0, 0, None))
    moved = reward[:, None] + discount[:, None] * support
    return project(moved, jax.nn.softmax(bootstrap), support)


def error(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns cross-entropy and divergence f32[B] of logits from distributions, both f32[B, N]."""
    cross_entropy = -jnp.sum(target * jax.nn.log_softmax(chosen), axis=-1)
    entropy = -jnp.sum(jax.scipy.special.xlogy(target, target), axis=-1)
    return cross_entropy, jnp.maximum(cross_entropy - entropy, 0.0)


def method(support: jax.Array) -> q_learning.Method:
    """Returns C51's method on a support f32[N]."""
    return q_learning.Method(
        support=support,
        values=partial(histograms.mean, support=support),
        distributions=jax.nn.softmax,
        target=partial(target, support=support),
        error=error,
        loss_name="loss/cross_entropy",
    )


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the C51 agent that `config.agent` describes."""
    settings = plan.config.agent
    assert isinstance(settings, C51Config)
    support = distributions.support(settings.v_min, settings.v_max, settings.num_atoms)
    learner = value_learner(plan, spec, settings.num_atoms)
    return q_learning.make(plan, learner, method(support))
