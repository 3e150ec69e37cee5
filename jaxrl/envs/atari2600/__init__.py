"""Our own Atari 2600, in C++ (native/), behind the contract of engines and as `VectorEnv`.

`VectorEnv` is imported when it is first used: it needs Gymnasium, and nothing else here does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.envs.atari2600.vector_env import VectorEnv

__all__ = ["VectorEnv"]


def __getattr__(name: str) -> Any:
    """Imports the vector environment."""
    if name != "VectorEnv":
        raise AttributeError(f"module 'jaxrl.envs.atari2600' has no attribute '{name}'")
    from jaxrl.envs.atari2600.vector_env import VectorEnv

    return VectorEnv
