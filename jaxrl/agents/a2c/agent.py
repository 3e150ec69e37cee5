"""Synchronous advantage actor-critic.

A3C's loss (Mnih 2016, section 4) on the trajectories of all environments at once, as PAAC
(Clemente 2017) does it: one copy of the parameters, one gradient per update,

L = mean over valid rows of  -log π(aₜ|sₜ) · (Rₜ - v(sₜ)) + c_v · (Rₜ - v(sₜ))² - c_e · H(π(·|sₜ))

with the n-step return Rₜ and no gradient through Rₜ or through the advantage.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.config.plan import Plan
from jaxrl.networks import heads
from jaxrl.networks.actors import forward, init_actor, next_actor
from jaxrl.networks.core import core_of
from jaxrl.ops import batches, distributions, optimizers, predictions, returns
from jaxrl.ops.gradients import gradient, row_weights
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import (
    ActorState,
    Agent,
    AgentState,
    Choice,
    EnvSpec,
    Metrics,
    Prediction,
    PyTree,
    Trajectory,
)


class Setup(NamedTuple):
    """The static parts of an A2C agent."""

    settings: A2CConfig
    spec: EnvSpec
    network: heads.PolicyValueNetwork
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # of the updates done


class Extras(NamedTuple):
    """Values that `act` stores beside the actions."""

    value: jax.Array  # f32[E]


class Batch(NamedTuple):
    """The transitions of an update, B = T · E; [E, T] if the network has a core."""

    observation: PyTree  # u8[B, 84, 84, 4], or a RecurrentObservation
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B], n-step return
    advantage: jax.Array  # f32[B]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def init(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state; `train_state` is the optimizer's state."""
    spec = setup.spec
    actor = init_actor(setup.network, key, spec.frame_shape, spec.stack_size)
    return AgentState(actor, setup.optimizer.init(actor.params), memory=())


def act(setup: Setup, actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
    """Samples actions; u8[E, 84, 84, 4], key[E] -> i32[E], extras [E]."""
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    action = distributions.sample(key, outputs.logits)
    return Choice(action, Extras(outputs.value), outputs.core)


def predict(setup: Setup, actor: ActorState, observation: PyTree) -> Prediction:
    """Returns the policy and the value of observations u8[B, 84, 84, 4]."""
    outputs = forward(setup.network, actor.params, actor.statistics, observation)
    return predictions.from_policy(outputs.logits, outputs.value)


def make_batch(setup: Setup, actor: ActorState, trajectory: Trajectory) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets, as one batch.

    With a core an item of the batch is the sequence of an environment, which is unrolled from the
    state that the rollout began with.
    """
    # Acting computed all values but the bootstrap.
    newest = batches.at(trajectory.observation, -1)
    bootstrap = forward(setup.network, actor.params, actor.statistics, newest).value
    value = jnp.concatenate([trajectory.extras.value, bootstrap[None]])
    target = returns.n_step_return(
        trajectory.reward, trajectory.discount, trajectory.valid, value, setup.settings.gamma
    )
    batch = Batch(
        batches.at(trajectory.observation, slice(-1)),
        trajectory.action,
        target,
        target - value[:-1],
        row_weights(trajectory.valid),
    )
    return batches.items(batch, setup.network.config.remembers)


def loss(
    outputs: heads.PolicyValue, batch: Batch, config: A2CConfig
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of the losses of outputs [B], and its parts for the log."""
    log_policy = distributions.log_probabilities(outputs.logits, config.log_epsilon)
    log_prob = distributions.select(log_policy, batch.action)
    entropy = distributions.entropy(outputs.logits, config.log_epsilon)
    policy_loss = -jnp.sum(batch.weight * log_prob * batch.advantage)
    value_loss = jnp.sum(batch.weight * jnp.square(batch.target - outputs.value))
    mean_entropy = jnp.sum(batch.weight * entropy)
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * mean_entropy
    parts = {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": mean_entropy}
    return config.loss_scale * total, parts


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
    batch = make_batch(setup, actor, trajectory)
    gradients, metrics = gradient(
        partial(objective, setup, actor.statistics),
        actor.params,
        batch,
        setup.settings.micro_batch,
        rows_per_item=setup.settings.rollout_length if setup.network.config.remembers else 1,
    )
    rate = setup.learning_rate(actor.updates)
    params, opt_state = optimizers.apply(
        setup.optimizer, gradients, state.train_state, actor.params, rate
    )
    metrics |= {
        "loss/gradient_norm": optax.tree.norm(gradients),
        "loss/learning_rate": rate,
        "value/target": mean_over_devices(jnp.sum(batch.weight * batch.target)),
    }
    new_actor = next_actor(setup.network, actor, params, trajectory)
    return AgentState(new_actor, opt_state, state.memory), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the A2C agent that `config.agent` describes."""
    config = plan.config
    settings = config.agent
    assert isinstance(settings, A2CConfig)
    setup = Setup(
        settings,
        spec,
        heads.PolicyValueNetwork(spec.num_actions, config.network, spec.planes),
        optimizers.make_optimizer(config.optimizer),
        optimizers.learning_rate(plan),
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        predict=partial(predict, setup),
        rollout_length=settings.rollout_length,
        core=core_of(config.network),
    )
