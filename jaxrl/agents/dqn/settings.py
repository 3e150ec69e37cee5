"""Settings of DQN."""

from dataclasses import dataclass

from jaxrl.config.value_based import SoftQLearningConfig


@dataclass(frozen=True)
class DQNConfig(SoftQLearningConfig):
    """Deep Q-network (Mnih 2015); double (van Hasselt 2016) and prioritized (Schaul 2016)."""
