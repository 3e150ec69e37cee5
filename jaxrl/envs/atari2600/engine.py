"""Our own Atari 2600 inside the compiled program: games on C++ threads.

Its rows mean what the contract of engines says, so there is nothing to settle here: games are plain
data in C++, and what a row holds is decided there (native/env/environment.h), as EnvPool does.
"""

import functools
import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.schema import EnvConfig, Interface
from jaxrl.envs.atari2600 import build_gpu, library
from jaxrl.envs.atari2600.games import open_games, row_shapes, zero_rows
from jaxrl.envs.atari2600.gpu_engine import make_gpu_engine
from jaxrl.envs.atari2600.roms import rom
from jaxrl.envs.base import WHOLE, EnvGroup, check_mode, has_nvidia_gpu, on_cores
from jaxrl.envs.callback import Calls, ordered_calls
from jaxrl.envs.pools import Pools, make_pools, pools_engine, receive_rows, send_action
from jaxrl.errors import UserError
from jaxrl.types import EnvEngine, TimeStep


class Atari2600State(NamedTuple):
    """The token that orders the calls; C++ holds the games."""

    token: jax.typing.ArrayLike  # u8[8]


def has_custom_call() -> bool:
    """Returns whether the custom call of games on threads exists for this process's devices."""
    return jax.default_backend() == "cpu"


def plays_on_gpu(env: EnvConfig) -> bool:
    """Returns whether the GPU itself plays the emulator's games, by these settings.

    Exact resets, which evaluations have, are played on threads.
    """
    return env.interface == "xla" and not env.exact_resets and has_nvidia_gpu()


def chosen_interface(env: EnvConfig) -> Interface:
    """Returns the interface by which the emulator plays here, in place of auto."""
    if plays_on_gpu(env) or env.interface == "stream":
        return env.interface
    if has_custom_call():
        return "xla" if env.interface == "auto" else env.interface
    return "callback"


def check_game(game: str, env: EnvConfig) -> None:
    """Raises `UserError` if the emulator cannot play so, or cannot be built."""
    if env.chooses_mode and plays_on_gpu(env):
        raise UserError(
            "env.mode, env.difficulty: the GPU plays every game by its defaults yet; take "
            "--env.interface stream or callback"
        )
    if not env.grayscale:
        raise UserError(
            "env.grayscale = false: the emulator shows training gray frames; take "
            "--env.engine envpool"
        )
    library.screen_shape(game)
    rom(game)
    check_mode(game, env)
    lines, columns = library.SEEN_SHAPE
    height, width = env.frame_shape
    if height > lines or width > columns:
        raise UserError(
            f"env.frame_height, env.frame_width = {height}, {width}: the screen has {lines} x "
            f"{columns} pixels; take smaller frames, or --env.engine envpool"
        )
    if plays_on_gpu(env):
        build_gpu.kernels()
    elif env.interface in ("xla", "stream") and not (has_custom_call() or has_nvidia_gpu()):
        raise UserError(
            f"env.interface = '{env.interface}': the emulator's custom calls are for CPUs "
            "and NVIDIA GPUs; take auto or callback"
        )


def plays(game: str, env: EnvConfig) -> bool:
    """Returns whether `env.engine = "auto"` takes the emulator for this game here.

    It does not where the kernels of a GPU would play, which must be named: there
    `auto` with the interface `xla` is EnvPool's custom call, in evaluations too.
    """
    if env.interface == "xla" and jax.default_backend() == "gpu":
        return False
    if not env.grayscale:
        _say_envpool()
        return False
    if not _builds():
        return False
    try:
        check_game(game, env)
    except UserError:
        return False
    return True


@functools.cache
def _say_envpool() -> None:
    """Says that EnvPool plays, once in a process."""
    print(
        "EnvPool plays, which is slower: it has env.grayscale = false",
        file=sys.stderr,
    )


@functools.cache
def _builds() -> bool:
    """Returns whether the emulator can be built and loaded; warns if not."""
    try:
        library.load()
    except UserError as error:
        print(f"warning: EnvPool plays, which is slower: {error}", file=sys.stderr)
        return False
    return True


