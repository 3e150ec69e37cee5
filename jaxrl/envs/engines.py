"""Chooses and makes the engine of a game."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxrl.atari.games import CATCH_GAMES, atari_games
from jaxrl.config import extensions
from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config, EnvConfig
from jaxrl.config.variations import shown
from jaxrl.envs.atari2600 import engine as atari2600
from jaxrl.envs.base import WHOLE, EnvGroup, check_mode
from jaxrl.envs.catch import make_catch
from jaxrl.envs.envpool import engine as envpool
from jaxrl.envs.flicker import flicker
from jaxrl.errors import UserError
from jaxrl.runtime import jax_settings
from jaxrl.types import EnvEngine

MAKERS: dict[str, Callable[..., EnvEngine]] = {
    "catch": make_catch,
    "envpool": envpool.make_envpool,
    "atari2600": atari2600.make_atari2600,
}


def make_engine(
    config: Config, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns the engine of the configured game, with `num_envs` on each local device.

    Raises `UserError` where JAX's settings would let nothing run, or the engine shows no colors.
    """
    env = choose_engine(config.game, config.env)
    return _make(config.game, env, num_envs, num_local_devices, group)


def make_engines(plan: Plan, num_local_devices: int = 1, members: int = 1) -> tuple[EnvEngine, ...]:
    """Returns one engine for each of `parallel.groups`, which share a device's environments.

    An engine holds as many for each of the `members` of a population. The plan's `env` is that of
    `choose_engine`.
    """
    groups = plan.config.parallel.groups
    num_envs = members * plan.envs_per_device // groups
    return tuple(
        _make(plan.config.game, plan.env, num_envs, num_local_devices, group)
        for group in (EnvGroup(index, groups, members) for index in range(groups))
    )


def _make(
    game: str, env: EnvConfig, num_envs: int, num_local_devices: int, group: EnvGroup
) -> EnvEngine:
    """Returns the engine that was chosen. Raises `UserError` if it shows no colors."""
    make: Any = MAKERS.get(env.engine) or extensions.load(extensions.ENGINES, env.engine).make
    engine: EnvEngine = make(game, env, num_envs, num_local_devices, group)
    if engine.spec.planes != env.planes:
        engine.close()
        raise UserError(
            f"env.grayscale = {shown(env.grayscale)}: the engine '{env.engine}' shows "
            f"{engine.spec.planes} byte{'s' * (engine.spec.planes != 1)} of a pixel, not "
            f"{env.planes}"
        )
    spec = engine.spec._replace(stack_size=env.stack)
    engine = engine._replace(spec=spec, name=env.engine)
    return flicker(engine, env.flicker) if env.flicker else engine


def choose_engine(game: str, env: EnvConfig) -> EnvConfig:
    """Returns the settings with the engine and the interface that play the game on this machine.

    Devices are looked for here, and the emulator is built if it has to be. Raises `UserError` where
    JAX's settings would let nothing run, or the emulator that is configured cannot play.
    """
    jax_settings.check()
    name, interface = _engine_name(game, env), env.interface
    if name == "atari2600":
        atari2600.check_game(game, env)
        interface = atari2600.chosen_interface(env)
    if name == "envpool":
        interface = envpool.chosen_interface(env)
    return dataclasses.replace(env, engine=name, interface=interface)


def _engine_name(game: str, env: EnvConfig) -> str:
    """Returns the engine that plays a game.

    `auto` is decided here: our own Atari 2600 where it plays the game and can be built (but not its
    kernels of GPUs), else EnvPool; of a game that neither knows, the engine of another package.
    """
    if env.engine != "auto":
        return env.engine
    if game in CATCH_GAMES:
        return "catch"
    if game not in atari_games() and (other := extensions.engine_of(game)):
        return other
    return "atari2600" if atari2600.plays(game, env) else "envpool"


def check_starts_many(engine: str) -> None:
    """Raises `UserError` if the engine cannot start games of several seeds, for a population."""
    if engine not in MAKERS:  # `init` of other packages takes one seed
        raise UserError(
            f"--seeds: the engine '{engine}' starts games of one seed: train the seeds one by one"
        )


def check_engine(game: str, env: EnvConfig) -> None:
    """Raises `UserError` if the engine that `choose_engine` chose cannot train by the settings."""
    name = env.engine
    if name not in MAKERS:
        module = extensions.load(extensions.ENGINES, name)
        if not callable(getattr(module, "make", None)):
            raise UserError(f"{extensions.ENGINES}: {module.__name__} must define make")
        check = getattr(module, "check", None)
        if check is not None:
            check(game, env)
    if name == "envpool":
        check_mode(game, env)
    if name in ("envpool", "catch") and env.interface == "stream":
        raise UserError(
            f"env.interface = 'stream': {name} has none; take auto, or for Atari --env.engine "
            "atari2600"
        )
    if name == "envpool" and env.interface == "xla" and not envpool.has_custom_call():
        raise UserError(
            "env.interface = 'xla': EnvPool has no custom call for this platform; take auto or "
            "callback"
        )
