"""The cartridges: EnvPool's wheel brings them, and so does ale-py's."""

import importlib.util
from pathlib import Path

from jaxrl.errors import UserError

# Packages, and where in them the cartridges lie: the same files.
PACKAGES = (("envpool_assets", "atari/roms"), ("ale_py", "roms"))


def path(game: str) -> Path:
    """Returns the file of a game's cartridge.

    Raises `UserError` if no installed package has it.
    """
    for package, folder in PACKAGES:
        # Without importing the package: EnvPool takes two seconds.
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            file = Path(place) / folder / f"{game}.bin"
            if file.is_file():
                return file
    raise UserError(
        f"no cartridge of {game}: neither EnvPool nor ale-py is installed, which bring it "
        "(pip install ale-py)"
    )


def rom(game: str) -> bytes:
    """Returns the image of a game's cartridge."""
    return path(game).read_bytes()
