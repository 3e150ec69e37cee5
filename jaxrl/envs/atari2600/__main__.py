"""Builds the emulator if need be and prints where it is: python -m jaxrl.envs.atari2600."""

import sys

from jaxrl.envs.atari2600 import build
from jaxrl.errors import UserError
from jaxrl.runtime import native_library


def main() -> int:
    """Returns the exit status; a missing compiler is reported, and is not a failure."""
    if not native_library.prebuilt(build.engine_source()) and not native_library.compiler():
        print("no C++ compiler: env.engine = atari2600 needs one", file=sys.stderr)
        return 0
    try:
        print(build.library())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
