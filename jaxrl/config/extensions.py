"""Agents, engines, torsos and sinks of other packages, found by their entry points.

A package that declares `reinforce = "its_package.reinforce"` in the group "jaxrl.agents" adds an
algorithm, in "jaxrl.engines" an engine, in "jaxrl.torsos" a torso, and in "jaxrl.sinks" a sink of
metrics. The values are modules; docs/extending.md says what they define.
"""

import functools
import importlib.metadata
import sys
from types import ModuleType

from jaxrl.errors import UserError, first_line

AGENTS, ENGINES = "jaxrl.agents", "jaxrl.engines"
TORSOS, SINKS = "jaxrl.torsos", "jaxrl.sinks"


@functools.cache
def names(group: str) -> tuple[str, ...]:
    """Returns the names that installed packages have registered in a group."""
    return tuple(sorted({entry.name for entry in importlib.metadata.entry_points(group=group)}))


def package_of(group: str, name: str) -> str:
    """Returns the package that registers a name; of several all, "?" where it has no name."""
    entries = importlib.metadata.entry_points(group=group, name=name)
    return " and ".join(sorted({entry.dist.name if entry.dist else "?" for entry in entries}))


@functools.cache
def load(group: str, name: str) -> ModuleType:
    """Imports the module of an entry point. Raises `UserError` if it fails, or two are so named."""
    entries = importlib.metadata.entry_points(group=group, name=name)
    packages = package_of(group, name)
    if len(entries) > 1:
        raise UserError(f"{group}: {packages} both register '{name}': uninstall one of them")
    if not entries:
        raise UserError(f"{group}: no installed package registers '{name}': install the one that "
                        "has it")  # fmt: skip
    (entry,) = entries
    before = has_devices()
    try:
        module = entry.load()
    except Exception as error:  # whatever somebody else's module raises
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{group}: '{name}' of the package {packages} cannot be imported "
                        f"({entry.value}): {reason}") from error  # fmt: skip
    if not isinstance(module, ModuleType):
        raise UserError(f"{group}: '{name}' of the package {packages} must name a module, and "
                        f"{entry.value} is none")  # fmt: skip
    if has_devices() and not before:
        raise UserError(
            f"{group}: '{name}' of the package {packages} computes with JAX where it is imported "
            f"({entry.value}), before the devices are chosen: move that into a function"
        )
    return module


def has_devices() -> bool:
    """Returns whether JAX has opened its devices, which fixes their number; does not import it."""
    # JAX's public functions would open them.
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def torso(name: str) -> ModuleType:
    """Returns the module of a torso: its `make`, and its `UNITS`. Raises `UserError`."""
    module = load(TORSOS, name)
    units = getattr(module, "UNITS", None)
    if not callable(getattr(module, "make", None)) or type(units) is not int or units < 1:
        raise UserError(f"{TORSOS}: {module.__name__} must define make(network) and UNITS, the "
                        "units of the layer above it, a whole number")  # fmt: skip
    return module


def sinks(names: str) -> dict[str, ModuleType]:
    """Returns the modules of sinks by name, of names with commas between. Raises `UserError`."""
    modules = {name: load(SINKS, name) for name in map(str.strip, names.split(",")) if name}
    for module in modules.values():
        if not callable(getattr(module, "make", None)):
            raise UserError(f"{SINKS}: {module.__name__} must define make(config, run_dir, rows)")
    return modules


def games(engine: str) -> tuple[str, ...]:
    """Returns the games of an engine, its module's `GAMES`. Raises `UserError`."""
    module = load(ENGINES, engine)
    known = getattr(module, "GAMES", None)
    if not (isinstance(known, tuple) and known and all(isinstance(name, str) for name in known)):
        raise UserError(f"{ENGINES}: {module.__name__} must define GAMES, a tuple of names")
    return known


@functools.cache
def games_by_engine() -> dict[str, tuple[str, ...]]:
    """Returns the games of all registered engines, without those of an engine that fails.

    It warns of such an engine once: other games do not need it.
    """
    known = {}
    for name in names(ENGINES):
        try:
            known[name] = games(name)
        except UserError as error:
            print(f"warning: {error}", file=sys.stderr)
    return known


def engine_of(game: str) -> str | None:
    """Returns the first engine that plays a game; None if no engine does."""
    return next((name for name, known in games_by_engine().items() if game in known), None)


def all_games() -> tuple[str, ...]:
    """Returns the games of all registered engines."""
    return tuple(dict.fromkeys(game for known in games_by_engine().values() for game in known))
