"""Writes the emulator's tables that follow from others: `python -m tools.emulator_tables`.

The handlers of the fast interpreter follow from the opcodes, its pairs from what
`tools/instruction_pairs.cc` has counted (instruction_pairs.csv), and where the members of structs
begin that a GPU's kernels share with the host is what this machine's compiler makes of them.
"""

import csv
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from jaxrl.envs.atari2600 import build
from jaxrl.runtime import native_library

PAIRS = Path(__file__).with_name("instruction_pairs.csv")
OPCODE = re.compile(r"OPCODE\((0x\w\w), (\w+), (\w+), (\w+), (\d)\)")
WRITTEN = "// Written by tools/emulator_tables.py.\n"
LENGTHS = {"Implied": 1, "Accumulator": 1, "Absolute": 3, "AbsoluteX": 3, "AbsoluteY": 3}
LENGTHS |= {"Indirect": 3}

# How the handlers of each kind and addressing mode reach their operand: `Special` of threaded.h.
# Kinds that are not here are left to the plain interpreter.
INDEXED = {"ZeroX": "ZeroX", "ZeroY": "ZeroY", "AbsoluteX": "AnywhereX", "AbsoluteY": "AnywhereY"}
POINTERS = {"IndirectX": "PointerX", "IndirectY": "PointerY"}
REGISTERS = "Ram Plain Strobe Graphics Sync Wait Unseen"
SPECIALS = {
    "Read": {
        **INDEXED,
        **POINTERS,
        "Immediate": "Constant",
        "Zero": "Ram Anywhere",
        "Absolute": "Constant Ram Timer Anywhere",
        "AbsoluteX": "RomX AnywhereX",
        "AbsoluteY": "RomY AnywhereY",
    },
    "Write": {
        **INDEXED,
        **POINTERS,
        "Zero": REGISTERS,
        "Absolute": f"{REGISTERS} Anywhere",
    },
    "Modify": {
        **INDEXED,
        "Accumulator": "Accumulator",
        "Zero": "Ram Anywhere",
        "Absolute": "Ram Anywhere",
    },
    "Register": {"Implied": "None"},
    "Branch": {"Relative": "None"},
    "Flow": {"Implied": "None", "Absolute": "None", "Indirect": "None"},
}

# Structs that kernels and host share, with the members whose places are compared.
MEMBERS = {
    "World": "rules game halves rows columns starts",
    "Cartridge": "data mapper piece digest setup needed",
    "Rules": "actions frame_skip mode difficulty",
    "Start": "screens",
    "Screens": "held newest",
    "Snapshot": "env turn row rules",
    "Environment": "random held",
    "Turn": "actions rows whole last",
    "Game": "progress",
    "Console": "tia cpu cartridge cycle bus needed",
    "Row": "reset",
    "Picture": "clock writes",
    "Sight": "seen start",
    "Slot": "screens gray writes",
    "Launch": "reward sights again count num_slots",
}


class Handler(NamedTuple):
    """The arguments of a row of HANDLERS."""

    code: str  # the instruction's, such as 0xA9
    operation: str
    kind: str
    special: str
    length: int  # bytes
    cycles: int

    def text(self) -> str:
        """Returns the arguments as C++ has them."""
        return ", ".join(str(part) for part in self)


def handlers() -> list[Handler]:
    """Returns the handlers of all documented instructions, by opcode."""
    opcodes = (build.NATIVE / "cpu" / "opcodes.h").read_text(encoding="utf-8")
    return [
        Handler(code, operation, kind, special, LENGTHS.get(mode, 2), int(cycles))
        for code, operation, kind, mode, cycles in OPCODE.findall(opcodes)
        if kind in SPECIALS
        for special in SPECIALS[kind][mode].split()
    ]


def macro(name: str, rows: list[str]) -> str:
    """Returns a macro that calls its argument with each row."""
    calls = "".join(f" \\\n  ROW({row})" for row in rows)
    return f"#pragma once\n\n#define {name}(ROW){calls}\n"


def handlers_table() -> str:
    """Returns cpu/handlers.h."""
    head = "// Handlers of threaded.h: ROW(code, operation, kind, special, length, cycles).\n"
    return WRITTEN + head + macro("HANDLERS", [handler.text() for handler in handlers()])


def pairs_table() -> str:
    """Returns cpu/pairs.h."""
    known = {(handler.code, handler.special): handler for handler in handlers()}
    with PAIRS.open(encoding="utf-8", newline="") as file:
        rows = [
            ", ".join(known[code, special].text() for code, special in (pair[:2], pair[2:]))
            for pair in list(csv.reader(file))[1:]
        ]
    head = "// Pairs of instructions that one handler plays: ROW(one handler, another).\n"
    return WRITTEN + head + macro("PAIRS", rows)


def layout_table() -> str:
    """Returns gpu/layout.h; a program of this machine's compiler prints the numbers."""
    sizes = [f"sizeof({struct})" for struct in MEMBERS]
    places = [f"offsetof({s}, {member})" for s, text in MEMBERS.items() for member in text.split()]
    terms = [*sizes, *places]
    prints = "".join(f'  printf("%zu\\n", {term});\n' for term in terms)
    program = (
        '#include <cstddef>\n#include <cstdio>\n#include "gpu/world.h"\nusing namespace jaxrl;\n'
        f"int main() {{\n{prints}}}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "layout.cc", Path(folder) / "layout"
        source.write_text(program, encoding="utf-8")
        flags = ("-std=c++20", "-DJAXRL_GPU=1", "-Wno-invalid-offsetof", "-iquote", build.NATIVE)
        subprocess.run([*_compiler(), *flags, source, "-o", out], check=True)
        printed = subprocess.run([out], capture_output=True, text=True, check=True).stdout
    lines = []
    for term, number in zip(terms, printed.split(), strict=True):
        if term.startswith("sizeof"):
            lines.append(f"static_assert({term} == {number});\n")
        else:
            lines.append(f"JAXRL_BEGINS({term[9:-1]}, {number});\n")
    return LAYOUT_HEAD + "".join(lines) + LAYOUT_TAIL


LAYOUT_HEAD = f"""{WRITTEN}// The kernels and the host's program are made by different compilers, \
which must lay out what they
// share alike: both compare it with these numbers.
#pragma once

#include "gpu/world.h"

namespace jaxrl {{

#if JAXRL_HOST
#define JAXRL_BEGINS(type, member, at) static_assert(offsetof(type, member) == (at))
#else
#define JAXRL_BEGINS(type, member, at) static_assert(__INTADDR__(&((type*)nullptr)->member) == (at))
#endif
static_assert(sizeof(Environment) % 8 == 0 && alignof(Snapshot) == 8);
"""
LAYOUT_TAIL = """#undef JAXRL_BEGINS

}  // namespace jaxrl
"""
TABLES = {
    "cpu/handlers.h": handlers_table,
    "cpu/pairs.h": pairs_table,
    "gpu/layout.h": layout_table,
}


def _compiler() -> tuple[str, ...]:
    command = native_library.compiler()
    if command is None:
        raise SystemExit("there is no C++ compiler")
    return command


if __name__ == "__main__":
    for name, table in TABLES.items():
        (build.NATIVE / name).write_text(table(), encoding="utf-8")
