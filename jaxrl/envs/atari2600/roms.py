"""The cartridges: EnvPool's wheel brings them."""

import importlib.util
from pathlib import Path

from jaxrl.errors import UserError


def path(game: str) -> Path:
    """Returns the file of a game's cartridge.

    Raises `UserError` if no installed package has it.
    """
    # Found without importing EnvPool, which takes two seconds.
    spec = importlib.util.find_spec("envpool_assets")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        file = folder / "atari" / "roms" / f"{game}.bin"
        if file.is_file():
            return file
    raise UserError(
        f"no cartridge of {game}: EnvPool brings them, and it is not installed here "
        "(pip install envpool)"
    )


def rom(game: str) -> bytes:
    """Returns the image of a game's cartridge."""
    return path(game).read_bytes()
