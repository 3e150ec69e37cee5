"""The C++ functions of native/vector.cc, with their types."""

import ctypes
import functools
import os
import weakref

import numpy as np

from jaxrl.atari.games import atari_games
from jaxrl.envs.atari2600 import build
from jaxrl.envs.atari2600.roms import rom
from jaxrl.errors import DamagedError, UserError, nearest
from jaxrl.runtime import native_library

NUMBERS = ("env_id", "reward", "lives", "frame_number", "episode_frame_number")
KEEPS_SEED = -1
FIRST_MODE = -1  # that of ALE where nobody chooses
REFUSALS = {
    1: "their snapshots are of another version of the emulator or of other options",
    2: "their snapshots are of another cartridge",
    3: "their snapshots are damaged",
}

ActionCodes = ctypes.c_uint8 * 18
NUMBER_RULES = ("frame_skip", "noop_max", "max_frames", "stack", "height", "width", "mode")
FLAG_RULES = (
    "maxpool", "color", "fire_reset", "episodic_life", "life_loss_info", "reward_clip",
    "same_step", "fast_resets", "shows_ram",
)  # fmt: skip


class VectorRules(ctypes.Structure):
    """Options of the environments; `VectorRules` of native/vector/environment.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in NUMBER_RULES),
        ("difficulty", ctypes.c_uint32),
        ("repeat_probability", ctypes.c_float),
        *((name, ctypes.c_uint8) for name in FLAG_RULES),
        ("num_actions", ctypes.c_uint8),
        ("actions", ActionCodes),
    )


class _Title(ctypes.Structure):
    """A game and its cartridge; `VectorTitle` of native/vector/title.h."""

    _fields_ = (
        ("game", ctypes.c_char_p),
        ("image", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
    )


class _Places(ctypes.Structure):
    """Addresses of a batch; `VectorBatch` of native/vector/engine.h."""

    _fields_ = (
        ("observations", ctypes.c_void_p),
        ("final_observations", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
    )


class Batch:
    """The rows of B environments, which C++ writes."""

    def __init__(self, size: int, shape: tuple[int, ...], final: np.ndarray | None) -> None:
        self.observations = np.empty((size, *shape), np.uint8)
        self.final_observations = final  # u8[B, *shape], zeros where no episode has ended, or None
        self.numbers = np.empty((len(NUMBERS), size), np.int32)
        self.ends = np.empty((2, size), np.bool_)  # terminated, truncated
        self.places = _Places(
            self.observations.ctypes.data,
            None if final is None else final.ctypes.data,
            self.numbers.ctypes.data,
            self.ends.ctypes.data,
        )


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the library, which is built on first use."""
    functions = native_library.loaded(build.vector_library(), build.TITLE)
    handle, flag = ctypes.c_void_p, ctypes.c_uint8
    size, count = ctypes.c_uint64, ctypes.c_uint32
    places, pointer = ctypes.POINTER(_Places), ctypes.c_void_p
    signatures: native_library.Signatures = {
        "jaxrl_lines": (ctypes.c_int32, [ctypes.c_char_p]),
        "jaxrl_vector_open": (
            handle,
            [
                *(ctypes.POINTER(_Title), count, ctypes.POINTER(VectorRules)),
                *(count, count, count, ctypes.c_int32, places),
            ],
        ),
        "jaxrl_vector_close": (None, [handle]),
        "jaxrl_vector_reset": (None, [handle, pointer, pointer]),
        "jaxrl_vector_send": (flag, [handle, pointer, pointer]),
        "jaxrl_vector_receive": (pointer, [handle, places]),
        "jaxrl_vector_snapshot_size": (size, [handle]),
        "jaxrl_vector_save": (flag, [handle, pointer]),
        "jaxrl_vector_load": (ctypes.c_int32, [handle, pointer]),
    }
    native_library.declare(functions, signatures)
    return functions


def screen_height(game: str) -> int:
    """Returns the lines of a game's screen.

    Raises `UserError` if the emulator does not know the game, or cannot be built.
    """
    height = load().jaxrl_lines(game.encode()) if isinstance(game, str) else 0
    if not height:
        near = nearest(str(game).lower(), atari_games())
        hint = f"did you mean {' or '.join(near)}?" if near else "names are as 'ms_pacman'"
        raise UserError(f"VectorEnv does not play {game!r}: {hint}")
    return int(height)


