"""Builds a program of the tests from the emulator's headers."""

from pathlib import Path

from jaxrl.envs.atari2600 import build
from tests import native

SANITIZED = ("-DJAXRL_FOR_SANITIZERS", *native.SANITIZED)


def compiled(source: str, folder: Path, *flags: str) -> Path:
    """Returns the program of a file that lies beside this one."""
    file = Path(__file__).with_name(source)
    return native.build(file, build.NATIVE, folder, "-std=c++20", "-ffp-contract=off", *flags)
