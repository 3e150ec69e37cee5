"""The functions that agents share, and the record of an agent's functions.

All take the setup first, the static parts of an agent.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import optax

from jaxrl.agents.learner import Learner, TrainState
from jaxrl.config.plan import Plan
from jaxrl.networks.actors import forward, init_actor
from jaxrl.networks.core import core_of
from jaxrl.ops import predictions
from jaxrl.types import ActorState, Agent, AgentState, Metrics, Prediction, PyTree


class Setup(Protocol):
    """The static parts of an agent, which its functions take first."""

    @property
    def settings(self) -> Any:
        """The algorithm's settings."""

    @property
    def learner(self) -> Learner:
        """The learner of the network."""


def agent_of(
    setup: Setup,
    init: Callable[..., AgentState],
    act: Callable[..., tuple[Any, ...]],
    update: Callable[..., tuple[AgentState, Metrics]],
    predict: Callable[..., Prediction],
    **more: Callable[..., Any],
) -> Agent:
    """Returns the agent of functions that take the setup first.

    Args:
      setup: the static parts; its network says whether the agent has a recurrent core.
      init: (setup, key) -> first state.
      act: (setup, actor, observation, key) -> choice.
      update: (setup, state, trajectory, key) -> (state, metrics).
      predict: (setup, actor, observation) -> prediction.
      more: `interrupt` and `skip`, as `Agent` takes them, where they do something.
    """
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        predict=partial(predict, setup),
        rollout_length=setup.settings.rollout_length,
        core=core_of(setup.learner.network.config),
        **more,
    )


def entropy_bonus(plan: Plan) -> optax.Schedule:
    """Returns the weight of the entropy bonus by the updates done, of PPO or V-trace.

    It is `entropy_coef`; with `entropy_schedule = "linear"` it falls to 0 after the last update.
    """
    settings: Any = plan.config.agent
    final = 0.0 if settings.entropy_schedule == "linear" else settings.entropy_coef
    return optax.linear_schedule(settings.entropy_coef, final, plan.num_updates)


def first_state(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state without a memory; `train_state` is the optimizer's state."""
    learner, spec = setup.learner, setup.learner.spec
    actor = init_actor(learner.network, key, spec.frame_shape, spec.stack_size)
    return AgentState(actor, learner.optimizer.init(actor.params), memory=())


def state_with_target(setup: Setup, key: jax.Array) -> AgentState:
    """Returns the first state without a memory; the target network is a copy of the network."""
    state = first_state(setup, key)
    return state._replace(train_state=TrainState(state.train_state, state.actor.params))


def actor_outputs(learner: Learner, actor: ActorState, observation: PyTree, *keys: Any) -> Any:
    """Returns the outputs of the actor's network for observations u8[B, 84, 84, 4].

    A network that draws takes key[B], of quantiles key[B, N], or None.
    """
    return forward(learner.network, actor.params, actor.statistics, observation, *keys)


def predict_policy(setup: Setup, actor: ActorState, observation: PyTree) -> Prediction:
    """Returns the policy and the value of observations u8[B, 84, 84, 4]."""
    policy = actor_outputs(setup.learner, actor, observation)
    return predictions.from_policy(policy.logits, policy.value)


def predict_values(setup: Setup, actor: ActorState, observation: jax.Array) -> Prediction:
    """Returns the policy of evaluation and the best values of observations u8[B, 84, 84, 4]."""
    values = actor_outputs(setup.learner, actor, observation)
    return predictions.from_action_values(values, setup.settings.evaluation_epsilon)
