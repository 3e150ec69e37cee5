"""A difference that is planted is found in its frame and named."""

import pytest

from tests.envs.atari2600.played import Game
from tools import first_difference
from tools.first_difference import Ale, Difference, Picture, Run, describe, main

FRAME = 30


class Changed(Game):
    """A game that is changed after a frame: a byte of its RAM, a row of its screen, a register."""

    def __init__(self, name, address=None, row=None, register=None):
        super().__init__(name)
        self.address, self.row, self.register, self.frames = address, row, register, -1000

    def reset(self):
        super().reset()
        self.frames = 0

    def act(self, action, draws=True):
        reward = super().act(action, draws)
        self.frames += 1
        if self.frames == FRAME and self.address:
            start = self.functions.jaxrl_game_ram(self.state) - self.bytes.ctypes.data
            self.bytes[start + self.address - 0x80] ^= 0x11
        return reward

    @property
    def screen(self):
        found = super().screen.copy()
        if self.frames >= FRAME and self.row:
            found[self.row : self.row + 2, [40, 41, 50]] ^= 0x80
        return found

    @property
    def registers(self):
        found = super().registers
        if self.frames >= FRAME and self.register:
            found[self.register] += 1
        return found


def find(ours, other):
    return first_difference.first_difference(ours, other, frames=60, seed=1)


@pytest.mark.parametrize("against", ["ale", "plain"])
def test_nothing_is_found_where_nothing_differs(against, capsys):
    assert main(["pong", "--against", against, "--frames", "40"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"pong: 40 frames with seed 0 equal {against}: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("make", [Ale, lambda name: Game(name, plain=True)])
def test_a_byte_of_ram_is_named(make):
    ours, other = Changed("pong", address=0xB1), make("pong")
    found = find(ours, other)
    before = int(other.ram[0x31])
    assert (found.frame, found.after_reset) == (FRAME, False)
    assert found.ram == {0xB1: (before ^ 0x11, before)}
    assert not found.answers
    assert not found.registers
    assert found.picture is None
    said = describe("pong", "ale", found).splitlines()
    assert f"frame {FRAME} (" in said[0]
    assert said[1:] == [f"  RAM $B1: ours ${before ^ 0x11:02X}, ale ${before:02X}"]


def test_a_scan_line_is_named_with_its_pixels_and_writes():
    ours = Changed("pong", row=50)
    found = find(ours, Game("pong", plain=True))
    assert found.frame == FRAME
    assert not found.ram
    before = ours.screen[50, [40, 50]]
    runs = [Run(40, 41, (int(before[0]), int(before[0]) ^ 0x80)),
            Run(50, 50, (int(before[1]), int(before[1]) ^ 0x80))]  # fmt: skip
    row, line, num_rows, shown, writes = found.picture
    # Pong shows its frame from line 34 on.
    assert (row, line, num_rows, shown) == (50, 84, 2, runs)
    (last,) = {cycle // 76 for cycle, _, _ in writes}
    assert last == max(cycle // 76 for cycle, _, _ in ours.log if cycle // 76 <= 84)
    said = describe("pong", "plain", found)
    assert "scan line 84 (row 50 of the screen), the first of 2 that differ" in said
    assert "    pixels 40 to 41: ours $" in said
    assert "    pixel 50: ours $" in said


def test_writes_are_shown_with_the_place_of_the_beam():
    """Cycle 29 of a line is clock 87, pixel 19; 68 clocks are blank."""
    writes = [(80 * 76 + 3, "HMOVE", 0), (80 * 76 + 29, "GRP0", 4)]
    picture = Picture(46, 80, 1, [Run(7, 7, (1, 2))], writes)
    found = Difference(5, 3, False, {}, {}, picture, {}, (writes[1], None))
    assert describe("seaquest", "plain", found).splitlines() == [
        "seaquest: frame 5 (RIGHT) is the first that differs from plain",
        "  the first write to the TIA that differs",
        "    ours: scan line 80, cycle 29 (pixel 19): GRP0 = $04",
        "    plain: none",
        "  scan line 80 (row 46 of the screen), the first of 1 that differ",
        "    pixel 7: ours $01, plain $02",
        "  our writes to the TIA there, or last before it",
        "    scan line 80, cycle 3 (blank): HMOVE = $00",
        "    scan line 80, cycle 29 (pixel 19): GRP0 = $04",
    ]


def test_the_first_write_that_differs_is_found():
    class Late(Game):
        log = property(lambda self: [(100, "GRP0", 1), (203, "GRP1", 2), (300, "PF0", 3)])

    ours, other = Late("pong"), Late("pong", plain=True)
    assert find(ours, other) is None
    Late.log = property(lambda self: [(100, "GRP0", 1), (203 + self.plain, "GRP1", 2)])
    found = find(ours, other)
    assert found.write == ((203, "GRP1", 2), (204, "GRP1", 2))


def test_registers_are_named_against_the_plain_interpreter():
    found = find(Changed("pong", register="COLUPF"), Game("pong", plain=True))
    assert found.frame == FRAME
    ((name, (one, two)),) = found.registers.items()
    assert (name, one) == ("COLUPF", two + 1)
    assert describe("pong", "plain", found).splitlines()[1:] == [
        f"  COLUPF: ours ${one:02X}, plain ${two:02X}"
    ]


def test_the_log_has_the_writes_of_a_frame_in_their_order():
    game = Game("pong")
    game.reset()
    game.act(0)
    cycles, registers, values = zip(*game.log, strict=True)
    assert list(cycles) == sorted(cycles)
    assert {"VBLANK", "GRP0", "PF1", "HMOVE"} <= set(registers)
    assert "WSYNC" not in registers
    assert max(values) <= 255
    # The last write of each is what the register holds.
    last, held = dict(zip(registers, values, strict=True)), game.registers
    for name in ("PF1", "GRP0", "VBLANK"):
        assert last[name] == held[name]


def test_a_reset_that_differs_is_named_as_such():
    class Other(Game):
        def reset(self):
            super().reset()
            self.act(1)

    found = find(Game("pong"), Other("pong"))
    assert (found.frame, found.after_reset) == (0, True)
    assert "the first reset is the first that differs" in describe("pong", "plain", found)


def test_unknown_games_end_in_a_line(capsys):
    assert main(["pogn"]) == 2
    assert "unknown game 'pogn': did you mean pong" in capsys.readouterr().err
