"""Runs of one configuration, together under one name: its games and seeds."""

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxrl.config.diff import differences
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.runs.directory import load_config


def distinct_names(run_dirs: Sequence[Path]) -> list[str]:
    """The directories' names, where two are alike with as much of the path as differs.

    Raises `UserError` where one is given twice.
    """
    paths = [Path(os.path.abspath(run_dir)) for run_dir in run_dirs]  # a link keeps its name
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UserError(f"'{twice.name}' is given twice: name each run directory once")
    names, depth = [path.name for path in paths], 1
    while len(set(names)) < len(names):
        depth += 1
        names = [
            "/".join(path.parts[-depth:]) if names.count(name) > 1 else name
            for path, name in zip(paths, names, strict=True)
        ]
    return names


# Settings that change neither what is learned nor how fast: seeds of one kind may differ in them.
OF_RECORDS = (
    "run_dir",
    "parallel.num_devices",
    "log.interval",
    "checkpoint.interval",
    "checkpoint.keep",
    "checkpoint.max_failures",
    "evaluation.episodes",
    "env.stuck_after",
)


class RunGroup(NamedTuple):
    """Runs of one game that differ by their seed alone."""

    game: str
    label: str  # of the configuration, alike for all its games
    run_dirs: list[Path]


def group(run_dirs: Iterable[Path]) -> list[RunGroup]:
    """Runs whose configurations differ by the seed alone, together; in the order of the first.

    The label is what `jaxrl train`, `make` and `jaxrl sweep` call it in a directory's name,
    else the algorithm, and of two that would be alike, with the settings in which they differ.
    Raises `UserError` where a directory has no configuration.
    """
    of_kind: dict[Config, dict[str, list[Path]]] = {}  # kind -> game -> directories
    names: dict[Config, str] = {}
    for run_dir in run_dirs:
        config = load_config(run_dir)
        kind = _kind(config)
        of_kind.setdefault(kind, {}).setdefault(config.game, []).append(run_dir)
        names.setdefault(kind, _name(run_dir, config))
    labels = dict(zip(names, _labels(list(names), list(names.values())), strict=True))
    return [
        RunGroup(game, labels[kind], found)
        for kind, games in of_kind.items()
        for game, found in games.items()
    ]


def _kind(config: Config) -> Config:
    """The configuration without its seed, its game, and what only says how it is recorded."""
    defaults = Config()
    same = {key: getattr(defaults, key) for key in ("seed", "game", *OF_RECORDS)}
    return dataclasses.replace(config, **same)


def _name(run_dir: Path, config: Config) -> str:
    game, seed = re.escape(config.game), config.seed
    of_train = re.fullmatch(rf"{game}-(.+?)-seed{seed}(-\d+-\d+)?", run_dir.name)
    of_sweep = re.fullmatch(rf"(.+?)-{game}-seed{seed}", run_dir.name)
    found = of_train or of_sweep
    return found[1] if found else config.algorithm


def _labels(kinds: list[Config], names: list[str]) -> list[str]:
    """The names, with the settings that tell apart those that have the same."""
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        alike = [i for i, other in enumerate(names) if other == name]
        for i, settings in zip(alike, differences([kinds[i] for i in alike]), strict=True):
            labels[i] += f" ({', '.join(f'{key} {value}' for key, value in settings.items())})"
    return labels


def by_configuration(run_dirs: Iterable[Path]) -> dict[str, list[Path]]:
    """The runs of each configuration, over all its games and seeds, by its label."""
    found: dict[str, list[Path]] = {}
    for of_game in group(run_dirs):
        found.setdefault(of_game.label, []).extend(of_game.run_dirs)
    return found
