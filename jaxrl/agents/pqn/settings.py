"""Settings of PQN."""

from dataclasses import dataclass

from jaxrl.config.algorithm_base import EpochsConfig
from jaxrl.config.bounds import Count, Fraction
from jaxrl.config.value_based import ValueConfig


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
