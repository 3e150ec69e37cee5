"""REINFORCE with a learned baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

L = mean over finished rows of
    -log π(aₜ|sₜ) · (Gₜ - v(sₜ)) + c_v · (Gₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the discounted sum Gₜ of all rewards to the end of the game (after a time limit the baseline
stands for the rest), and no gradient through Gₜ or through the advantage. Rows whose game goes on
after the rollout have no Gₜ yet, and are left out.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.config.bounds import Count, Weight
from jaxrl.config.plan import Plan
from jaxrl.networks.actors import forward, init_actor, next_actor
from jaxrl.networks.heads import PolicyValue, PolicyValueNetwork
from jaxrl.ops import batches, distributions, optimizers, predictions, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.types import (
    ActorState,
    Agent,
    AgentState,
    EnvSpec,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)


@dataclass(frozen=True)
class ReinforceConfig(AlgorithmConfig):
    """REINFORCE with a learned baseline (Williams 1992)."""

    rollout_length: Count = 28
    """agent steps of every environment between two updates"""
    entropy_coef: Weight = 0.01
    """weight of the entropy bonus"""
    value_coef: Weight = 0.5
    """weight of the mean squared error of the baseline"""


class Setup(NamedTuple):
    """The static parts of a REINFORCE agent."""

    settings: ReinforceConfig
    spec: EnvSpec
    network: PolicyValueNetwork
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # of the updates done


class Batch(NamedTuple):
    """The transitions of an update, B = T · E."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], G
    advantage: jax.Array  # f32[B], G - v
    weight: jax.Array  # f32[B], sums to the mean over all devices' finished rows


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state; `train_state` is the optimizer's state."""
    spec = setup.spec
    actor = init_actor(setup.network, key, spec.frame_shape, spec.stack_size)
    return AgentState(actor, setup.optimizer.init(actor.params), memory=())


def act(
    setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], values f32[E] as extras."""
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    return distributions.sample(key, outputs.logits), outputs.value


def predict(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy and the baseline of observations u8[B, 84, 84, 4]."""
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    return predictions.from_policy(outputs.logits, outputs.value)


def finished(trajectory: Trajectory) -> jax.Array:
    """Returns b[T, E], the steps whose game ends within the rollout."""
    ends = (trajectory.discount == 0) | ~trajectory.valid  # a reset row follows a time limit too
    return trajectory.valid & (jax.lax.cumsum(ends.astype(jnp.int32), reverse=True) > 0)


def make_batch(setup: Setup, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets, as one batch."""
    value = trajectory.extras  # second result of `act`
    # No finished row reads the value after the rollout: it may be anything.
    values = jnp.concatenate([value, jnp.zeros_like(value[:1])])
    target = returns.n_step_return(
        trajectory.reward, trajectory.discount, trajectory.valid, values, setup.settings.gamma
    )
    batch = Batch(
        observation=trajectory.observation[:-1],
        action=trajectory.action,
        target=target,
        advantage=target - value,
        weight=row_weights(finished(trajectory)),
    )
    return batches.flatten(batch)


def loss(
    outputs: PolicyValue, batch: Batch, config: ReinforceConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B], and its parts for the log."""
    log_policy = distributions.log_probabilities(outputs.logits)
    log_prob = distributions.select(log_policy, batch.action)
    policy_loss = -jnp.sum(batch.weight * log_prob * batch.advantage)
    value_loss = jnp.sum(batch.weight * jnp.square(batch.target - outputs.value))
    entropy = jnp.sum(batch.weight * distributions.entropy(outputs.logits))
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": entropy}


def objective(
    setup: Setup, statistics: PyTree, params: PyTree, batch: Batch
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the loss of the parameters on a batch, and its parts."""
    outputs = forward(setup.network, params, statistics, batch.observation)
    return loss(outputs, batch, setup.settings)


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes one gradient step on a trajectory [T, E]; `key` is not used."""
    actor = state.actor
    batch = make_batch(setup, trajectory)
    gradients, metrics = gradient(
        partial(objective, setup, actor.statistics),
        actor.params,
        batch,
        setup.settings.micro_batch,
    )
    rate = setup.learning_rate(actor.updates)
    params, opt_state = optimizers.apply(
        setup.optimizer, gradients, state.train_state, actor.params, rate
    )
    new_actor = next_actor(setup.network, actor, params, trajectory)
    return AgentState(new_actor, opt_state, state.memory), metrics | {"loss/learning_rate": rate}


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the REINFORCE agent that `config.agent` describes."""
    config = plan.config
    settings = config.agent
    assert isinstance(settings, ReinforceConfig)
    setup = Setup(
        settings,
        spec,
        PolicyValueNetwork(spec.num_actions, config.network, spec.planes),
        optimizers.make_optimizer(config.optimizer),
        optimizers.learning_rate(plan),
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        predict=partial(predict, setup),
        rollout_length=settings.rollout_length,
    )
