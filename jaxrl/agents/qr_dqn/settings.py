"""Settings of QR-DQN."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from jaxrl.config.bounds import INT32
from jaxrl.config.value_based import SoftQLearningConfig


@dataclass(frozen=True)
class QRDQNConfig(SoftQLearningConfig):
    """Quantile regression DQN (Dabney 2018)."""

    num_quantiles: Annotated[int, Ge(2), INT32] = 200
    """quantiles of an action's return"""
