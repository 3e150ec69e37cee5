"""Settings of IQN."""

from dataclasses import dataclass

from jaxrl.config.bounds import Count
from jaxrl.config.value_based import SoftQLearningConfig


@dataclass(frozen=True)
class IQNConfig(SoftQLearningConfig):
    """Implicit quantile networks (Dabney 2018), also of Beyond the Rainbow (Clark 2024)."""

    num_quantiles: Count = 64
    """quantiles that are drawn where the network learns (N)"""
    target_quantiles: Count = 64
    """quantiles that are drawn of the return that follows (N')"""
    acting_quantiles: Count = 32
    """quantiles whose mean is an action's value, where actions are chosen (K)"""
