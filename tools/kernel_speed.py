"""Measures the kernels of fully connected layers and convolutions on one thread of this machine.

    python -m tools.kernel_speed              seconds for each figure: 0.2

Prints rows of a table: GFLOP/s of outputs, of the gradients of weights and of inputs, in seconds of
the processor; of a network its whole gradient, and the share of what the registers do in float32.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from jaxrl.kernels import library
from jaxrl.runtime import native_library

SOURCE = Path(__file__).with_name("kernel_speed.cc")


def main() -> None:
    """Compiles the program as the kernels are compiled, and runs it."""
    flags = [flag for flag in library.FLAGS if flag != "-shared"]
    seconds = sys.argv[1] if sys.argv[1:] else "0.2"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, SOURCE.stem)
        command = [*native_library.compiler(), *flags, "-iquote", library.NATIVE]
        subprocess.run([*command, SOURCE, "-o", program], check=True)
        subprocess.run([program, seconds], check=True)


if __name__ == "__main__":
    main()
