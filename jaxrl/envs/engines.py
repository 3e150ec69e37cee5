"""Chooses and makes the engine of a configuration."""

from typing import Any

from jaxrl import extensions
from jaxrl.atari.games import CATCH_GAMES, atari_games
from jaxrl.config.schema import Config
from jaxrl.config.variations import shown
from jaxrl.envs.atari2600.engine import check_config as check_atari2600
from jaxrl.envs.atari2600.engine import make_atari2600, plays
from jaxrl.envs.base import WHOLE, EnvGroup
from jaxrl.envs.catch import make_catch
from jaxrl.envs.envpool.engine import check_config as check_envpool
from jaxrl.envs.envpool.engine import has_custom_call, make_envpool
from jaxrl.envs.flicker import flicker
from jaxrl.errors import UserError
from jaxrl.runtime import jax_settings
from jaxrl.types import EnvEngine

MAKERS = {"catch": make_catch, "envpool": make_envpool, "atari2600": make_atari2600}


def make_engine(
    config: Config, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns the engine of the configured game, with `num_envs` on each local device.

    Raises `UserError` where JAX's settings would let nothing run, or the engine shows no colors.
    """
    jax_settings.check()
    name = engine_name(config)
    make: Any = MAKERS.get(name) or extensions.load(extensions.ENGINES, name).make
    engine: EnvEngine = make(config, num_envs, num_local_devices, group)
    if engine.spec.planes != config.planes():
        engine.close()
        raise UserError(
            f"env.grayscale = {shown(config.env.grayscale)}: the engine '{name}' shows "
            f"{engine.spec.planes} byte{'s' * (engine.spec.planes != 1)} of a pixel, not "
            f"{config.planes()}"
        )
    engine = engine._replace(spec=engine.spec._replace(stack_size=config.env.stack))
    return flicker(engine, config.env.flicker) if config.env.flicker else engine


def engine_name(config: Config) -> str:
    """Returns the engine that plays a configuration.

    `auto` is decided here: our own Atari 2600 where it plays the game and can be built (but not its
    kernels of GPUs), else EnvPool; of a game that neither knows, the engine of another package.
    """
    if config.env.engine != "auto":
        return config.env.engine
    if config.game in CATCH_GAMES:
        return "catch"
    if config.game not in atari_games() and (other := extensions.engine_of(config.game)):
        return other
    return "atari2600" if plays(config) else "envpool"


def make_engines(
    config: Config, num_envs: int, num_local_devices: int = 1, members: int = 1
) -> tuple[EnvEngine, ...]:
    """Returns one engine for each of `parallel.groups`, which share a device's `num_envs`.

    An engine holds as many for each of the `members` of a population.
    """
    return tuple(
        make_engine(
            config,
            members * num_envs // config.parallel.groups,
            num_local_devices,
            EnvGroup(index, config.parallel.groups, members),
        )
        for index in range(config.parallel.groups)
    )


def check_starts_many(config: Config) -> None:
    """Raises `UserError` if the engine cannot start games of several seeds, for a population."""
    name = engine_name(config)
    if name not in MAKERS:  # `init` of other packages takes one seed
        raise UserError(
            f"--seeds: the engine '{name}' starts games of one seed: train the seeds one by one"
        )


def check_engine(config: Config) -> None:
    """Raises `UserError` if the engine cannot play by the configuration on this machine.

    Devices are looked for here, and the emulator is built if it has to be.
    """
    jax_settings.check()
    name = engine_name(config)
    if name not in MAKERS:
        module = extensions.load(extensions.ENGINES, name)
        if not callable(getattr(module, "make", None)):
            raise UserError(f"{extensions.ENGINES}: {module.__name__} must define make")
        check = getattr(module, "check", None)
        if check is not None:
            check(config)
    if name == "atari2600":
        check_atari2600(config)
    if name == "envpool":
        check_envpool(config)
    if name in ("envpool", "catch") and config.env.interface == "stream":
        raise UserError(
            f"env.interface = 'stream': {name} has none; take auto, or for Atari --env.engine "
            "atari2600"
        )
    if name == "envpool" and config.env.interface == "xla" and not has_custom_call():
        raise UserError(
            "env.interface = 'xla': EnvPool has no custom call for this platform; take auto or "
            "callback"
        )
