"""Settings of PQN."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from jaxrl.config.algorithm_base import EpochsConfig
from jaxrl.config.bounds import Count, Fraction
from jaxrl.config.value_based import Atoms, ValueConfig, check_support


@dataclass(frozen=True)
class PQNConfig(ValueConfig, EpochsConfig):
    """Parallelised Q-network (Gallici 2025): lambda-returns, no replay, no target network."""

    rollout_length: Count = 32
    """agent steps of every environment between two updates"""
    q_lambda: Fraction = 0.65
    """weight of longer returns in the targets: 0 one step, 1 the whole rollout"""
    epochs: Count = 2
    """passes over each rollout"""
    num_minibatches: Count = 32
    """gradient steps per epoch; each takes as many steps of every environment"""
    value_loss: Literal["squared", "hl_gauss", "two_hot"] = "squared"
    """half the squared error of values; or the cross-entropy of distributions whose means are the
    values, from each target's histogram (Farebrother 2024): hl_gauss: a Gaussian around it;
    two_hot: the two atoms beside it"""
    num_atoms: Atoms = 51
    """hl_gauss, two_hot: bins or atoms of an action's distribution"""
    v_min: float = -10.0
    """hl_gauss: lower edge of the lowest bin; two_hot: return at the lowest atom"""
    v_max: float = 10.0
    """hl_gauss: upper edge of the highest bin; two_hot: return at the highest atom"""
    sigma_ratio: Annotated[float, Ge(0.01), Le(100)] = 0.75
    """hl_gauss: standard deviation of the Gaussian, in widths of a bin"""

    def check(self, num_envs: int) -> None:
        """Refuses a support whose atoms float32 cannot tell apart. Raises `UserError`."""
        super().check(num_envs)
        if self.value_loss != "squared":
            check_support(self.v_min, self.v_max, self.num_atoms)
