"""jaxrl: reinforcement learning on Atari 2600, compiled from end to end by JAX.

    config = jaxrl.load_config(Path("ppo_pong")).replaced(game="breakout", run_dir="runs/x")
    jaxrl.train(config)
    table = jaxrl.load_table([Path("runs/x")])

Every name is imported when it is first used, so that `import jaxrl` starts nothing.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from jaxrl.analysis.tables import load_table
    from jaxrl.config.schema import Config
    from jaxrl.config.toml import load_recipe as load_config
    from jaxrl.evaluation.evaluate import evaluate, load_actor
    from jaxrl.evaluation.trace import trace
    from jaxrl.training.train import resume
    from jaxrl.training.train import start as train

__all__ = [
    "Config", "evaluate", "load_actor", "load_config", "load_table", "resume", "trace", "train",
]  # fmt: skip
_PLACES = {
    "Config": "config.schema:Config",
    "evaluate": "evaluation.evaluate:evaluate",
    "load_actor": "evaluation.evaluate:load_actor",
    "load_config": "config.toml:load_recipe",
    "load_table": "analysis.tables:load_table",
    "resume": "training.train:resume",
    "trace": "evaluation.trace:trace",
    "train": "training.train:start",
}


def __getattr__(name: str) -> Any:
    """Imports a public name from its room."""
    if name == "__version__":
        return importlib.metadata.version("jaxrl")
    if name not in _PLACES:
        raise AttributeError(f"module 'jaxrl' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"jaxrl.{module}"), attribute)
