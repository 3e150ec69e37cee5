"""The C++ functions of native/ffi.cc, with their types."""

import ctypes
import functools
from typing import Any

import jax
import numpy as np

from jaxrl.config.schema import EnvConfig
from jaxrl.envs.atari2600 import build
from jaxrl.errors import DamagedError, EngineError, UserError
from jaxrl.runtime import native_library
from jaxrl.types import TimeStep

SEND, RECV = "jaxrl_atari2600_send", "jaxrl_atari2600_recv"  # XLA's names of the custom calls
MOST_ACTIONS = 18
SCREEN_WIDTH = 160
SEEN_SHAPE = (210, SCREEN_WIDTH)  # EnvPool shows no more of a screen that has more lines
ANSWERS = {
    0: "the engine of this program is closed",
    2: "the GPU failed while the games were under way",
    3: "the games belong to the process that this one was forked from, and their threads are not "
    "here: call init again",
}
REFUSALS = {
    1: "their snapshots are of another version of the emulator",
    2: "their snapshots are of another cartridge",
    3: "their snapshots are damaged",
}
MOST_RANDOM_STEPS = 2**31  # which nobody waits for


class Rules(ctypes.Structure):
    """Settings of the games; `Rules` of native/env/environment.h."""

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
        ("frame_skip", ctypes.c_uint8),
        ("mode", ctypes.c_int32),
        ("difficulty", ctypes.c_uint32),
    )


def pointer(dtype: Any) -> Any:
    """Returns the type of the address of an array of numbers, one after the other."""
    return np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the library, which is built on first use, and registers its custom calls with XLA."""
    functions = native_library.loaded(build.library(), build.TITLE)
    number, flag, bytes_ = ctypes.c_int64, ctypes.c_uint8, pointer(np.uint8)
    signatures: native_library.Signatures = {
        "jaxrl_lines": (ctypes.c_int32, [ctypes.c_char_p]),
        "jaxrl_open": (
            number,
            [
                *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(Rules)),
                *(ctypes.c_int32, ctypes.c_int32, pointer(np.uint64), pointer(np.uint64)),
                *(ctypes.c_uint64, ctypes.c_uint32),
            ],
        ),
        "jaxrl_close": (None, [number]),
        "jaxrl_pin": (ctypes.c_uint32, [number, ctypes.c_int32, ctypes.c_char_p]),
        "jaxrl_begin": (flag, [number, ctypes.c_uint32]),
        "jaxrl_send_now": (flag, [number, pointer(np.int32)]),
        "jaxrl_receive": (
            flag,
            [number, bytes_, pointer(np.float32), pointer(np.float32), *[pointer(np.bool_)] * 4],
        ),
        "jaxrl_render": (flag, [number, bytes_]),
        "jaxrl_save": (flag, [number, bytes_]),
        "jaxrl_load": (flag, [number, bytes_, ctypes.POINTER(ctypes.c_int32)]),
        "jaxrl_snapshot_size": (ctypes.c_uint64, [number]),
        "jaxrl_snapshot_version": (ctypes.c_uint32, []),
        "jaxrl_game_open": (
            ctypes.c_void_p,
            [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint8],
        ),
        "jaxrl_game_needed": (ctypes.c_uint32, [ctypes.c_void_p]),
        "jaxrl_game_close": (None, [ctypes.c_void_p]),
    }
    native_library.declare(functions, signatures)
    for name, symbol, platform in (
        (SEND, functions.jaxrl_send, "cpu"),
        (RECV, functions.jaxrl_recv, "cpu"),
        (SEND, functions.jaxrl_send_on_stream, "CUDA"),
        (RECV, functions.jaxrl_recv_on_stream, "CUDA"),
    ):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(symbol), platform=platform)
    return functions


class Engine:
    """An engine of C++, the games of one local device, by the number that C++ knows it by."""

    def __init__(self, number: int, num_envs: int) -> None:
        self.number, self.num_envs = number, num_envs

    def pin(self, device: int) -> None:
        """Lets the stream of a GPU, by its number for the driver, reach the rows.

        Raises `UserError` if the system does not.
        """
        message = ctypes.create_string_buffer(256)
        if load().jaxrl_pin(self.number, device, message):
            raise UserError(
                f"env.interface = 'stream': {message.value.decode(errors='replace')}; take "
                "--env.interface callback"
            )

    def begin(self, random_steps: int) -> None:
        """Starts the games; each takes up to about `random_steps` random steps."""
        self._call("begin", min(random_steps, MOST_RANDOM_STEPS))

    def send(self, action: np.ndarray) -> None:
        """Starts a step with the actions i32[E]."""
        self._call("send_now", np.ascontiguousarray(action, np.int32))

    def recv(self, zeros: TimeStep) -> TimeStep:
        """Waits for the step; returns its rows, in the shapes of `zeros`."""
        rows = jax.tree.map(np.empty_like, zeros)
        self._call("receive", *rows)
        return rows

    def render(self) -> np.ndarray:
        """Draws environment 0: u8[210, 160, 3]."""
        pixels = np.zeros((*SEEN_SHAPE, 3), np.uint8)
        self._call("render", pixels)
        return pixels

    def save(self) -> np.ndarray:
        """Returns a snapshot of each environment, after the step under way: u8[E, bytes]."""
        size = load().jaxrl_snapshot_size(self.number)
        snapshots = np.zeros((self.num_envs, size), np.uint8)
        self._call("save", snapshots)
        return snapshots

    def load(self, snapshots: np.ndarray) -> None:
        """Lets each environment go on from its snapshot, u8[E, bytes].

        Raises `DamagedError` if one of them was not written by this emulator for this game.
        """
        size = load().jaxrl_snapshot_size(self.number)
        refusal = ctypes.c_int32()
        self._call("load", checked(snapshots, (self.num_envs, size)), ctypes.byref(refusal))
        check_refusal(refusal.value)

    def close(self) -> None:
        """Ends the threads, when they have played the step that is under way."""
        load().jaxrl_close(self.number)

    def _call(self, name: str, *arguments: Any) -> None:
        answer = getattr(load(), f"jaxrl_{name}")(self.number, *arguments)
        if answer in ANSWERS:
            raise EngineError(ANSWERS[answer])


def checked(snapshots: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Returns snapshots u8[E, bytes] as C++ reads them.

    Raises `DamagedError` if they have another type or shape.
    """
    if snapshots.shape != shape or snapshots.dtype != np.uint8:
        raise DamagedError(
            f"snapshots are u8{list(shape)}, not {snapshots.dtype}{list(snapshots.shape)}"
        )
    return np.ascontiguousarray(snapshots)


