"""Settings of V-trace."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from jaxrl.config.algorithm_base import STACK_SIZE, AlgorithmConfig, Sizes, check_one_of, divisors
from jaxrl.config.bounds import Count, CountOrZero, Fraction, Unlimited, Weight
from jaxrl.errors import UserError


@dataclass(frozen=True)
class VTraceConfig(AlgorithmConfig):
    """Actor-critic with V-trace (IMPALA, Espeholt 2018; CuLE, Dalton 2019)."""

    can_remember: ClassVar[bool] = True
    batch_unit: ClassVar[str] = "windows"
    memory_savers: ClassVar[tuple[str, ...]] = ("a shorter agent.window",)

    rollout_length: Count = 1
    """agent steps of every environment between two updates"""
    window: Count = 20
    """newest agent steps of an environment that a gradient step learns from"""
    burn_in: CountOrZero = 0
    """with network.core: steps before the window that only refresh the recurrent state, which was
    stored as they were played (R2D2, Kapturowski 2019)"""
    num_minibatches: Count = 20
    """parts of the environments, which take turns: one gradient step learns from one of them"""
    updates_per_rollout: Count = 1
    """gradient steps between two rollouts"""
    clip_rho: Unlimited = 1.0
    """upper limit of the ratio of policies in the temporal differences"""
    clip_c: Unlimited = 1.0
    """upper limit of the ratio of policies in the traces"""
    vtrace_lambda: Fraction = 1.0
    """factor of the traces; less than 1 trusts the values more, and gives less noise"""
    entropy_coef: Weight = 0.01
    """weight of the entropy bonus at the start"""
    entropy_schedule: Literal["constant", "linear"] = "constant"
    """constant; linear, to 0 at total_steps, so that the policy settles"""
    value_coef: Weight = 0.5
    """weight of the mean squared error of the values"""
    micro_batch: CountOrZero = 0
    """windows per gradient pass (all passes together make one gradient); 0 lets the platform
    choose"""

    @property
    def needs_core(self) -> str:
        """Why the settings need `network.core`: there is a burn-in."""
        if not self.burn_in:
            return ""
        return "agent.burn_in: refreshes the state of a recurrent core: leave it at 0, or"

    def gradient_steps(self, num_envs: int) -> int:
        """Returns the gradient steps of one update."""
        return self.updates_per_rollout

    def with_one_gradient(self) -> Self:
        """Returns the settings with one gradient step to an update."""
        return dataclasses.replace(self, updates_per_rollout=1)

    def transitions_per_row(self, sequences: bool) -> int:
        """Returns the transitions of a window."""
        return self.window

    def batch_per_learner(self, sizes: Sizes) -> int:
        """Returns the windows of one learner's minibatch."""
        return sizes.envs_per_learner // self.num_minibatches

    @property
    def steps_per_row(self) -> int:
        """Observations of a window, with the one after its last step."""
        return self.burn_in + self.window + 1

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses minibatches that do not divide the environments, or that miss steps."""
        count = self.num_minibatches
        each = math.lcm(count, sizes.groups) * sizes.num_learners
        fitting = max(each, round(sizes.num_envs / each) * each)
        hint = f", or num_envs = {fitting}"
        allowed = divisors(sizes.envs_per_learner)
        check_one_of("agent.num_minibatches", count, allowed, sizes.whole, hint)
        least = -(-count // self.updates_per_rollout) * self.rollout_length
        if self.window < least:
            raise UserError(
                f"agent.window = {self.window}: is shorter than what is played between two turns "
                f"of a minibatch, so that steps would be left out: take at least {least}, or "
                "fewer of agent.num_minibatches, or a shorter agent.rollout_length"
            )

    def remembered(self, num_envs: int) -> int:
        """Returns the transitions of all windows, with whole stacks and in whole rollouts."""
        rows = self.burn_in + self.window + STACK_SIZE - 1
        return num_envs * -(-rows // self.rollout_length) * self.rollout_length

    @property
    def states_per_transition(self) -> float:
        """One: the state before each step is stored."""
        return 1.0

    def memory_refused(self, need: str, free: str, fits: int) -> UserError:
        """Returns the error of windows that need more than is free."""
        return UserError(
            f"agent.window = {self.window} and agent.rollout_length = {self.rollout_length} need "
            f"{need}, and {free} are free, a tenth of them for networks and batches: take fewer of "
            "num_envs, or shorter windows"
        )
