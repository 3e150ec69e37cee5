"""Settings that several value-based algorithms have, in groups.

The keys of `[agent]` are flat, and so are the fields of an algorithm's dataclass, which inherits
the groups that it has. Where several groups answer a question of the host, `super` asks the next.
"""

import dataclasses
from dataclasses import dataclass
from fractions import Fraction as Ratio
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from jaxrl.config.algorithm_base import (
    STACK_SIZE,
    AlgorithmConfig,
    Sizes,
    check_one_of,
    divisors,
)
from jaxrl.config.bounds import INT32, Count, Fraction, LongCount, LongCountOrZero
from jaxrl.errors import UserError

Intensity = Annotated[float, Gt(0), INT32]
Atoms = Annotated[int, Ge(2), INT32]
LEAST_SPREAD = 10  # environments that have the shares 0.4, 0.3 and 0.3


def check_support(v_min: float, v_max: float, num_atoms: int) -> None:
    """Refuses a support whose atoms float32 cannot tell apart. Raises `UserError`."""
    if not -1e6 <= v_min < v_max <= 1e6:
        raise UserError(
            f"agent.v_min = {v_min} must be below agent.v_max = {v_max}, both within a million"
        )
    spacing = (v_max - v_min) / (num_atoms - 1)
    if spacing < 1e-5 * max(abs(v_min), abs(v_max)):
        raise UserError(
            f"agent.v_min = {v_min} and agent.v_max = {v_max} are too close for "
            f"agent.num_atoms = {num_atoms}"
        )


@dataclass(frozen=True)
class ActionValueConfig(AlgorithmConfig):
    """The evaluation of agents that act by action values."""

    has_action_values: ClassVar[bool] = True

    evaluation_epsilon: Fraction = 0.001
    """probability of a random action in `jaxrl evaluate` and `jaxrl play`"""

    @property
    def random_action_rate(self) -> float | None:
        """Probability of a random action in evaluations."""
        return self.evaluation_epsilon

    def with_random_action_rate(self, rate: float) -> "AlgorithmConfig":
        """Returns the settings evaluated with another rate."""
        return dataclasses.replace(self, evaluation_epsilon=rate)


@dataclass(frozen=True)
class ValueConfig(ActionValueConfig):
    """Exploration by an epsilon that falls."""

    epsilon_start: Fraction = 1.0
    """probability of a random action at the first step"""
    epsilon_end: Fraction = 0.01
    """probability of a random action after epsilon_decay_steps, or which it nears"""
    epsilon_decay_steps: Count = 1_000_000
    """agent steps over which epsilon falls linearly, or the time constant of its fall"""
    epsilon_schedule: Literal["linear", "geometric"] = "linear"
    """linear; geometric: what is left to epsilon_end shrinks by the factor e (2.718) in every
    epsilon_decay_steps, as in Beyond the Rainbow"""
    epsilon_spread: bool = False
    """epsilon ends at 0.1, 0.01 and 0.5 in four, three and three tenths of each device's
    environments (Mnih 2016), instead of at epsilon_end in all"""

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses `epsilon_spread` where its shares cannot be had. Raises `UserError`."""
        # Epsilons are given by place among the environments that are answered together.
        if self.epsilon_spread and sizes.groups > 1:
            raise UserError(
                "agent.epsilon_spread: is of all environments at once; leave parallel.groups at 1"
            )
        if self.epsilon_spread and sizes.envs_per_learner < LEAST_SPREAD:
            raise UserError(
                f"agent.epsilon_spread: the {sizes.envs_per_learner} environments of a "
                f"{sizes.owner} are too few for its shares: take {LEAST_SPREAD} or more on each, "
                "or --agent.no-epsilon-spread"
            )
        super().check_sizes(sizes)

    def for_evaluation(self) -> "AlgorithmConfig":
        """Returns the settings with `evaluation_epsilon` from the first step on."""
        rate = self.evaluation_epsilon
        return dataclasses.replace(self, epsilon_start=rate, epsilon_end=rate, epsilon_spread=False)


@dataclass(frozen=True)
class ReplayConfig(AlgorithmConfig):
    """Settings of the algorithms with a replay, scaled up as by Stooke & Abbeel 2018."""

    can_learn_apart: ClassVar[bool] = False
    batch_grows_with_envs: ClassVar[bool] = False
    memory_savers: ClassVar[tuple[str, ...]] = (
        "a smaller agent.batch_size or agent.replay_capacity",
    )
    # The items of a batch, for messages.
    drawn: ClassVar[str] = "transitions"
    per_item: ClassVar[str] = ""

    rollout_length: Count = 4
    """agent steps of every environment between two updates"""
    n_step: Count = 1
    """steps of reward before the bootstrap"""
    double_q: bool = False
    """the online network chooses the bootstrap's action, the target network values it"""
    batch_size: Count = 32
    """transitions of one gradient step, over all devices"""
    training_intensity: Intensity = 8.0
    """transitions trained on per transition played (DQN: 32 every 4 steps)"""
    replay_capacity: LongCount = 1_000_000
    """transitions kept, over all devices; each takes a byte for each pixel of its frame, and 8 more
    (7 KB of 84 x 84)"""
    learning_starts: LongCountOrZero = 80_000
    """agent steps before the first gradient step"""
    target_update_interval: Count = 10_000
    """agent steps between two copies into the target network"""
    priority_exponent: Fraction = 0.0
    """transitions are drawn as their last error to this power (Schaul 2016's alpha); 0 draws all
    alike"""
    importance_exponent: Fraction = 0.4
    """how far weights make up for that (beta), at the start; of r2d2 always"""

    @property
    def steps_per_item(self) -> int:
        """Transitions that one item of a batch trains on."""
        return 1

    def transitions_per_row(self, sequences: bool) -> int:
        """Returns the transitions of an item of a batch."""
        return self.steps_per_item

    def gradient_steps(self, num_envs: int) -> int:
        """Returns the gradient steps of one update."""
        played = num_envs * self.rollout_length
        return round(self.training_intensity * played / (self.batch_size * self.steps_per_item))

    def batch_per_learner(self, sizes: Sizes) -> int:
        """Returns the items of one device's batch."""
        return self.batch_size // sizes.num_devices

    def first_learning_step(self, num_envs: int) -> int:
        """Returns the agent steps before the first gradient step."""
        return self.learning_starts

    def _least_capacity(self, num_envs: int) -> int:
        """Returns the transitions without which a batch could not be drawn."""
        return num_envs * (self.n_step + STACK_SIZE + 2 * self.rollout_length)

    def check(self, num_envs: int) -> None:
        """Refuses a replay that is too small. Raises `UserError`."""
        smallest = self._least_capacity(num_envs)
        if self.replay_capacity < smallest:
            raise UserError(
                f"agent.replay_capacity = {self.replay_capacity}: {num_envs} environments "
                f"need at least {smallest}"
            )
        if self.learning_starts > self.replay_capacity:
            raise UserError(
                f"agent.learning_starts = {self.learning_starts}: must not be above "
                f"agent.replay_capacity = {self.replay_capacity}"
            )

    def check_sizes(self, sizes: Sizes) -> None:
        """Refuses batches that do not divide the transitions of an update."""
        super().check_sizes(sizes)
        steps, devices = sizes.num_envs * self.rollout_length, sizes.num_devices
        played = Ratio(self.training_intensity).limit_denominator(10**6) * steps
        if played >= 2**31:
            raise UserError(f"agent.training_intensity = {self.training_intensity}: is too large")
        items = played / self.steps_per_item
        allowed = [n for n in divisors(int(items)) if n % devices == 0]
        product = "num_envs x agent.rollout_length x agent.training_intensity" + self.per_item
        if items.denominator > 1 or not allowed:
            share = "be a whole number" if devices == 1 else f"divide among {devices}"
            near = max(1, round(items / devices)) * devices * self.steps_per_item / steps
            raise UserError(
                f"agent.training_intensity = {self.training_intensity}: the {float(items):g} "
                f"{self.drawn} to train on per update ({product}) must {share}: take {near:.6g}"
            )
        whole = f"the {int(items)} {self.drawn} to train on per update ({product})"
        check_one_of("agent.batch_size", self.batch_size, allowed, whole)

    def remembered(self, num_envs: int) -> int:
        """Returns the transitions that the replay holds, over all devices."""
        return self.replay_capacity

    @property
    def remembers_past(self) -> bool:
        """Returns whether the memory is so large that checkpoints may leave it out."""
        return True

    def memory_refused(self, need: str, free: str, fits: int) -> UserError:
        """Returns the error of a replay that needs more than is free."""
        rounded = fits // 10_000 * 10_000 or fits
        return UserError(
            f"agent.replay_capacity = {self.replay_capacity}: needs {need}, and {free} are free: "
            f"{rounded} would fit"
        )

    def for_timing(self, num_envs: int) -> "AlgorithmConfig":
        """Returns the settings with a small replay that need not be filled first."""
        least = max(50_000, self._least_capacity(num_envs))
        capacity = min(self.replay_capacity, least)
        return dataclasses.replace(self, learning_starts=0, replay_capacity=capacity)


