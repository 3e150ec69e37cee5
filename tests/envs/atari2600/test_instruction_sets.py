"""Every instruction set of a wheel plays every game as this processor's own does, bit for bit."""

import dataclasses
import subprocess

import pytest

from jaxrl.atari.games import atari_games
from jaxrl.envs.atari2600 import build
from jaxrl.envs.atari2600.roms import path
from jaxrl.runtime import instruction_sets, native_library
from tests import native
from tools.wheels import DIGEST

HERE = [level for level in instruction_sets.supported() if level in instruction_sets.X86_LEVELS]
LOADER = ("-Wl,--no-as-needed", "-ldl")


def library_for(level):
    """The library that this machine's compiler makes for a level of x86-64."""
    source = build.vector_source()
    flags = [f"-march={level}" if x == native_library.NATIVE_FLAG else x for x in source.flags]
    return native_library.built(
        dataclasses.replace(source, name=f"{source.name}-{level}", flags=tuple(flags))
    )


@pytest.mark.slow
@pytest.mark.rotating(6)
@pytest.mark.parametrize("level", HERE)
def test_every_game_is_the_same_with_every_instruction_set(level, tmp_path, monkeypatch):
    monkeypatch.setenv(instruction_sets.VARIABLE, instruction_sets.BUILD)
    player = native.build(DIGEST, build.NATIVE, tmp_path, "-std=c++20", *LOADER)
    cartridges = [str(path(game)) for game in atari_games()]

    def digests(library):
        command = [player, library, *cartridges]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(line.split() for line in done.stdout.splitlines())

    expected = digests(build.vector_library())
    assert tuple(expected) == atari_games()
    assert len(set(expected.values())) == len(cartridges)
    assert digests(library_for(level)) == expected
