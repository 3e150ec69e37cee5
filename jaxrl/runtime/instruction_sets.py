"""The instruction sets of the processor, by the names of a wheel's libraries."""

import os
import platform
import sys
from pathlib import Path

from jaxrl.errors import UserError

VARIABLE = "JAXRL_INSTRUCTION_SET"
BUILD = "native"  # a value of it: build for this machine's own processor
# Levels of x86-64, with what each needs beside the one below it (x86-64 psABI), as Linux names it.
X86_LEVELS = {
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}
ARM = "aarch64"  # every one has NEON


def supported(
    system: str = sys.platform,
    machine: str = platform.machine(),
    cpuinfo: Path = Path("/proc/cpuinfo"),
) -> tuple[str, ...]:
    """Returns the instruction sets of the processor, the fastest first; none if it is unknown."""
    if machine.lower() in ("arm64", ARM):
        return (ARM,)
    if not system.startswith("linux") or machine.lower() not in ("x86_64", "amd64"):
        return ()
    lines = [line.split(":")[1].split() for line in _lines(cpuinfo) if line.startswith("flags")]
    flags = set(lines[0]) if lines else set()
    levels: list[str] = []
    for level, needed in X86_LEVELS.items():
        if not needed <= flags:
            break
        levels.insert(0, level)
    return tuple(levels)


def candidates() -> tuple[str, ...]:
    """Returns the sets of which a library may be loaded, the first choice first.

    $JAXRL_INSTRUCTION_SET names the only one; `native` leaves none, so that libraries are built.

    Raises `UserError` if the processor has not got the one that is named.
    """
    known, chosen = supported(), os.environ.get(VARIABLE)
    if not chosen:
        return known
    if chosen not in (*known, BUILD):
        raise UserError(
            f"{VARIABLE} = {chosen!r}: this processor has {', '.join(known) or 'none of the known'}"
            f"; name one of these, or {BUILD}, which builds from source"
        )
    return () if chosen == BUILD else (chosen,)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
