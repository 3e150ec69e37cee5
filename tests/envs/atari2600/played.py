"""One game of the emulator, frame by frame, and what it is compared with."""

import ctypes

import numpy as np

from jaxrl.envs.atari2600 import library
from jaxrl.envs.atari2600.roms import rom

ACTIONS = 18


class Game:
    """A game under power. `plain` takes the interpreter that plays one instruction at a time."""

    def __init__(self, name: str, image: bytes | None = None, plain: bool = False):
        self.name, self.plain = name, plain
        self.functions = functions = library.load()
        functions.jaxrl_game_open.restype = ctypes.c_void_p
        functions.jaxrl_game_screen.restype = ctypes.c_void_p
        functions.jaxrl_game_ram.restype = ctypes.c_void_p
        functions.jaxrl_game_size.restype = ctypes.c_uint64
        functions.jaxrl_game_doubtful.restype = ctypes.c_uint64
        functions.jaxrl_tia_name.restype = ctypes.c_char_p
        learns = ctypes.c_uint8(image is None)  # takes longer than a program of a test
        image = rom(name) if image is None else image
        size = ctypes.c_uint64(len(image))
        handle = functions.jaxrl_game_open(name.encode(), image, size, learns)
        assert handle, name
        self.handle = ctypes.c_void_p(handle)
        self.bytes = np.zeros(functions.jaxrl_game_size(), np.uint8)
        self.state = ctypes.c_void_p(self.bytes.ctypes.data)
        functions.jaxrl_game_power_on(self.handle, self.state)

    def close(self):
        self.functions.jaxrl_game_close(self.handle)

    def reset(self):
        self.functions.jaxrl_game_reset(self.handle, self.state, ctypes.c_uint8(self.plain))

    def act(self, action: int, draws: bool = True) -> int:
        """Plays one frame of an action of the full set; returns its reward."""
        flags = (ctypes.c_uint8(flag) for flag in (action, draws, self.plain))
        return self.functions.jaxrl_game_act(self.handle, self.state, *flags)

    @property
    def doubtful(self) -> int:
        """Reads of a collision that may have happened in a frame that did not keep it."""
        return self.functions.jaxrl_game_doubtful(self.handle)

    @property
    def needed(self) -> int:
        """Latches that the program has been seen to read."""
        return self.functions.jaxrl_game_needed(self.handle)

    @property
    def ram(self) -> np.ndarray:
        address = self.functions.jaxrl_game_ram(self.state)
        return np.frombuffer(ctypes.string_at(address, 128), np.uint8)

    @property
    def screen(self) -> np.ndarray:
        """Colors u8[height, 160] of the newest frame that was drawn."""
        height, width = library.screen_shape(self.name)
        address = self.functions.jaxrl_game_screen(self.handle)
        pixels = ctypes.string_at(address, height * width)
        return np.frombuffer(pixels, np.uint8).reshape(height, width)

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Score, lives and whether the game is over."""
        out = (ctypes.c_int32 * 3)()
        self.functions.jaxrl_game_progress(self.state, out)
        return out[0], out[1], bool(out[2])

    @property
    def first_line(self) -> int:
        """Scan line of the first row of the screen."""
        return self.functions.jaxrl_game_first_line(self.handle)

    @property
    def registers(self) -> dict[str, int]:
        """Registers of the processor, the RIOT and the TIA by name, after the newest frame."""
        count = self.functions.jaxrl_game_registers(self.state, None, None)
        names, values = (ctypes.c_char_p * count)(), (ctypes.c_int32 * count)()
        self.functions.jaxrl_game_registers(self.state, names, values)
        return {name.decode(): value for name, value in zip(names, values, strict=True)}

    @property
    def log(self) -> list[tuple[int, str, int]]:
        """Cycle since the first line, register and value of the newest frame's writes to the TIA.

        Without those that change nothing, without sound and without WSYNC.
        """
        count = self.functions.jaxrl_game_log(self.handle, None)
        writes = (ctypes.c_uint32 * count)()
        self.functions.jaxrl_game_log(self.handle, writes)
        name = self.functions.jaxrl_tia_name
        return [(w >> 14, name(w >> 8 & 63).decode(), w & 255) for w in writes]


def ale(name: str, seed: int = 1):
    """ALE itself, with the cartridge loaded, which plays its first reset."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    oracle = ALEInterface()
    oracle.setFloat("repeat_action_probability", 0.0)
    oracle.setInt("random_seed", seed)
    oracle.setInt("frame_skip", 1)
    from jaxrl.envs.atari2600 import roms

    oracle.loadROM(str(roms.path(name)))
    return oracle
