"""Learning algorithms, one file each. `make_agent` finds the one that a configuration names."""

import importlib

from jaxrl.config.schema import Config
from jaxrl.types import Agent, EnvSpec


def make_agent(config: Config, spec: EnvSpec) -> Agent:
    """Returns the agent of `jaxrl.agents.<algorithm>` for environments as `spec` has them."""
    return importlib.import_module(f"jaxrl.agents.{config.algorithm}").make(config, spec)
