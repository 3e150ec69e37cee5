"""A trained policy that answers observations of any environment."""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.config.algorithms import that
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate
from jaxrl.formatting import listed
from jaxrl.networks.core import first_observation
from jaxrl.runs import checkpoint_files
from jaxrl.runs.evaluation_record import Evaluation, protocol_of
from jaxrl.runs.paths import naming_policies, run_dir_of
from jaxrl.runtime import jax_settings
from jaxrl.types import (
    ActorState,
    Agent,
    Choice,
    EnvSpec,
    PyTree,
    RecurrentObservation,
)


class Distribution(NamedTuple):
    """The return that a policy expects of each action, as probabilities of N atoms."""

    returns: np.ndarray  # f32[N]
    probabilities: np.ndarray  # f32[A, N], or f32[B, A, N]


@dataclass(repr=False)
class RecurrentState:
    """The state of a recurrent policy in the games it plays: one game, or a batch.

    `Policy.act` changes it; call `observe` after each step of the environments.
    """

    steps: RecurrentObservation  # [B], without stacks
    acted: bool = False  # since the last `observe`

    def observe(self, reward: Any, new_game: Any) -> None:
        """Notes the rewards of a step f32[B], and where the next observation begins a game, b[B].

        The rewards are unclipped: policies see them clipped to +-1. With `network.core_resets`
        "life" a lost life begins a game, too. Raises `UserError` for another number of games.
        """
        size = self.steps.fresh.shape
        for shape in (np.shape(reward), np.shape(new_game)):
            if shape not in ((), size):
                raise UserError(f"observe: {shape} values for a state of {size[0]} games")
        fresh = jnp.broadcast_to(jnp.asarray(new_game, bool), size)
        reward = jnp.broadcast_to(jnp.asarray(reward, jnp.float32), size)
        self.steps = RecurrentObservation(
            stack=(),
            core=jnp.where(fresh[:, None], 0.0, self.steps.core),
            last_action=jnp.where(fresh, -1, self.steps.last_action),
            last_reward=jnp.where(fresh, 0.0, reward),
            fresh=fresh,
        )
        self.acted = False


