"""Trained policies that come with the package: a file and a card each."""

from pathlib import Path

SUFFIX = ".safetensors"


def policies() -> dict[str, Path]:
    """Returns the files of the policies by their names, which `jaxrl play` takes."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob(f"*{SUFFIX}"))}