@dataclass(frozen=True)
class Munchausen:
    """The settings of Munchausen targets (`jaxrl.ops.munchausen`)."""

    scale: float
    temperature: float
    clip: float
    online: bool  # the log-probability is the online network's


@dataclass(frozen=True)
class QLearningConfig(ReplayConfig, ValueConfig):
    """Settings of the algorithms that learn from single transitions of a replay."""

    can_be_noisy: ClassVar[bool] = True

    importance_exponent_end: Fraction = 1.0
    """importance_exponent at total_steps, to which it moves linearly"""

    @property
    def munchausen(self) -> Munchausen | None:
        """The Munchausen targets; None without them."""
        return None


@dataclass(frozen=True)
class SoftQLearningConfig(QLearningConfig):
    """Settings of those among them whose targets may be Munchausen's (Vieillard 2020)."""

    munchausen_scale: Fraction = 0.0
    """share of the policy's log-probability that is added to the reward (alpha; the paper's is
    0.9); 0: the targets are those of a best action"""
    munchausen_temperature: Annotated[float, Gt(0)] = 0.03
    """temperature of the policy that Munchausen targets follow (tau)"""
    munchausen_clip: Annotated[float, Le(0)] = -1.0
    """least log-probability, times the temperature, that is added"""
    munchausen_network: Literal["target", "online"] = "target"
    """network whose log-probability is added: the target network's, as in the paper, or the online
    network's, as in the code of Beyond the Rainbow; here it comes from the pass that learns"""

    @property
    def munchausen(self) -> Munchausen | None:
        """The Munchausen targets; None without them."""
        if self.munchausen_scale == 0:
            return None
        return Munchausen(
            self.munchausen_scale,
            self.munchausen_temperature,
            self.munchausen_clip,
            online=self.munchausen_network == "online",
        )

    def check(self, num_envs: int) -> None:
        """Refuses Munchausen targets of two networks. Raises `UserError`."""
        super().check(num_envs)
        if self.munchausen_network == "online" and not self.munchausen:
            raise UserError(
                "agent.munchausen_network = 'online': nothing is added to the reward: take "
                "agent.munchausen_scale = 0.9, or 'target'"
            )
        if self.munchausen and self.double_q:
            raise UserError(
                "agent.double_q = true: Munchausen targets have no best action: take false, or "
                "agent.munchausen_scale = 0"
            )