def make_atari2600(
    game: str, env: EnvConfig, num_envs: int, num_local_devices: int = 1, group: EnvGroup = WHOLE
) -> EnvEngine:
    """Returns an engine of `num_envs` games on each of this process's devices.

    Args:
      game: one that `check_game` lets pass.
      env: its rules, with an interface other than auto.
      num_envs: E, games on each device.
      num_local_devices: engines of C++ to make, one for each device.
      group: the part of each device's environments that the engine holds.
    """
    uses_xla = env.interface != "callback"
    pools = make_pools("the emulator", game, env, num_envs, num_local_devices, group, uses_xla)
    state_format = f"atari2600 {library.load().jaxrl_snapshot_version()}"
    if plays_on_gpu(env):
        return make_gpu_engine(pools, state_format)
    return pools_engine(
        pools,
        start_games,
        send,
        recv,
        render,
        state_format=state_format,
        save=partial(save, pools),
        load=partial(load, pools),
    )


def start_games(games: Pools, device: int, seeds: np.ndarray) -> tuple[Atari2600State, TimeStep]:
    """Makes the engine of C++ of one local device, its calls and its first rows."""
    # Its threads keep off the cores of the others.
    with on_cores(games.cores[device]):
        engine = open_games(games, device, seeds.astype(np.uint64))
    games.pools.append(engine)
    shapes = row_shapes(games.spec)
    if games.uses_xla:
        if not has_custom_call():  # for a stream alone
            engine.pin(jax.local_devices()[device].local_hardware_id)
        calls = _custom_calls(engine, shapes)
    else:
        calls = ordered_calls(engine.send, engine.recv, shapes, games.failures)
    games.calls.append(calls)
    engine.begin(games.env.random_start_steps)
    rows = engine.recv(zero_rows(games.spec))
    return Atari2600State(np.array(calls.token)), rows


def _custom_calls(opened: library.Engine, shapes: Any) -> Calls:
    """Returns XLA's custom calls of an engine of C++, whose answers have these shapes.

    On a CPU they play; on a GPU they put the copies and the steps on the program's stream.
    """
    token = np.zeros(8, np.uint8)
    token_shape = jax.ShapeDtypeStruct(token.shape, token.dtype)
    engine = np.int64(opened.number)
    # No byte of the token is written.
    in_place: dict[str, Any] = {"has_side_effect": True, "input_output_aliases": {0: 0}}
    send = partial(jax.ffi.ffi_call(library.SEND, token_shape, **in_place), engine=engine)
    recv = jax.ffi.ffi_call(library.RECV, (token_shape, *shapes), **in_place)

    def receive(token: jax.Array) -> tuple[jax.Array, TimeStep]:
        token, *rows = recv(token, engine=engine)
        return token, TimeStep(*rows)

    return Calls(token, recv=receive, send=send)


def send(games: Pools, state: Atari2600State, action: jax.Array) -> Atari2600State:
    """Starts a step of this device's environments and returns at once."""
    return Atari2600State(send_action(games, jnp.asarray(state.token), action))


def recv(games: Pools, state: Atari2600State) -> tuple[Atari2600State, TimeStep]:
    """Waits for the step of this device's environments."""
    token, rows = receive_rows(games, jnp.asarray(state.token))
    return Atari2600State(token), rows


def render(games: Pools) -> np.ndarray:
    """Draws environment 0: u8[210, 160, 3]; only with nothing in flight."""
    return games.pools[0].render()


def save(games: Pools) -> np.ndarray:
    """Returns a snapshot of every game of this process, after the step under way: u8[E, bytes]."""
    return np.concatenate([engine.save() for engine in games.pools])


def load(games: Pools, snapshots: np.ndarray) -> None:
    """Lets every game of this process go on from its snapshot.

    Raises `DamagedError` if one is not of this emulator and this game.
    """
    for engine, rows in zip(games.pools, np.split(snapshots, len(games.pools)), strict=True):
        engine.load(rows)
