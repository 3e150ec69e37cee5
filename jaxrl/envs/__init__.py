"""Engines: batches of environments behind the one contract `jaxrl.types.EnvEngine`.

Every name is imported when it is first used: the emulator's `VectorEnv` runs without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.envs.engines import (
        check_engine,
        check_starts_many,
        choose_engine,
        make_engine,
        make_engines,
    )

__all__ = ["check_engine", "check_starts_many", "choose_engine", "make_engine", "make_engines"]


def __getattr__(name: str) -> Any:
    """Imports a name of `jaxrl.envs.engines`."""
    if name not in __all__:
        raise AttributeError(f"module 'jaxrl.envs' has no attribute '{name}'")
    return getattr(importlib.import_module("jaxrl.envs.engines"), name)
