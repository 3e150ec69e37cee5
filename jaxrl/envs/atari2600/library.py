"""The C++ functions of native/ffi.cc, with their types."""

import ctypes
import functools
from typing import Any

import jax.ffi
import numpy as np

from jaxrl.config.schema import Config
from jaxrl.envs.atari2600 import build
from jaxrl.errors import UserError

SEND, RECV = "jaxrl_atari2600_send", "jaxrl_atari2600_recv"  # XLA's names of the custom calls
MOST_ACTIONS = 18


class Rules(ctypes.Structure):
    """How games are played; `Rules` of native/environment.h."""

    _fields_ = (
        ("max_steps", ctypes.c_int32),
        ("noop_max", ctypes.c_int32),
        ("repeat_probability", ctypes.c_float),
        ("fire_reset", ctypes.c_uint8),
        ("episodic_life", ctypes.c_uint8),
        ("reward_clip", ctypes.c_uint8),
        ("exact_resets", ctypes.c_uint8),
        ("num_actions", ctypes.c_uint8),
        ("actions", ctypes.c_uint8 * MOST_ACTIONS),
    )


def _pointer(dtype: Any) -> Any:
    return np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the library, which is built on first use, and registers its custom calls with XLA."""
    path = build.library()
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"cannot load the emulator: {error}; delete '{path}', or let XDG_CACHE_HOME name a "
            "place that programs may run from"
        ) from None
    number, flag, bytes_ = ctypes.c_int64, ctypes.c_uint8, _pointer(np.uint8)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "jaxrl_knows": (ctypes.c_uint8, [ctypes.c_char_p]),
        "jaxrl_open": (
            number,
            [
                *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(Rules)),
                *(ctypes.c_int32, ctypes.c_int32, ctypes.c_uint64, _pointer(np.uint64)),
                *(ctypes.c_uint64, ctypes.c_uint32),
            ],
        ),
        "jaxrl_close": (None, [number]),
        "jaxrl_begin": (flag, [number, ctypes.c_uint32]),
        "jaxrl_send_now": (flag, [number, _pointer(np.int32)]),
        "jaxrl_receive": (
            flag,
            [number, bytes_, _pointer(np.float32), _pointer(np.float32), *[_pointer(np.bool_)] * 4],
        ),
        "jaxrl_render": (flag, [number, bytes_]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    for name, symbol in ((SEND, functions.jaxrl_send), (RECV, functions.jaxrl_recv)):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(symbol), platform="cpu")
    return functions


def rules(config: Config, actions: tuple[int, ...], presses_fire: bool) -> Rules:
    """Returns the rules of a configuration; `actions` are numbers of the full set."""
    env = config.env
    return Rules(
        max_steps=env.max_episode_steps,
        noop_max=env.noop_max,
        repeat_probability=env.repeat_action_probability,
        fire_reset=presses_fire,
        episodic_life=env.episodic_life,
        reward_clip=env.reward_clip,
        exact_resets=env.exact_resets,
        num_actions=len(actions),
        actions=(ctypes.c_uint8 * MOST_ACTIONS)(*actions),
    )


def check_plays(game: str) -> None:
    """Raises `UserError` if the emulator does not know the game, or cannot be built."""
    if not load().jaxrl_knows(game.encode()):
        raise UserError(
            f"env.engine = atari2600: does not play {game} yet; take --env.engine envpool"
        )
