"""Learning algorithms, one file each. `make_agent` finds the one that a configuration names."""

import importlib

from jaxrl.config.plan import Plan
from jaxrl.types import Agent, EnvSpec


def make_agent(plan: Plan, spec: EnvSpec) -> Agent:
    """Returns the agent of `jaxrl.agents.<algorithm>` for environments as `spec` has them."""
    return importlib.import_module(f"jaxrl.agents.{plan.config.algorithm}").make(plan, spec)
