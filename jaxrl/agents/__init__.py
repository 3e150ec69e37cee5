"""Learning algorithms, one file each. `make_agent` finds the one that a configuration names."""

from jaxrl.config.plan import Plan
from jaxrl.config.toml import agent_module
from jaxrl.types import Agent, EnvSpec


def make_agent(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the agent of the configuration's algorithm for environments as `spec` has them."""
    return agent_module(plan.config.algorithm).make(plan, spec)
