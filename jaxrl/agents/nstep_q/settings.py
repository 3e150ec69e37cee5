"""Settings of n-step Q-learning."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxrl.config.bounds import Count
from jaxrl.config.value_based import ValueConfig


@dataclass(frozen=True)
class NStepQConfig(ValueConfig):
    """Asynchronous one-step Q, one-step Sarsa and n-step Q (Mnih 2016), made synchronous."""

    can_learn_apart: ClassVar[bool] = False

    rollout_length: Count = 5
    """agent steps of every environment between two updates"""
    target: Literal["n_step", "one_step", "sarsa"] = "n_step"
    """n_step: rewards to the end of the rollout, then the best action's value; one_step: one
    reward, then that; sarsa: one reward, then the value of the action that was taken"""
    target_update_interval: Count = 10_000
    """agent steps between two copies into the target network"""
