"""Tables that a script writes are as it writes them; a game's row stands where its name says."""

import re

import pytest

from jaxrl.envs.atari2600 import build
from tools import emulator_tables


@pytest.mark.parametrize("name", emulator_tables.TABLES)
def test_a_table_is_what_the_script_writes(name):
    written = (build.NATIVE / name).read_text(encoding="utf-8")
    assert written == emulator_tables.TABLES[name]()
    assert written.startswith(emulator_tables.WRITTEN)


def test_every_documented_instruction_has_handlers():
    """151 opcodes of the 6507 are documented; STA abs has one handler more than STA zp."""
    handlers = emulator_tables.handlers()
    assert len({handler.code for handler in handlers}) == 151
    assert len([handler for handler in handlers if handler.code == "0x85"]) == 7
    assert len([handler for handler in handlers if handler.code == "0x8D"]) == 8


def test_games_stand_in_one_table_by_name():
    text = (build.NATIVE / "games" / "games.h").read_text(encoding="utf-8")
    rows = re.findall(r'\{\.name = "(\w+)", \.step = (\w+)', text)
    names = [name for name, _ in rows]
    assert len(names) == 104
    assert names == sorted(names)
    assert names == [step for _, step in rows]
