"""Algorithms by name: their settings, which no other part of the package asks for by algorithm.

The settings of an algorithm stand beside it, in `jaxrl.agents`, which is above this room. Therefore
they are imported by name, ours as those of other packages. Ours import no JAX, so that commands
answer at once.
"""

import functools
import importlib
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from jaxrl.config import extensions
from jaxrl.config.algorithm_base import AlgorithmConfig
from jaxrl.errors import UserError

FOLDER = ("settings", "agent")  # modules of an algorithm that is a folder
# The algorithms that come with jaxrl, in the order of messages and of the reference.
SHIPPED = ("a2c", "ppo", "vtrace", "dqn", "c51", "qr_dqn", "iqn", "r2d2", "nstep_q", "pqn")


@functools.cache
def shipped() -> dict[str, type[AlgorithmConfig]]:
    """Returns the settings of the algorithms that come with jaxrl, by name."""
    return {name: algorithm_config(name) for name in SHIPPED}


def that(answer: str) -> list[str]:
    """Returns the algorithms whose settings answer yes, "can_remember" for instance."""
    return [name for name, kind in shipped().items() if getattr(kind, answer)]


def algorithm_config(name: str) -> type[AlgorithmConfig]:
    """Returns the dataclass of an algorithm's settings. Raises `UserError`.

    The module that has them defines one subclass of `AlgorithmConfig`.
    """
    before = extensions.has_devices()
    module = _module(name, "settings")
    file = _file(module)
    if extensions.has_devices() and not before:
        raise UserError(
            f"algorithm = {name!r}: {file} computes with JAX where it is imported, before the "
            "devices are chosen: move that into a function"
        )
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, AlgorithmConfig)
        and kind.__module__ == module.__name__
    ]
    if len(kinds) != 1:
        raise UserError(
            f"algorithm = {name!r}: {file} must define one subclass of AlgorithmConfig, and "
            f"defines {len(kinds)}"
        )
    if not _is_folder(name):
        _check_makes(name, module)
    return kinds[0]


def agent_module(name: str) -> ModuleType:
    """Imports the module that makes an algorithm's agent. Raises `UserError`."""
    module = _module(name, "agent")
    _check_makes(name, module)
    return module


def _check_makes(name: str, module: ModuleType) -> None:
    if not callable(getattr(module, "make", None)):
        raise UserError(f"algorithm = {name!r}: {_file(module)} must define make(plan, spec)")


def _file(module: ModuleType) -> str:
    return module.__name__.replace(".", "/") + ".py"


def _spec(name: str) -> ModuleSpec | None:
    """Returns where an algorithm of `jaxrl.agents` is, a folder or a file; None of others."""
    spec = find_spec(f"jaxrl.agents.{name}") if name.isidentifier() else None
    return spec if spec is not None and spec.origin else None


def is_algorithm(name: str) -> bool:
    """Returns whether an algorithm of `jaxrl.agents` or of another package has this name."""
    return _spec(name) is not None or name in extensions.names(extensions.AGENTS)


def _is_folder(name: str) -> bool:
    """Returns whether an algorithm is a folder of `jaxrl.agents`, with two modules."""
    spec = _spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _module(name: str, part: str) -> ModuleType:
    """Imports a part of an algorithm's folder, or the one file that is the algorithm.

    Raises `UserError`.
    """
    if _is_folder(name):
        folder = f"jaxrl.agents.{name}"
        missing = [file for file in FOLDER if find_spec(f"{folder}.{file}") is None]
        if missing:
            raise UserError(
                f"algorithm = {name!r}: {folder.replace('.', '/')}/ must have "
                f"{' and '.join(f'{file}.py' for file in missing)}"
            )
        return importlib.import_module(f"{folder}.{part}")
    if _spec(name):
        return importlib.import_module(f"jaxrl.agents.{name}")
    registered = extensions.names(extensions.AGENTS)
    if name not in registered:
        known = ", ".join([*SHIPPED, *registered])
        raise UserError(
            f"algorithm = {name!r}: jaxrl has none of this name: install the package that has it, "
            f"or take one of {known}"
        )
    return extensions.load(extensions.AGENTS, name)
