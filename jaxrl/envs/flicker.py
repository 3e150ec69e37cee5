"""Frames that are blank at random, of any engine (Hausknecht & Stone 2015).

Scores, rewards and ends stay those of the game. One random key per environment and by its number:
devices and groups change no frame, and checkpoints hold the keys with the games.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import first_env_seeds
from jaxrl.types import EnvEngine, PyTree, TimeStep

FORMAT = "flicker 1"  # after the engine's `state_format`
NO_ENV = np.uint32(2**32 - 1)  # a number that no environment has: Catch folds theirs into its keys


class FlickerState(NamedTuple):
    """The state of an engine whose frames are blank at random."""

    env: PyTree  # state of the wrapped engine
    keys: jax.Array  # key[E], for the next frames
    screen: PyTree  # u8[E, 84, 84], the newest frame, never blank; () of engines that render


def flicker(engine: EnvEngine, probability: float) -> EnvEngine:
    """Returns the engine with frames that are blank, all 0, with this probability.

    Each frame is drawn by itself: the first one after `init` and those of resets too.
    """
    shows = engine.render is None
    return engine._replace(
        init=partial(_init, engine, probability, shows),
        send=partial(_send, engine),
        recv=partial(_recv, engine, probability, shows),
        state_format=engine.state_format and f"{engine.state_format} {FORMAT}",
    )


def games_of(env: PyTree) -> PyTree:
    """Returns the part of an engine's state that `EnvEngine.save` and `load` stand for."""
    return env.env if isinstance(env, FlickerState) else env


def replace_games(env: PyTree, games: PyTree) -> PyTree:
    """Returns an engine's state with another such part."""
    return env._replace(env=games) if isinstance(env, FlickerState) else games


def screens(env: PyTree, timestep: TimeStep) -> Any:
    """Returns the newest frames u8[E, 84, 84], never blank, of an engine that does not render."""
    return env.screen if isinstance(env, FlickerState) else timestep.frame


def _init(
    engine: EnvEngine, probability: float, shows: bool, *seeds: int
) -> tuple[FlickerState, TimeStep]:
    """Starts the games of all local devices, and a key for each by its run and its number."""
    env, timestep = engine.init(*seeds)
    devices, num_envs = engine.env_ids.shape
    first = np.tile(first_env_seeds(seeds, num_envs), devices).astype(np.uint32)
    keys, frame = _start(first, engine.env_ids.ravel(), timestep.frame, probability)
    screen = timestep.frame if shows else ()
    return FlickerState(env, keys, screen), timestep._replace(frame=frame)


@jax.jit
def _start(
    seeds: jax.Array, numbers: jax.Array, frame: jax.Array, probability: float
) -> tuple[jax.Array, jax.Array]:
    """Returns the keys of the environments, key[E], and their first frames."""
    roots = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), NO_ENV))(seeds)
    return _blanked(jax.vmap(jax.random.fold_in)(roots, numbers), frame, probability)


def _blanked(
    keys: jax.Array, frame: jax.Array, probability: jax.typing.ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Returns the keys for the next frames, key[E], and frames of which some are blank."""
    split = jax.vmap(jax.random.split)(keys)
    blank = jax.vmap(lambda key: jax.random.bernoulli(key, probability))(split[:, 1])
    return split[:, 0], jnp.where(blank[:, None, None], jnp.uint8(0), frame)


def _send(engine: EnvEngine, state: FlickerState, action: jax.Array) -> FlickerState:
    """Starts a step; `action` is i32[E]."""
    return state._replace(env=engine.send(state.env, action))


def _recv(
    engine: EnvEngine, probability: float, shows: bool, state: FlickerState
) -> tuple[FlickerState, TimeStep]:
    """Waits for a step and draws which of its frames are blank."""
    env, timestep = engine.recv(state.env)
    keys, frame = _blanked(state.keys, timestep.frame, probability)
    screen = timestep.frame if shows else ()
    return FlickerState(env, keys, screen), timestep._replace(frame=frame)
