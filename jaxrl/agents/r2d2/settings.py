"""Settings of R2D2."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from jaxrl.config.algorithm_base import STACK_SIZE, AlgorithmConfig, Sizes, check_one_of, divisors
from jaxrl.config.bounds import Count, CountOrZero, Fraction, Weight
from jaxrl.config.value_based import ActionValueConfig, Intensity, ReplayConfig
from jaxrl.errors import UserError


@dataclass(frozen=True)
class R2D2Config(ReplayConfig, ActionValueConfig):
    """Recurrent replay distributed DQN (Kapturowski 2019)."""

    can_remember: ClassVar[bool] = True
    batch_unit: ClassVar[str] = "sequences"
    drawn: ClassVar[str] = "sequences"
    per_item: ClassVar[str] = " / agent.sequence_length"

    rollout_length: Count = 40
    """agent steps of every environment between two updates; a divisor of sequence_stride"""
    sequence_length: Count = 80
    """agent steps of a sequence that are learned from"""
    burn_in: CountOrZero = 40
    """steps before them that only refresh the recurrent state, which was stored as they were
    played"""
    sequence_stride: Count = 40
    """agent steps of an environment from the start of a sequence to that of the next"""
    n_step: Count = 5
    """steps of reward before the bootstrap; fewer at the end of a sequence"""
    double_q: bool = True
    """the online network chooses the bootstrap's action, the target network values it"""
    batch_size: Count = 64
    """sequences of one gradient step, over all devices"""
    training_intensity: Intensity = 0.5
    """transitions trained on per transition played, the burn-in not counted"""
    priority_exponent: Fraction = 0.9
    """sequences are drawn as their priority to this power; 0 draws all alike"""
    priority_max_weight: Fraction = 0.9
    """weight of the largest error of a sequence in its priority; their mean has the rest (eta)"""
    importance_exponent: Fraction = 0.6
    """how far weights make up for uneven drawing (beta); 0 leaves them out"""
    rescaling: Weight = 1e-3
    """values are learned as sign(x)(sqrt(|x| + 1) - 1) + rescaling x (Pohlen 2018), so that rewards
    need no clipping"""
    epsilon_base: Fraction = 0.4
    """probability of a random action in environment 0 (Ape-X, Horgan 2018)"""
    epsilon_exponent: Weight = 7.0
    """environment i of N explores with epsilon_base ^ (1 + epsilon_exponent i / (N - 1))"""
    micro_batch: CountOrZero = 0
    """sequences per gradient pass (all passes together make one gradient); 0 lets the platform
    choose"""

    @property
    def needs_core(self) -> str:
        """Why the settings need `network.core`: there is no state to store without one."""
        return "network.core = 'none': r2d2 stores the state of a recurrent core:"

    @property
    def steps_per_item(self) -> int:
        """Transitions that one sequence trains on."""
        return self.sequence_length

    @property
    def steps_per_row(self) -> int:
        """Observations of a sequence, with the burn-in and the one after the last step."""
        return self.burn_in + self.sequence_length + 1

    def first_learning_step(self, num_envs: int) -> int:
        """Returns the agent steps before the first gradient step, over all devices.

        The first sequence with a whole stack must have ended.
        """
        first = -(-(STACK_SIZE - 1) // self.sequence_stride) * self.sequence_stride
        steps = first + self.steps_per_row
        rollouts = -(-steps // self.rollout_length)
        return max(self.learning_starts, rollouts * self.rollout_length * num_envs)

    def _least_capacity(self, num_envs: int) -> int:
        """Returns the transitions that hold a whole sequence at any time."""
        strides = -(-(self.steps_per_row + STACK_SIZE - 1) // self.sequence_stride) + 1
        return num_envs * strides * self.sequence_stride

    def check(self, num_envs: int) -> None:
        """Refuses sequences that do not begin with a rollout, or leave steps out."""
        if self.sequence_stride > self.sequence_length:
            raise UserError(
                f"agent.sequence_stride = {self.sequence_stride}: leaves out steps between "
                f"sequences of agent.sequence_length = {self.sequence_length}: take at most that"
            )
        whole = f"agent.sequence_stride = {self.sequence_stride}"
        allowed = divisors(self.sequence_stride)
        check_one_of("agent.rollout_length", self.rollout_length, allowed, whole)
        super().check(num_envs)

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses batches that do not divide, and groups, whose environments have no number."""
        # Epsilons are given by place among the environments that are answered together.
        if self.epsilon_exponent and sizes.groups > 1:
            raise UserError(
                "agent.epsilon_exponent: is of all environments at once; leave parallel.groups "
                "at 1, or take an epsilon_exponent of 0"
            )
        super().check_sizes(sizes)

    @property
    def states_per_transition(self) -> float:
        """One state at the start of each sequence."""
        return 1 / self.sequence_stride

    def for_evaluation(self) -> "AlgorithmConfig":
        """Returns the settings with `evaluation_epsilon` in every environment."""
        rate = self.evaluation_epsilon
        return dataclasses.replace(self, epsilon_base=rate, epsilon_exponent=0.0)
