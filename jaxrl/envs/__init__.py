"""Engines: batches of environments behind the one contract `jaxrl.types.EnvEngine`."""

from jaxrl.config import CATCH, Config
from jaxrl.envs.catch import make_catch
from jaxrl.envs.engine import WHOLE, Group
from jaxrl.envs.envpool import has_custom_call as has_custom_call
from jaxrl.envs.envpool import make_envpool
from jaxrl.envs.envpool import presses_fire as presses_fire
from jaxrl.types import EnvEngine


def make_engine(
    config: Config, num_envs: int, num_local_devices: int = 1, group: Group = WHOLE
) -> EnvEngine:
    """The engine that plays the configuration's game, with `num_envs` on each local device."""
    make = make_catch if config.game == CATCH else make_envpool
    return make(config, num_envs, num_local_devices, group)


def make_engines(
    config: Config, num_envs: int, num_local_devices: int = 1
) -> tuple[EnvEngine, ...]:
    """One engine for each of `config.groups`, which share a device's `num_envs`."""
    return tuple(
        make_engine(
            config, num_envs // config.groups, num_local_devices, Group(index, config.groups)
        )
        for index in range(config.groups)
    )
