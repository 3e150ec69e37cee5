"""Engines: batches of environments behind the one contract `jaxrl.types.EnvEngine`."""

from jaxrl.config import CATCH, Config
from jaxrl.envs.catch import make_catch
from jaxrl.envs.envpool import make_envpool
from jaxrl.types import EnvEngine


def make_engine(config: Config, num_envs: int, num_local_devices: int = 1) -> EnvEngine:
    """The engine that plays the configuration's game, with `num_envs` on each local device."""
    make = make_catch if config.game == CATCH else make_envpool
    return make(config, num_envs, num_local_devices)
