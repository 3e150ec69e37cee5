"""The entry points of other packages that a run needs: its algorithm, its engine and its torso."""

from importlib.metadata import EntryPoint, entry_points

from jaxrl.atari.games import known_games
from jaxrl.config import extensions
from jaxrl.config.algorithms import SHIPPED
from jaxrl.config.network import TORSOS
from jaxrl.config.schema import Config
from jaxrl.config.validation import ENGINES


def needed(config: Config) -> tuple[EntryPoint, ...]:
    """Returns the entry points; none where everything is built in."""
    engine = config.env.engine
    if engine == "auto" and config.game not in known_games():
        engine = extensions.engine_of(config.game) or engine
    wanted = (
        (extensions.AGENTS, config.algorithm, SHIPPED),
        (extensions.ENGINES, engine, ENGINES),
        (extensions.TORSOS, config.network.torso, TORSOS.builtin),
    )
    return tuple(
        entry
        for group, name, builtin in wanted
        if name not in builtin
        for entry in entry_points(group=group, name=name)
    )


def package(entry: EntryPoint) -> str:
    """Returns the package of an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "?"


def described(config: Config) -> list[str]:
    """Returns the entry points for a message: `mine` of jaxrl.torsos (its-package 0.1)."""
    return [f"{entry.name} of {entry.group} ({package(entry)})" for entry in needed(config)]
