"""A trained policy that answers observations of anybody's environments."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate
from jaxrl.runs import checkpoint_files
from jaxrl.runs.evaluation_record import Evaluation, protocol_of
from jaxrl.runs.paths import as_run_dir, naming_as_given
from jaxrl.types import STACK_SIZE, ActorState, Agent, EnvSpec


class Distribution(NamedTuple):
    """The return that a policy expects of each action, as probabilities of N atoms."""

    returns: np.ndarray  # f32[N]
    probabilities: np.ndarray  # f32[A, N], or f32[B, A, N]


@dataclass(frozen=True)
class Policy:
    """A trained policy, as evaluations play it.

    An observation is uint8[H, W, 4]: the newest four frames, grey, the oldest first; 84 x 84 unless
    configured otherwise. Every method takes one observation, or a batch uint8[B, H, W, 4].
    """

    config: Config  # of the run that trained it
    actor: ActorState  # its parameters
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

    def act(self, observation: np.ndarray, seed: int) -> np.ndarray:
        """Draws an action i32[] of each observation: the same seed draws the same actions."""
        batch, single = self._batch(observation)
        keys = jax.random.split(jax.random.key(seed), len(batch))
        actions = np.asarray(self._act(self.actor, batch, keys)[0])
        return actions[0] if single else actions

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """Returns the probability f32[A] of each action."""
        return self._predicted(observation).probabilities

    def value(self, observation: np.ndarray) -> np.ndarray:
        """Returns the expected discounted return f32[], in the rewards of training."""
        return self._predicted(observation).value

    def distribution(self, observation: np.ndarray) -> Distribution:
        """Returns the distribution of each action's return, of C51 and Rainbow.

        Raises `UserError` if the policy has none.
        """
        found = self._predicted(observation)
        if not found.support.size:
            raise UserError(f"distribution: {self.config.algorithm} learns none; c51 does")
        return Distribution(found.support, found.distributions)

    def evaluate(
        self, protocol: str | None = None, episodes: int = 30, seed: int = 0
    ) -> Evaluation:
        """Plays whole games by a protocol, noop or sticky, and returns their unclipped scores.

        The default is the protocol that is like training. Raises `UserError` for another one.
        """
        chosen = protocol_of(self.config) if protocol is None else protocol
        return evaluate.evaluate(self.config, self.actor, chosen, episodes, seed, self.step)

    def _predicted(self, observation: np.ndarray) -> Any:
        """Returns the `Prediction`, on the host, without the batch's axis where none was given."""
        batch, single = self._batch(observation)
        found = jax.device_get(self._predict(self.actor, batch))
        if not single:
            return found
        alone = jax.tree.map(lambda x: x[0], found._replace(support=()))
        return alone._replace(support=found.support)

    def _batch(self, observation: np.ndarray) -> tuple[np.ndarray, bool]:
        """Returns a batch, and whether it is of one observation. Raises `UserError`."""
        array = np.asarray(observation)
        shape = (*self.config.frame_shape(), STACK_SIZE)
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
    with naming_as_given():
        run_dir = as_run_dir(Path(path))
        return Policy(*evaluate.load_actor(run_dir, checkpoint_files.named(run_dir, checkpoint)))
