"""Games of C++ threads, one engine for each local device, and the shapes of their rows."""

from typing import Any

import jax
import numpy as np

from jaxrl.atari.games import FULL_ACTIONS
from jaxrl.envs.atari2600 import library
from jaxrl.envs.atari2600.roms import rom
from jaxrl.envs.base import presses_fire
from jaxrl.envs.pools import Pools
from jaxrl.errors import EngineError, UserError
from jaxrl.types import EnvSpec, TimeStep


def rules_of(games: Pools) -> library.Rules:
    """Returns the rules of an engine's games, as C++ has them."""
    meanings = tuple(FULL_ACTIONS.index(meaning) for meaning in games.spec.action_meanings)
    return library.rules(games.env, meanings, presses_fire(games.spec.game, games.env))


def open_games(games: Pools, device: int, seeds: np.ndarray) -> library.Engine:
    """Opens the engine of C++ of one local device; `seeds` u64[E] are those of the runs."""
    spec = games.spec
    image = rom(spec.game)
    number = library.load().jaxrl_open(
        spec.game.encode(),
        image,
        len(image),
        rules_of(games),
        *spec.frame_shape,
        seeds,
        seeds + games.env_ids[device].astype(np.uint64),
        spec.num_envs,
        games.num_threads(),
    )
    if number < 0:
        raise EngineError(f"no memory or threads for {spec.num_envs} games of {spec.game}")
    if not number:
        raise UserError(
            f"env.engine = atari2600: does not know the cartridge of {spec.game}; take "
            "--env.engine envpool"
        )
    return library.Engine(number, spec.num_envs)


def row_shapes(spec: EnvSpec) -> Any:
    """Returns the shapes of a row of every environment, as a `TimeStep`."""
    number: Any = jax.ShapeDtypeStruct((spec.num_envs,), np.float32)
    flag: Any = jax.ShapeDtypeStruct((spec.num_envs,), np.bool_)
    frames: Any = jax.ShapeDtypeStruct((spec.num_envs, *spec.frame_shape), np.uint8)
    return TimeStep(frames, number, number, flag, flag, flag, flag)


def zero_rows(spec: EnvSpec) -> TimeStep:
    """Returns rows of zeros, in whose shapes an engine of C++ writes the rows of its games."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), row_shapes(spec))
