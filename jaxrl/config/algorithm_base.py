"""The questions that the host asks of an algorithm's settings, and the usual answers."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from jaxrl.config.bounds import Count, CountOrZero, Fraction
from jaxrl.errors import UserError

STACK_SIZE = 4  # frames that an agent sees at once, as in `jaxrl.types`


class Sizes(NamedTuple):
    """Environments, and the devices or learners that share them."""

    num_envs: int  # over all devices
    num_devices: int
    num_learners: int  # over all devices; one on each device unless more are configured
    groups: int
    owner: str  # who has an equal share of the environments: "device" or "learner"
    sequences: bool  # gradients are of whole sequences of an environment: the network has a core

    @property
    def envs_per_learner(self) -> int:
        """Environments that one agent is made for."""
        return self.num_envs // self.num_learners

    @property
    def whole(self) -> str:
        """A learner's environments, for messages."""
        return f"the {self.envs_per_learner} environments of a {self.owner} (num_envs)"


@dataclass(frozen=True)
class AlgorithmConfig:
    """Settings that every algorithm has, and the answers of an algorithm without a specialty."""

    # Other sections that make sense with the algorithm.
    has_action_values: ClassVar[bool] = False  # network.dueling
    can_be_noisy: ClassVar[bool] = False  # network.noisy
    can_learn_apart: ClassVar[bool] = True  # parallel.sync_every
    can_remember: ClassVar[bool] = False  # network.core
    can_adapt_rate: ClassVar[bool] = False  # optimizer.schedule = "adaptive"
    has_distributions: ClassVar[bool] = False  # the return's, which policies predict
    batch_grows_with_envs: ClassVar[bool] = True  # optimizer.lr_scaling
    # Words for messages.
    batch_unit: ClassVar[str] = "rows"
    memory_savers: ClassVar[tuple[str, ...]] = ()  # changes that need less memory

    rollout_length: Count = 5
    """agent steps of every environment between two updates"""
    gamma: Fraction = 0.99
    """discount per agent step"""
    micro_batch: CountOrZero = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""

    def check(self, num_envs: int) -> None:
        """Refuses settings that contradict each other. Raises `UserError`."""

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses environments that do not divide into batches. Raises `UserError`."""

    def gradient_steps(self, num_envs: int) -> int:
        """Returns the gradient steps of one update."""
        return 1

    def batch_per_learner(self, sizes: Sizes) -> int:
        """Returns the rows of one learner's gradient; of whole sequences, their number."""
        return sizes.envs_per_learner * (1 if sizes.sequences else self.rollout_length)

    @property
    def steps_per_row(self) -> int:
        """Observations that one row of a gradient shows to the network."""
        return 1

    def transitions_per_row(self, sequences: bool) -> int:
        """Returns the transitions that a row of a gradient, or a whole sequence, learns from."""
        return self.rollout_length if sequences else 1

    def with_one_gradient(self) -> Self:
        """Returns the settings with one gradient step to an update."""
        return self

    @property
    def needs_core(self) -> str:
        """Why the settings need `network.core`, as a message that goes on "take ..."; or ""."""
        return ""

    def first_learning_step(self, num_envs: int) -> int:
        """Returns the agent steps before the first gradient step, over all devices."""
        return 0

    def remembered(self, num_envs: int) -> int:
        """Returns the transitions that the agent's memory holds, over all devices."""
        return 0

    @property
    def states_per_transition(self) -> float:
        """Recurrent states that the memory holds for each transition."""
        return 0.0

    @property
    def remembers_past(self) -> bool:
        """Returns whether the memory is so large that checkpoints may leave it out."""
        return False

    def memory_refused(self, need: str, free: str, fits: int) -> UserError:
        """Returns the error of a memory that needs more than is free, where `fits` are transitions.

        `need` and `free` are gigabytes, as the message has them.
        """
        return UserError(
            f"the agent's memory needs {need}, and {free} are free: {fits:,} transitions would fit"
        )

    def for_timing(self, num_envs: int) -> "AlgorithmConfig":
        """Returns the settings with nothing that a measurement of speed would wait for."""
        return self

    def for_evaluation(self) -> "AlgorithmConfig":
        """Returns the settings with which a trained policy acts in evaluations."""
        return self

    @property
    def random_action_rate(self) -> float | None:
        """Probability of a random action in evaluations; None where actions are drawn anyway."""
        return None

    def with_random_action_rate(self, rate: float) -> "AlgorithmConfig":
        """Returns the settings evaluated with another rate; the same where actions are drawn."""
        return self


def divisors(number: int) -> list[int]:
    """Returns all divisors in rising order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def check_one_of(name: str, value: int, allowed: list[int], whole: str, hint: str = "") -> None:
    """Refuses a value that is not allowed, naming the nearest that is. Raises `UserError`."""
    if value not in allowed:
        near = min(allowed, key=lambda n: abs(n - value))
        raise UserError(f"{name} = {value} does not divide {whole}: take {near}{hint}")


@dataclass(frozen=True)
class EpochsConfig(AlgorithmConfig):
    """Settings of the algorithms that pass over each rollout several times, in minibatches."""

    epochs: Count = 4
    """passes over each rollout"""
    num_minibatches: Count = 4
    """gradient steps per epoch; each takes as many steps of every environment"""

    def gradient_steps(self, num_envs: int) -> int:
        """Returns the gradient steps of one update."""
        return self.epochs * self.num_minibatches

    def with_one_gradient(self) -> Self:
        """Returns the settings with one gradient step to an update, on the whole rollout."""
        return dataclasses.replace(self, epochs=1, num_minibatches=1)

    def batch_per_learner(self, sizes: Sizes) -> int:
        """Returns the rows of one learner's minibatch; of whole sequences, their number."""
        length = 1 if sizes.sequences else self.rollout_length
        return sizes.envs_per_learner * length // self.num_minibatches

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses minibatches that do not divide a rollout. Raises `UserError`."""
        if sizes.sequences:
            allowed = divisors(sizes.envs_per_learner)
            check_one_of("agent.num_minibatches", self.num_minibatches, allowed, sizes.whole)
            return
        length = self.rollout_length
        whole = f"agent.rollout_length = {length}"
        check_one_of("agent.num_minibatches", self.num_minibatches, divisors(length), whole)
