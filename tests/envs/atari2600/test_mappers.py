"""A bank-switching scheme is added by one file and one line: the two of docs/extending.md."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jaxrl.envs.atari2600 import build
from tests import native

PAGE = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
F4, TIGERVISION = (
    re.search(rf"^```cpp\n(// {name}: .*?)^```", PAGE, re.DOTALL | re.MULTILINE).group(1)
    for name in ("F4", "3F")
)
# LDA #2, STA VSYNC, STA WSYNC twice, LDA #0, STA VSYNC: a frame.
FRAME = bytes.fromhex("A902 8500 8502 8502 A900 8500")
MARKS = [0x11 * (1 + piece) for piece in range(8)]  # the first byte of each piece


def program_of(origin: int, choose: bytes, pieces: int) -> bytes:
    """Loops over all pieces: chooses one, LDA $F000, STA $80 + its number."""
    loop = FRAME
    for piece in range(pieces):
        chosen = bytes(byte + piece * (byte in (0x00, 0xF4)) for byte in choose)
        loop += chosen + bytes.fromhex("AD00F0 85") + bytes([0x80 + piece])
    return loop + b"\x4c" + origin.to_bytes(2, "little")


def f4_image() -> bytes:
    """Eight banks that hold the same program, which reads their hot spots: LDA $FFF4 + n."""
    code = program_of(0xF100, bytes.fromhex("ADF4FF"), 8)
    bank = bytearray(4096)
    bank[0x100 : 0x100 + len(code)] = code
    bank[0xFFC:0xFFE] = (0xF100).to_bytes(2, "little")
    return b"".join(bytes([mark]) + bytes(bank[1:]) for mark in MARKS)


def tigervision_image() -> bytes:
    """Four slices, of which the last holds the program: LDX #n, STX $3F."""
    code = program_of(0xF800 + 0x10, bytes.fromhex("A200 863F"), 4)
    slices = [bytearray([mark]) + bytes(2047) for mark in MARKS[:4]]
    slices[3][0x10 : 0x10 + len(code)] = code
    slices[3][0x7FC:0x7FE] = (0xF810).to_bytes(2, "little")
    return b"".join(slices)


def headers_with(name: str, header: str, record: str, folder: Path) -> Path:
    """Returns a copy of the emulator's headers with one file and one line more."""
    copy = folder / "native"
    shutil.copytree(build.NATIVE, copy)
    (copy / "mappers" / name).write_text(header)
    table = copy / "mappers" / "mappers.h"
    text = table.read_text()
    assert text.count("&kFE, ") == 1
    text = text.replace("&kFE, ", f"&kFE, &{record}, ")
    table.write_text(text.replace("#pragma once\n", f'#pragma once\n#include "mappers/{name}"\n'))
    return copy


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("name", "header", "record", "image", "pieces"),
    [
        ("f4.h", F4, "kF4", f4_image(), 8),
        ("tigervision.h", TIGERVISION, "k3F", tigervision_image(), 4),
    ],
    ids=["F4", "3F"],
)
def test_a_scheme_is_one_file_and_one_line(name, header, record, image, pieces, tmp_path):
    headers = headers_with(name, header, record, tmp_path)
    source = Path(__file__).with_name("mappers.cc")
    flags = ("-std=c++20", "-DJAXRL_FOR_SANITIZERS")
    program = native.build(source, headers, tmp_path, *flags)
    cartridge = tmp_path / "cartridge"
    cartridge.write_bytes(image)
    done = subprocess.run([program, cartridge], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        assert [int(byte, 16) for byte in line.split()] == MARKS[:pieces] + [0] * (8 - pieces)
    assert len(done.stdout.splitlines()) == 2