@dataclass(frozen=True)
class Policy:
    """A trained policy, as evaluations play it.

    An observation is uint8[H, W, 4]: the newest four frames, gray, the oldest first; 84 x 84 x 4
    unless configured otherwise. A frame in color is red, green and blue, one below the other:
    uint8[3 * H, W, 4]. Every method takes one observation, or a batch uint8[B, H, W, 4]. A
    policy with `network.core` needs a `state` beside it, from `new_state`.
    """

    config: Config  # the run's that trained it
    actor: ActorState = field(repr=False)  # its parameters
    step: int  # agent steps of training

    @functools.cached_property
    def _made(self) -> tuple[Agent, EnvSpec]:
        config = self.config.replaced(agent=self.config.agent.for_evaluation())
        spec = make_engine(config, 1).spec
        return make_agent(resolve(config), spec), spec

    @functools.cached_property
    def _act(self) -> Any:
        return jax.jit(self._made[0].act)

    @functools.cached_property
    def _predict(self) -> Any:
        return jax.jit(self._made[0].predict)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, as the Arcade Learning Environment has them."""
        return self._made[1].action_meanings

    @property
    def remembers(self) -> bool:
        """Returns whether the policy has a recurrent core, so that it needs a state."""
        return self._made[0].core is not None

    def new_state(self, games: int = 1) -> RecurrentState:
        """Returns the state at the start of games. Raises `UserError` if the policy has none."""
        core = self._made[0].core
        if core is None:
            raise UserError("new_state: this policy is not recurrent: network.core is none")
        steps: Any = first_observation(jnp.zeros((games, 1), jnp.uint8), core)
        return RecurrentState(steps._replace(stack=()))

    def act(
        self, observation: np.ndarray, seed: int, state: RecurrentState | None = None
    ) -> np.ndarray:
        """Draws an action i32[] of each observation: the same seed draws the same actions.

        A recurrent policy notes in `state` what it saw and did. Raises `UserError` without one, and
        where `state.observe` has not been called since the last action.
        """
        batch, single = self._batch(observation)
        if isinstance(state, RecurrentState) and state.acted:
            raise UserError("act: call state.observe(reward, new_game) after each step of the game")
        keys = jax.random.split(jax.random.key(seed), len(batch))
        choice = Choice(*self._act(self.actor, self._attach_state(batch, state), keys))
        if state is not None:
            state.steps = state.steps._replace(core=choice.core, last_action=choice.action)
            state.acted = True
        actions = np.asarray(choice.action)
        return actions[0] if single else actions

    def probabilities(
        self, observation: np.ndarray, state: RecurrentState | None = None
    ) -> np.ndarray:
        """Returns the probability f32[A] of each action."""
        return self._predicted(observation, state).probabilities

    def value(self, observation: np.ndarray, state: RecurrentState | None = None) -> np.ndarray:
        """Returns the expected discounted return f32[], in the rewards of training."""
        return self._predicted(observation, state).value

    def distribution(
        self, observation: np.ndarray, state: RecurrentState | None = None
    ) -> Distribution:
        """Returns the distribution of each action's return.

        C51 and Rainbow learn it, and PQN with `agent.value_loss` of distributions.
        Raises `UserError` if the policy has none.
        """
        prediction = self._predicted(observation, state)
        if not prediction.support.size:
            algorithms = listed(that("has_distributions"))
            raise UserError(f"distribution: {self.config.algorithm} learns none; {algorithms} does")
        return Distribution(prediction.support, prediction.distributions)

    def evaluate(
        self, protocol: str | None = None, episodes: int = 30, seed: int = 0
    ) -> Evaluation:
        """Plays whole games by a protocol, noop or sticky, and returns their unclipped scores.

        The default is the protocol that is like training. Raises `UserError` for another one.
        """
        chosen = protocol_of(self.config) if protocol is None else protocol
        return evaluate.evaluate(self.config, self.actor, chosen, episodes, seed, self.step)

    def _attach_state(self, batch: np.ndarray, state: RecurrentState | None) -> PyTree:
        """Returns observations as the agent takes them. Raises `UserError` without their state."""
        core = self._made[0].core
        if core is None:
            if state is not None:
                raise UserError("state: this policy is not recurrent; leave it out")
            return batch
        fits = isinstance(state, RecurrentState) and state.steps.core.shape[-1] == core.size
        if state is not None and not fits:
            raise UserError("state: is not one of this policy's; begin with policy.new_state()")
        games = 0 if state is None else len(state.steps.fresh)
        if state is None or games != len(batch):
            problem = f"of {games} games, not {len(batch)}" if state else "missing"
            raise UserError(
                f"state is {problem}: this policy is recurrent; begin with state = "
                f"policy.new_state({len(batch)}), and call state.observe after each step"
            )
        return state.steps._replace(stack=batch)

    def _predicted(self, observation: np.ndarray, state: RecurrentState | None = None) -> Any:
        """Returns the `Prediction`, on the host, without the batch's axis where none was given."""
        batch, single = self._batch(observation)
        prediction = jax.device_get(self._predict(self.actor, self._attach_state(batch, state)))
        if not single:
            return prediction
        alone = jax.tree.map(lambda x: x[0], prediction._replace(support=()))
        return alone._replace(support=prediction.support)

    def _batch(self, observation: np.ndarray) -> tuple[np.ndarray, bool]:
        """Returns a batch, and whether it is of one observation. Raises `UserError`."""
        jax_settings.check()
        array = np.asarray(observation)
        shape = (*self.config.env.frame_shape, self.config.env.stack)
        if array.ndim not in (3, 4) or array.shape[-3:] != shape or array.dtype != np.uint8:
            needed = ", ".join(map(str, shape))
            hint = ""
            if array.ndim in (3, 4) and array.shape[-3:] == (shape[2], *shape[:2]):
                hint = ": np.moveaxis(observation, -3, -1) puts the frames last"
            raise UserError(
                f"observation is {array.dtype}{list(array.shape)}, not uint8[{needed}] or a batch "
                f"of them{hint}"
            )
        single = array.ndim == 3
        return (array[None] if single else array), single


def load_policy(path: str | Path, checkpoint: int | str | None = None) -> Policy:
    """Loads a trained policy.

    Args:
      path: a run directory, a policy's file, or the name of a policy that comes with jaxrl.
      checkpoint: agent step of a run's checkpoint, "latest" or "best"; default is the newest.

    Raises `UserError` if there is none, `DamagedError` if it has changed since it was written.
    """
    with naming_policies():
        run_dir = run_dir_of(Path(path))
        return Policy(*evaluate.load_actor(run_dir, checkpoint_files.named(run_dir, checkpoint)))
