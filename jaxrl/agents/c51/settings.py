"""Settings of C51."""

from dataclasses import dataclass
from typing import ClassVar

from jaxrl.config.value_based import Atoms, QLearningConfig, check_support


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
        check_support(self.v_min, self.v_max, self.num_atoms)
