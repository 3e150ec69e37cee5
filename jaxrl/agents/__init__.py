"""Learning algorithms, a folder each. `make_agent` finds the one that a configuration names."""

from typing import TYPE_CHECKING

from jaxrl.config.algorithms import agent_module
from jaxrl.config.plan import Plan

if TYPE_CHECKING:  # settings are imported through this file, and without JAX
    from jaxrl.types import Agent, EnvSpec


def make_agent(plan: Plan, spec: "EnvSpec") -> "Agent":
    """Returns the agent of the configuration's algorithm for environments as `spec` has them."""
    return agent_module(plan.config.algorithm).make(plan, spec)
