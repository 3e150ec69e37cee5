"""Settings of A2C."""

from dataclasses import dataclass
from typing import ClassVar

from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.config.bounds import Weight


@dataclass(frozen=True)
class A2CConfig(AlgorithmConfig):
    """Synchronous advantage actor-critic (A3C, Mnih 2016; PAAC, Clemente 2017)."""

    can_remember: ClassVar[bool] = True

    entropy_coef: Weight = 0.01
    """weight of the entropy bonus"""
    value_coef: Weight = 0.25
    """weight of the mean squared error of the values"""
    loss_scale: float = 1.0
    """factor on the whole loss (PAAC: 5); matters to eps and to max_grad_norm"""
    log_epsilon: Weight = 0.0
    """GA3C's log(pi + epsilon); 0 is the plain logarithm"""
