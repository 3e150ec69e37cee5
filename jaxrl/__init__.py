"""jaxrl: reinforcement learning on Atari 2600, compiled from end to end by JAX.

    run = jaxrl.train("ppo_pong", game="breakout", run_dir="runs/x")
    policy = jaxrl.load_policy("runs/x")
    table = jaxrl.load_runs(["runs/x", "runs/y"])

Every name is imported when it is first used, so that `import jaxrl` starts nothing.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.api import (
        Run,
        load_config,
        load_policy,
        load_runs,
        make_engine,
        resume,
        train,
    )
    from jaxrl.config.schema import Config
    from jaxrl.errors import RunError, UserError
    from jaxrl.evaluation.policy import Policy

    __version__: str

__all__ = [
    "Config", "Policy", "Run", "RunError", "UserError", "load_config", "load_policy", "load_runs",
    "make_engine", "resume", "train",
]  # fmt: skip
_ELSEWHERE = {
    "Config": "config.schema", "Policy": "evaluation.policy", "RunError": "errors",
    "UserError": "errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports a public name from its room."""
    if name == "__version__":
        return importlib.metadata.version("jaxrl")
    if name not in __all__:
        raise AttributeError(f"module 'jaxrl' has no attribute '{name}'")
    return getattr(importlib.import_module(f"jaxrl.{_ELSEWHERE.get(name, 'api')}"), name)
