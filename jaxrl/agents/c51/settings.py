"""Settings of C51."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from jaxrl.config.bounds import INT32
from jaxrl.config.value_based import QLearningConfig
from jaxrl.errors import UserError

Atoms = Annotated[int, Ge(2), INT32]


@dataclass(frozen=True)
class C51Config(QLearningConfig):
    """Categorical DQN (Bellemare 2017); with all of its options Rainbow (Hessel 2018)."""

    has_distributions: ClassVar[bool] = True

    num_atoms: Atoms = 51
    """atoms of the return's distribution"""
    v_min: float = -10.0
    """return at the lowest atom"""
    v_max: float = 10.0
    """return at the highest atom"""

    def check(self, num_envs: int) -> None:
        """Refuses a support whose atoms float32 cannot tell apart. Raises `UserError`."""
        super().check(num_envs)
        if not -1e6 <= self.v_min < self.v_max <= 1e6:
            raise UserError(
                f"agent.v_min = {self.v_min} must be below agent.v_max = {self.v_max}, "
                "both within a million"
            )
        spacing = (self.v_max - self.v_min) / (self.num_atoms - 1)
        if spacing < 1e-5 * max(abs(self.v_min), abs(self.v_max)):
            raise UserError(
                f"agent.v_min = {self.v_min} and agent.v_max = {self.v_max} are too close for "
                f"agent.num_atoms = {self.num_atoms}"
            )
