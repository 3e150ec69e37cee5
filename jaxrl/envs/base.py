"""Shared by all engines: the environments of each, their cores and their seeds."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.atari.games import atari_games, difficulties, minimal_actions, modes
from jaxrl.config.schema import EnvConfig
from jaxrl.errors import UserError
from jaxrl.formatting import numbers_of
from jaxrl.runtime import cpus
from jaxrl.types import AXIS, EnvSpec


@dataclass(frozen=True)
class EnvGroup:
    """One of the equal groups of each device's environments."""

    index: int = 0
    count: int = 1
    members: int = 1  # runs of a population, which have equal parts of the group, in their order


WHOLE = EnvGroup()


def check_mode(game: str, env: EnvConfig) -> None:
    """Raises `UserError` if an Atari game has no such mode or difficulty."""
    for name, value, known in (
        ("mode", env.mode, modes),
        ("difficulty", env.difficulty, difficulties),
    ):
        if value >= 0 and value not in known(game):
            raise UserError(
                f"env.{name} = {value}: {game} has {numbers_of(known(game))}; -1 is the default"
            )


def has_nvidia_gpu() -> bool:
    """Returns whether this process's devices are NVIDIA's: AMD's are called `gpu` too."""
    if jax.default_backend() != "gpu":
        return False
    return "rocm" not in jax.devices()[0].client.platform_version


def env_ids(num_envs: int, num_local_devices: int, group: EnvGroup) -> np.ndarray:
    """Returns the numbers of a group's environments among all: i64[local devices, E].

    Environments are counted device by device, then group by group, so neither the number of devices
    nor that of groups changes the games. Those of each member of a population are counted apart.
    """
    per_member = num_envs // group.members
    device = jax.process_index() * num_local_devices + np.arange(num_local_devices)
    first = (device * group.count + group.index) * per_member
    return np.tile(first[:, None] + np.arange(per_member), group.members)


def cores_by_device(num_local_devices: int) -> list[list[int]]:
    """Returns the cores for the emulators of each local device: equal, disjoint shares.

    With more devices than cores several devices share a core; a remainder is left to XLA.
    """
    mine = cpus.cores()
    share = max(1, len(mine) // num_local_devices)
    first = [device * share % len(mine) for device in range(num_local_devices)]
    return [mine[start : start + share] for start in first]


@contextlib.contextmanager
def on_cores(chosen: list[int]) -> Iterator[None]:
    """Runs threads that the block starts on the chosen cores: they inherit their parent's cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def first_env_seed(seed: int) -> int:
    """Returns a seed for environment 0, far from that of other runs.

    EnvPool seeds environment i with seed + i: with a run's seed itself, the runs 1 and 2 would
    share all but one of their games.
    """
    spread = np.random.SeedSequence(seed).generate_state(1)[0]
    return int(spread % 2**30)  # leaves room below EnvPool's 2**31 for as many environments


def first_env_seeds(seeds: Sequence[int], num_envs: int) -> np.ndarray:
    """Returns `first_env_seed` of the run of each of a device's environments: i64[E].

    `seeds` are those of the runs that share the engine.
    """
    return np.repeat([first_env_seed(seed) for seed in seeds], num_envs // len(seeds))


def checked_actions(action: jax.Array, spec: EnvSpec) -> jax.Array:
    """Returns the actions i32[E] as C++ may have them, which checks neither shape, type nor range.

    A wrong size would be a segmentation fault, a float would be read as an integer, and an action
    out of range would read beyond an array.
    """
    chex.assert_shape(action, (spec.num_envs,))
    if action.dtype != jnp.int32:
        raise TypeError(f"actions must be int32, not {action.dtype}")
    return jnp.clip(action, 0, spec.num_actions - 1)


def call_local(calls: list[Any], *operands: Any) -> Any:
    """Calls the emulators of the device that runs this; `calls` has a call per local device."""
    if not calls:
        raise RuntimeError("the engine has no games: call init before send or recv")
    if len(calls) == 1:
        return calls[0](*operands)
    return jax.lax.switch(jax.lax.axis_index(AXIS) % len(calls), calls, *operands)


def presses_fire(game: str, env: EnvConfig) -> bool:
    """Returns whether FIRE is pressed after every reset of a game.

    EnvPool does so in every game whose action set has FIRE, so never with all 18 actions.
    """
    if game not in atari_games() or not env.fire_reset or env.full_action_space:
        return False
    return "FIRE" in minimal_actions(game)
