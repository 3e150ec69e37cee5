"""Measures the kernels of fully connected layers and convolutions on one thread of this machine.

    python -m tools.kernel_speed              seconds for each figure: 0.2

Prints rows of a table: GFLOP/s of outputs, of the gradients of weights and of inputs, in seconds of
the processor; of a network its whole gradient, and the share of what the registers do in float32.
"""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from jaxrl.kernels import library
from jaxrl.runtime import native_library

SOURCE = Path(__file__).with_name("kernel_speed.cc")

HEADER = """\
| layer (pixels, channels, kernel/stride, filters) | type | GFLOP/s: outputs / weights / inputs \
| share of float32 in registers |
|---|---|---|---|"""


def _seconds(arguments: list[str]) -> float:
    with contextlib.suppress(ValueError):
        [seconds] = map(float, arguments or ["0.2"])
        if seconds > 0:
            return seconds
    sys.exit("python -m tools.kernel_speed [SECONDS]: seconds for each figure, above 0")


def main() -> None:
    """Compiles the program as the kernels are compiled, and runs it."""
    compiler = native_library.compiler()
    if compiler is None:
        sys.exit("install g++ or clang++: the kernels are compiled first")
    flags = [flag for flag in library.FLAGS if flag != "-shared"]
    seconds = _seconds(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, SOURCE.stem)
        command = [*compiler, *flags, "-iquote", library.NATIVE]
        subprocess.run([*command, SOURCE, "-o", program], check=True)
        print(HEADER, flush=True)
        subprocess.run([program, str(seconds)], check=True)


if __name__ == "__main__":
    main()
