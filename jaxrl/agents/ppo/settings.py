"""Settings of PPO."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxrl.config.algorithm_base import EpochsConfig
from jaxrl.config.bounds import Count, Fraction, Positive, Weight


@dataclass(frozen=True)
class PPOConfig(EpochsConfig):
    """Proximal policy optimization (Schulman 2017)."""

    can_adapt_rate: ClassVar[bool] = True
    can_remember: ClassVar[bool] = True

    rollout_length: Count = 128
    """agent steps of every environment between two updates"""
    gae_lambda: Fraction = 0.95
    """weight of longer returns in the advantages: 0 one step, 1 the whole rollout"""
    clip: Weight = 0.1
    """how far from 1 the ratio of new to old probability still has a gradient"""
    clip_value: bool = False
    """clip the change of the values likewise"""
    entropy_coef: Weight = 0.01
    """weight of the entropy bonus at the start"""
    entropy_schedule: Literal["constant", "linear"] = "constant"
    """constant; linear, to 0 at total_steps, so that the policy settles"""
    value_coef: Weight = 0.5
    """weight of half the mean squared error of the values"""
    normalize_advantages: bool = True
    """to mean 0 and deviation 1 in each minibatch, over all devices"""
    normalize_values: bool = False
    """the network predicts returns in running standard deviations from their running mean"""
    kl_target: Positive = 0.01
    """nats; the adaptive learning rate grows where the mean divergence of an epoch's minibatches is
    below half of it, and shrinks where it is above twice"""
