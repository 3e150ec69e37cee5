"""The emulator's headers lie in rooms, and none includes a header of a room above its own."""

import re

import pytest

from jaxrl.envs.atari2600 import build

ROOMS = (
    *("base", "chips", "mappers", "bus", "cpu", "games", "console", "env", "vector", "engine"),
    "gpu",
)
DOORS = ("ffi.cc", "ffi_gpu.cc", "vector.cc")
HEADERS = sorted(str(file.relative_to(build.NATIVE)) for file in build.NATIVE.rglob("*.[hic]*"))


def test_every_file_has_a_room_and_the_doors_are_on_top():
    assert {name.split("/")[0] for name in HEADERS} == {*ROOMS, *DOORS}


@pytest.mark.parametrize("room", ROOMS)
def test_no_include_points_up(room):
    below = ROOMS[: ROOMS.index(room) + 1]
    names = [name for name in HEADERS if name.startswith(f"{room}/")]
    assert names
    for name in names:
        for included in re.findall(r'#include "(.+)"', (build.NATIVE / name).read_text()):
            assert included.startswith("xla/") or included in HEADERS, name
            assert included.startswith("xla/") or included.split("/")[0] in below, name
