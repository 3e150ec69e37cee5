"""Engines: batches of environments behind the one contract `jaxrl.types.EnvEngine`.

Every name is imported when it is first used: the emulator's `VectorEnv` runs without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.envs.atari2600.vector_env import VectorEnv
    from jaxrl.envs.engines import (
        check_engine,
        check_starts_many,
        choose_engine,
        make_engine,
        make_engines,
    )

__all__ = [
    "VectorEnv", "check_engine", "check_starts_many", "choose_engine", "make_engine",
    "make_engines",
]  # fmt: skip
_ELSEWHERE = {"VectorEnv": "atari2600.vector_env"}


def __getattr__(name: str) -> Any:
    """Imports a name from its module."""
    if name not in __all__:
        raise AttributeError(f"module 'jaxrl.envs' has no attribute '{name}'")
    return getattr(importlib.import_module(f"jaxrl.envs.{_ELSEWHERE.get(name, 'engines')}"), name)
