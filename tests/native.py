"""Builds a program of the tests from C++ headers of the package."""

import subprocess
from pathlib import Path

from jaxrl.runtime import native_library

SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(source: Path, headers: Path, folder: Path, *flags: str) -> Path:
    """Returns the program of a source file, in a folder."""
    out = folder / source.stem
    command = [*native_library.compiler(), *flags, "-iquote", headers, source, "-o", out]
    subprocess.run(command, check=True)
    return out