def _close(functions: ctypes.CDLL, handle: int, batches: dict[int, Batch], process: int) -> None:
    if process == os.getpid():  # the threads are not in a process that was forked from theirs
        functions.jaxrl_vector_close(handle)
    batches.clear()


class VectorEngine:
    """An engine of C++ with the batch that it writes."""

    def __init__(
        self,
        games: tuple[str, ...],
        rules: VectorRules,
        shape: tuple[int, ...],
        *,
        num_envs: int,
        batch_size: int,
        num_threads: int,
        first_core: int,
    ) -> None:
        self.num_envs, self.batch_size, self.shape = num_envs, batch_size, shape
        self._functions = load()
        self._same_step = bool(rules.same_step)
        self._spare: np.ndarray | None = None  # final observations that nothing was written to
        self._gives_up = False  # a reset that may have been written to
        # C++ writes to one of these until the engine is closed, by the address of its observations.
        # An interrupt may come before a call of C++ and after it, so the next one is here before.
        first = self._new_batch()
        self._batches = {first.places.observations: first}
        images = [rom(game) for game in games]
        titles = (_Title * len(games))(
            *(_Title(g.encode(), image, len(image)) for g, image in zip(games, images, strict=True))
        )
        self._handle = self._functions.jaxrl_vector_open(
            *(titles, len(games), rules, num_envs, batch_size, num_threads, first_core),
            first.places,
        )
        if not self._handle:
            raise UserError(
                f"cannot open {num_envs} games of {', '.join(games)}: a cartridge is of an unknown "
                "kind, or there is no memory or no thread left"
            )
        self.close = weakref.finalize(
            self, _close, self._functions, self._handle, self._batches, os.getpid()
        )

    def reset(self, chosen: np.ndarray, seeds: np.ndarray) -> None:
        """Resets the chosen environments, bool[E], with seeds i64[E]; the others show their row."""
        self._gives_up = True
        self._functions.jaxrl_vector_reset(self._handle, chosen.ctypes.data, seeds.ctypes.data)

    def send(self, actions: np.ndarray, strengths: np.ndarray | None) -> bool:
        """Starts a step with actions i32[B] and strengths f32[B]; returns whether it could."""
        return self._functions.jaxrl_vector_send(
            self._handle,
            actions.ctypes.data,
            None if strengths is None else strengths.ctypes.data,
        )

    def receive(self) -> Batch | None:
        """Waits for a batch; returns None if too few environments are under way."""
        following = self._new_batch()
        address = following.places.observations
        self._batches[address] = following
        full = self._functions.jaxrl_vector_receive(self._handle, following.places)
        if full is None:
            del self._batches[address]
            self._spare = following.final_observations
            return None
        received = self._batches[full]
        for other in self._batches.keys() - {address}:
            del self._batches[other]
        if not received.ends.any():
            # A step that was given up may have written to it.
            self._spare = None if self._gives_up else received.final_observations
            received.final_observations = None
        self._gives_up = False
        return received

    def save(self) -> np.ndarray | None:
        """Returns a snapshot of each environment, u8[E, bytes]; None if not all are received."""
        snapshots = np.empty((self.num_envs, self._snapshot_size()), np.uint8)
        saved = self._functions.jaxrl_vector_save(self._handle, snapshots.ctypes.data)
        return snapshots if saved else None

    def load(self, snapshots: np.ndarray) -> None:
        """Lets each environment go on from its snapshot, u8[E, bytes].

        Raises `DamagedError` if one of them was not saved by such an engine.
        """
        shape = (self.num_envs, self._snapshot_size())
        if snapshots.shape != shape or snapshots.dtype != np.uint8:
            raise DamagedError(
                f"the games cannot go on: they are {snapshots.dtype}{list(snapshots.shape)}, and "
                f"these environments take snapshots uint8{list(shape)}: num_envs and the options "
                "must be those of the environments that were saved"
            )
        snapshots = np.ascontiguousarray(snapshots)
        refusal = self._functions.jaxrl_vector_load(self._handle, snapshots.ctypes.data)
        if refusal:
            raise DamagedError(f"the games cannot go on: {REFUSALS[refusal]}")

    def _snapshot_size(self) -> int:
        return self._functions.jaxrl_vector_snapshot_size(self._handle)

    def _new_batch(self) -> Batch:
        final, self._spare = self._spare, None
        if final is None and self._same_step:
            final = np.zeros((self.batch_size, *self.shape), np.uint8)
        return Batch(self.batch_size, self.shape, final)