def check_refusal(refusal: int) -> None:
    """Raises `DamagedError` if C++ has refused snapshots."""
    if refusal:
        raise DamagedError(f"the games cannot go on: {REFUSALS[refusal]}")


def rules(env: EnvConfig, actions: tuple[int, ...], presses_fire: bool) -> Rules:
    """Returns the rules of a game; `actions` are numbers of the full set."""
    return Rules(
        max_steps=env.time_limit,
        noop_max=env.noop_max,
        repeat_probability=env.repeat_action_probability,
        fire_reset=presses_fire,
        episodic_life=env.episodic_life,
        reward_clip=env.reward_clip,
        exact_resets=env.exact_resets,
        num_actions=len(actions),
        actions=(ctypes.c_uint8 * MOST_ACTIONS)(*actions),
        frame_skip=env.frame_skip,
        mode=env.mode,
        difficulty=max(env.difficulty, 0),
    )


def needed_collisions(game: str, image: bytes) -> int | None:
    """Returns the collision latches that a cartridge is seen to read; None if it is unknown."""
    functions = load()
    handle = functions.jaxrl_game_open(game.encode(), image, len(image), True)
    if not handle:
        return None
    needed = int(functions.jaxrl_game_needed(handle))
    functions.jaxrl_game_close(handle)
    return needed


def screen_shape(game: str) -> tuple[int, int]:
    """Returns the height and width of a game's screen.

    Raises `UserError` if the emulator does not know the game, or cannot be built.
    """
    height = load().jaxrl_lines(game.encode())
    if not height:
        raise UserError(
            f"env.engine = atari2600: does not play {game} yet; take --env.engine envpool"
        )
    return height, SCREEN_WIDTH
