"""Our own Atari 2600 on a GPU: the games are arrays of the compiled program.

A step launches three kernels (native/gpu/kernels.cu) on the program's stream, and the host goes on;
the first loads them, and waits for that. Threads of the host start the games, so they begin as they
do on a CPU, and a checkpoint holds them as it does there, so that a run goes on on the other.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from jaxrl.envs.atari2600 import gpu_library
from jaxrl.envs.atari2600.games import open_games, row_shapes, rules_of, zero_rows
from jaxrl.envs.atari2600.roms import rom
from jaxrl.envs.base import checked_actions, first_env_seeds, on_cores
from jaxrl.envs.pools import Pools
from jaxrl.errors import UserError
from jaxrl.types import EnvEngine, TimeStep

# Arguments that results take the place of: the games and their frames.
IN_PLACE = {1: 0, 2: 1}
# The kernels, by their bits: the first plays, the others draw what it played.
STEP, DRAW, AGAIN = 1, 2, 4


class GpuState(NamedTuple):
    """The games of a device; S and W are bytes, of `gpu_library.Sizes`."""

    world: jax.typing.ArrayLike  # u8[1, W], what the games share: cartridge, rules, starts
    games: jax.typing.ArrayLike  # u8[E, S]
    row: TimeStep  # the newest


def make_gpu_engine(pools: Pools, state_format: str) -> EnvEngine:
    """Returns an engine of games on the GPUs of this process; `pools` says which, and their rules.

    Raises `UserError` if the emulator does not know the cartridge, or cannot be built.
    """
    spec = pools.spec
    world = gpu_library.world(spec.game, rom(spec.game), rules_of(pools), spec.frame_shape)
    if world is None:
        raise UserError(
            f"env.engine = atari2600: does not know the cartridge of {spec.game}; take "
            "--env.engine envpool"
        )
    return EnvEngine(
        spec,
        init=partial(init, pools, world),
        send=partial(send, pools),
        recv=recv,
        close=_nothing,
        state_format=state_format,
        env_ids=pools.env_ids,
        render=None,
        check=_nothing,
        pack=partial(pack, world),
        unpack=partial(unpack, pools, world),
    )


def _nothing() -> None:
    """Does nothing: arrays need no end, and XLA reports what fails on a device."""


def init(pools: Pools, world: np.ndarray, *seeds: int) -> tuple[GpuState, TimeStep]:
    """Starts the games of all local devices on threads of the host; returns them and their rows."""
    first = first_env_seeds(seeds, pools.spec.num_envs).astype(np.uint64)
    snapshots = []
    for device in range(len(pools.env_ids)):
        with on_cores(pools.cores[device]):
            threads = open_games(pools, device, first)
        threads.begin(pools.env.random_start_steps)
        snapshots.append(threads.save())
        threads.close()
    state = unpack(pools, world, np.concatenate(snapshots))
    return state, state.row


def send(
    pools: Pools,
    state: GpuState,
    action: jax.Array,
    kernels: int = STEP | DRAW | AGAIN,
    games_per_warp: int = 0,
) -> GpuState:
    """Launches a step of this device's games, actions i32[E].

    Args:
      pools: the games.
      state: after the newest row.
      action: the action of each game.
      kernels: fewer leave games that need them as they are, and their frames: to time the others.
      games_per_warp: at most 32; 0 chooses by the number of games.
    """
    spec = pools.spec
    actions = checked_actions(action, spec)
    sizes = gpu_library.sizes(spec.frame_shape[0] * spec.frame_shape[1])
    bytes_ = partial(jax.ShapeDtypeStruct, dtype=np.uint8)
    shapes = row_shapes(spec)
    results = (
        bytes_((spec.num_envs, sizes.game)),
        *shapes,
        bytes_((spec.num_envs, sizes.sight)),
        bytes_((min(spec.num_envs, gpu_library.MOST_SLOTS), sizes.slot)),
        jax.ShapeDtypeStruct((1 + spec.num_envs,), np.uint32),
    )
    # Nothing but its results changes: it has no side effect.
    call = jax.ffi.ffi_call(gpu_library.STEP, results, input_output_aliases=IN_PLACE)
    attributes = {
        "program": np.int64(gpu_library.program()),
        "kernels": np.int64(kernels),
        "games_per_warp": np.int64(games_per_warp),
    }
    games, *row = call(state.world, state.games, state.row.frame, actions, **attributes)
    return GpuState(state.world, games, TimeStep(*row[: len(shapes)]))


def recv(state: GpuState) -> tuple[GpuState, TimeStep]:
    """Returns the newest row, which the device has once it has played it."""
    return state, state.row


def pack(world: np.ndarray, state: GpuState) -> np.ndarray:
    """Returns a snapshot of every game u8[E, bytes], as the engine of threads saves it."""
    return gpu_library.pack(world, np.asarray(state.games), np.asarray(state.row.frame))


def unpack(pools: Pools, world: np.ndarray, snapshots: np.ndarray) -> GpuState:
    """Returns the state of the games of all local devices, on the host, from their snapshots.

    Raises `DamagedError` if one is not of this emulator and this game.
    """
    devices = len(pools.env_ids)
    zeros = zero_rows(pools.spec._replace(num_envs=devices * pools.spec.num_envs))
    games, rows = gpu_library.unpack(world, snapshots, zeros)
    return GpuState(np.repeat(world[None], devices, axis=0), games, rows)
