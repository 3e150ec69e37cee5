"""One-step Q-learning, one-step Sarsa, n-step Q-learning, without a replay (Mnih 2016, section 4).

The environments stand for the paper's asynchronous actors and step together, as in PAAC (Clemente
2017): one copy of the parameters, one gradient per rollout,

L = mean over valid rows of (Rₜ - q(sₜ, aₜ))²

    one_step   Rₜ = rₜ + γ · maxₐ q⁻(sₜ₊₁, a)
    sarsa      Rₜ = rₜ + γ · q⁻(sₜ₊₁, aₜ₊₁)
    n_step     Rₜ = rₜ + γ · Rₜ₊₁,  R_T = maxₐ q⁻(s_T, a)

with the target network q⁻. Sarsa's a_T is a separate draw from the policy that played: the action
that follows is chosen after the update.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.agents.functions import actor_outputs, agent_of, predict_values, state_with_target
from jaxrl.agents.learner import (
    Learner,
    TrainState,
    copy_target,
    network_objective,
    target_interval,
    update_once,
    value_learner,
)
from jaxrl.agents.nstep_q.settings import NStepQConfig
from jaxrl.config.plan import Plan
from jaxrl.ops import batches, distributions, exploration, returns
from jaxrl.ops.gradients import row_weights
from jaxrl.runtime.collectives import mean_over_devices
from jaxrl.types import ActorState, Agent, AgentState, Choice, EnvSpec, Metrics, PyTree, Trajectory


class Setup(NamedTuple):
    """The static parts of an n-step Q-learning agent."""

    settings: NStepQConfig
    learner: Learner
    epsilon: Callable[[jax.Array, int], jax.Array]  # (updates done, E) -> f32[E]
    target_interval: int  # updates between two copies into the target network


class Batch(NamedTuple):
    """The transitions of an update, B = T · E."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    target: jax.Array  # f32[B]
    weight: jax.Array  # f32[B], sums to the mean over all devices' valid rows


def act(setup: Setup, actor: ActorState, observation: jax.Array, key: jax.Array) -> Choice:
    """Chooses epsilon-greedy actions; u8[E, 84, 84, 4], key[E] -> i32[E], no extras."""
    values = actor_outputs(setup.learner, actor, observation)
    epsilon = setup.epsilon(actor.updates, len(observation))
    return Choice(exploration.epsilon_greedy(key, values, epsilon))


def targets(
    config: NStepQConfig, values: jax.Array, action: jax.Array, trajectory: Trajectory
) -> jax.Array:
    """Returns the targets of the values of the actions taken: f32[T, E].

    Args:
      config: with `target` and `gamma`.
      values: f32[T+1, E, A], of the target network.
      action: i32[T+1, E], those taken, and one more for the bootstrap.
      trajectory: rewards, discounts and valid rows; [T, E].
    """
    sarsa = config.target == "sarsa"
    value = distributions.select(values, action) if sarsa else values.max(axis=-1)
    return returns.lambda_return(
        **returns.rows(trajectory),
        value=value,
        gamma=config.gamma,
        lambda_=1.0 if config.target == "n_step" else 0.0,
    )


def make_batch(
    setup: Setup, actor: ActorState, target_params: PyTree, trajectory: Trajectory, key: jax.Array
) -> Batch:
    """Returns the transitions of a trajectory [T, E] with their targets, as one batch."""
    # [T+1, E, A]
    target = actor._replace(params=target_params)
    values = actor_outputs(setup.learner, target, trajectory.observation)
    keys = batches.keys_per_index(key, trajectory.action.shape[1])
    last_action = act(setup, actor, trajectory.observation[-1], keys).action
    action = jnp.concatenate([trajectory.action, last_action[None]])
    batch = Batch(
        trajectory.observation[:-1],
        trajectory.action,
        targets(setup.settings, values, action, trajectory),
        row_weights(trajectory.valid),
    )
    return batches.flatten(batch)


def loss(values: jax.Array, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the weighted sum of squared errors of values f32[B, A], and sums for the log."""
    chosen = distributions.select(values, batch.action)
    total = jnp.sum(batch.weight * jnp.square(batch.target - chosen))
    return total, {"loss/squared_error": total, "value/q": jnp.sum(batch.weight * chosen)}


def update(
    setup: Setup, state: AgentState, trajectory: Trajectory, key: jax.Array
) -> tuple[AgentState, Metrics]:
    """Takes one gradient step on a trajectory [T, E]."""
    actor, learner = state.actor, setup.learner
    opt_state, target_params = copy_target(state, setup.target_interval).train_state
    batch = make_batch(setup, actor, target_params, trajectory, key)
    objective = network_objective(learner, actor.statistics, loss)
    before = state._replace(train_state=opt_state)
    new, metrics = update_once(learner, before, trajectory, objective, batch)
    metrics |= {
        "policy/epsilon": setup.epsilon(actor.updates, learner.spec.num_envs).mean(),
        "value/target": mean_over_devices(jnp.sum(batch.weight * batch.target)),
    }
    return new._replace(train_state=TrainState(new.train_state, target_params)), metrics


def make(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the agent of the algorithm that `config.agent.target` names."""
    settings = plan.config.agent
    assert isinstance(settings, NStepQConfig)
    epsilon = exploration.schedule(settings, plan.steps_per_update)
    every = target_interval(plan, settings.target_update_interval)
    setup = Setup(settings, value_learner(plan, spec), epsilon, every)
    skip = partial(copy_target, every=every)
    return agent_of(setup, state_with_target, act, update, predict_values, skip=skip)
