"""Settings of DQN."""

from dataclasses import dataclass

from jaxrl.config.value_based import QLearningConfig


@dataclass(frozen=True)
class DQNConfig(QLearningConfig):
    """Deep Q-network (Mnih 2015); double (van Hasselt 2016) and prioritized (Schaul 2016)."""
