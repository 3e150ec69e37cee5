"""Parts that agents share: a network and the steps that train it, and a target network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxrl.config.plan import Plan
from jaxrl.networks import convolution, heads
from jaxrl.networks.actors import forward, next_actor
from jaxrl.ops import optimizers
from jaxrl.ops.gradients import Objective, Passes, gradient, gradient_with_aux
from jaxrl.types import AgentState, EnvSpec, Metrics, PyTree, Trajectory

# Observations of a gradient pass on a CPU: more gain no speed and need more memory.
KERNEL_ROWS, XLA_ROWS = 128, 48  # where the kernels of C++ convolve, and where XLA does
GRADIENT_SUMS = ("loss/gradient_norm", "network/dormant")  # that each gradient step logs


class Learner(NamedTuple):
    """The network of an agent, and what its gradient steps have in common."""

    spec: EnvSpec
    network: Any  # one of `jaxrl.networks.heads`, or a Flax module with their `config`
    optimizer: optax.GradientTransformation
    learning_rate: optax.Schedule  # by the updates done
    passes: Passes


class Learned(NamedTuple):
    """The arrays that a gradient step changes."""

    params: PyTree
    opt_state: PyTree


class TrainState(NamedTuple):
    """The state of the gradient steps of an agent with a target network."""

    opt_state: PyTree
    target_params: PyTree


# --- the network of an agent ---------------------------------------------------------------------


def make_learner(plan: Plan, spec: EnvSpec, network: Any) -> Learner:
    """Returns the learner of a network, as the configuration of the plan describes it."""
    config, settings = plan.config, plan.config.agent
    sequence = settings.rollout_length if config.network.remembers else 1
    return Learner(
        spec=spec,
        network=network,
        optimizer=optimizers.make_optimizer(config.optimizer),
        learning_rate=optimizers.learning_rate(plan),
        passes=Passes(
            settings.micro_batch,
            cpu_rows=KERNEL_ROWS if convolution.has_kernels() else XLA_ROWS,
            rows_per_item=max(settings.steps_per_row, sequence),
        ),
    )


def policy_learner(plan: Plan, spec: EnvSpec) -> Learner:
    """Returns the learner of a policy and its value."""
    network = heads.PolicyValueNetwork(spec.num_actions, plan.config.network, spec.planes)
    return make_learner(plan, spec, network)


def value_learner(plan: Plan, spec: EnvSpec, num_atoms: int = 1) -> Learner:
    """Returns the learner of action values, or of distributions of returns on many atoms."""
    network = heads.ActionValueNetwork(
        spec.num_actions, num_atoms, plan.config.network, spec.planes
    )
    return make_learner(plan, spec, network)


# --- its gradient steps --------------------------------------------------------------------------


def network_objective(
    learner: Learner, statistics: PyTree, loss: Callable[[Any, Any], tuple[jax.Array, Any]]
) -> Callable[[PyTree, PyTree], tuple[jax.Array, Any]]:
    """Returns the objective (params, batch) -> loss(outputs for the batch's observations, batch).

    Args:
      learner: the agent's.
      statistics: those of the observations.
      loss: (outputs of the network, batch) -> (weighted sum of the losses, further results).
    """

    def objective(params: PyTree, batch: PyTree) -> tuple[jax.Array, Any]:
        return loss(forward(learner.network, params, statistics, batch.observation), batch)

    return objective


def update_once(
    learner: Learner, state: AgentState, trajectory: Trajectory, objective: Objective, batch: PyTree
) -> tuple[AgentState, Metrics]:
    """Takes the gradient step of an update that has one; returns its sums with norm and rate.

    The state's `train_state` is the optimizer's; the batch [B, ...] comes from the trajectory
    [T, E], and the objective is as `descend` takes it.
    """
    actor, rate = state.actor, learner.learning_rate(state.actor.updates)
    before = Learned(actor.params, state.train_state)
    learned, metrics = descend(learner, objective, before, batch, rate)
    new_actor = next_actor(learner.network, actor, learned.params, trajectory)
    new = AgentState(new_actor, learned.opt_state, state.memory)
    return new, metrics | {"loss/learning_rate": rate}


def descend(
    learner: Learner, objective: Objective, learned: Learned, batch: PyTree, rate: jax.Array
) -> tuple[Learned, dict[str, jax.Array]]:
    """Takes a gradient step on a batch; returns the objective's sums with GRADIENT_SUMS.

    Args:
      learner: the agent's.
      objective: (params, batch) -> (weighted sum of the losses, further sums for the log).
      learned: parameters and optimizer state before the step.
      batch: arrays [B, ...]; the weights of `row_weights` among them.
      rate: f32[], the learning rate.
    """
    gradients, sums = gradient(objective, learned.params, batch, learner.passes)
    return _apply(learner, gradients, learned, rate), sums | _logged(gradients)


def descend_with_aux(
    learner: Learner,
    objective: Callable[[PyTree, PyTree], tuple[jax.Array, Any]],
    learned: Learned,
    batch: PyTree,
    rate: jax.Array,
) -> tuple[Learned, dict[str, jax.Array], PyTree]:
    """Takes a gradient step as `descend`; returns auxiliary arrays of each item, too.

    The objective returns (weighted sum, (further sums, arrays [B, ...])).
    """
    gradients, sums, aux = gradient_with_aux(objective, learned.params, batch, learner.passes)
    return _apply(learner, gradients, learned, rate), sums | _logged(gradients), aux


def _apply(learner: Learner, gradients: PyTree, learned: Learned, rate: jax.Array) -> Learned:
    params, opt_state = optimizers.apply(
        learner.optimizer,
        gradients=gradients,
        opt_state=learned.opt_state,
        params=learned.params,
        learning_rate=rate,
    )
    return Learned(params, opt_state)


def _logged(gradients: PyTree) -> dict[str, jax.Array]:
    sums = optax.tree.norm(gradients), dormant(gradients)
    return dict(zip(GRADIENT_SUMS, sums, strict=True))


def rectified_biases(params: PyTree) -> dict[str, list[jax.Array]]:
    """Returns the biases f32[units] of the torso's units that are rectified, by layer.

    They are those that the rectifier sees: the normalization's, if there is one before it. `params`
    may be gradients, too. A network of implicit quantiles has its layers beside its heads.
    """
    torso = params.get("Torso_0", params)

    def has(layer: str) -> bool:
        return any(name.startswith(layer) for name in torso)

    layers: tuple[str, ...] = ("Conv",)
    if has("HiddenNorm"):
        layers = ("Conv", "HiddenNorm")
    elif has("LayerNorm"):
        layers = ("LayerNorm",)
    elif torso is not params:
        layers = ("Conv", "Dense", "NoisyDense")
    else:
        layers = ("Conv", *heads.hidden_layers(params))
    return {
        name: [
            leaf
            for path, leaf in jax.tree_util.tree_leaves_with_path(layer)
            if jax.tree_util.keystr(path[-1:], simple=True) == "bias"
        ]
        for name, layer in torso.items()
        if name.startswith(layers)
    }


def dormant(gradients: PyTree) -> jax.Array:
    """Returns the share, f32[], of the torso's units that no gradient has reached.

    Such a unit is 0 for the whole batch, or all that follows it is: it is dormant (Sokar 2023,
    eq. 1, with a threshold of 0). Units are the filters and hidden numbers of `rectified_biases`.
    A torso without such units has 0.
    """
    biases = [jnp.ravel(x) for layer in rectified_biases(gradients).values() for x in layer]
    return jnp.mean(jnp.concatenate(biases) == 0) if biases else jnp.float32(0)


# --- a target network ----------------------------------------------------------------------------


def target_interval(plan: Plan, steps: int) -> int:
    """Returns the updates between two copies into the target network, of agent steps."""
    return max(1, round(steps / plan.steps_per_update))


def copy_target(state: AgentState, every: int) -> AgentState:
    """Copies the parameters into `train_state.target_params` in each `every`-th update, from 0."""
    target_params = optax.periodic_update(
        state.actor.params, state.train_state.target_params, state.actor.updates, every
    )
    return state._replace(train_state=state.train_state._replace(target_params=target_params))
