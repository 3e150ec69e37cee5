"""Builds a program of the tests from the emulator's headers."""

import subprocess
from pathlib import Path

from jaxrl.envs.atari2600 import build

SANITIZED = ("-DJAXRL_FOR_SANITIZERS", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiled(source: str, folder: Path, *flags: str) -> Path:
    """Returns the program of a file that lies beside this one."""
    file = Path(__file__).with_name(source)
    out = folder / file.stem
    command = [*build.compiler(), "-std=c++17", "-ffp-contract=off", *flags, "-I", build.NATIVE]
    subprocess.run([*command, file, "-o", out], check=True)
    return out
