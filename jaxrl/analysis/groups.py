"""Groups of runs: those of one configuration, over games and seeds, under one label."""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxrl.config.diff import differences
from jaxrl.config.schema import Config
from jaxrl.config.variations import short_names, shown
from jaxrl.errors import UserError
from jaxrl.runs.directory import load_config, settings_by_key
from jaxrl.runs.paths import name_policies


def distinct_names(run_dirs: Sequence[Path]) -> list[str]:
    """Returns the directories' names; equal ones get as many parent folders as tell them apart.

    Raises `UserError` if a directory is given twice.
    """
    paths = [Path(os.path.abspath(run_dir)) for run_dir in run_dirs]  # keeps the names of links
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UserError(f"'{twice.name}' is given twice: name each run directory once")
    names, depth = [path.name for path in paths], 1
    paths = [Path(os.path.abspath(name_policies(run_dir))) for run_dir in run_dirs]
    while len(set(names)) < len(names):
        depth += 1
        names = [
            "/".join(path.parts[-depth:]) if names.count(name) > 1 else name
            for path, name in zip(paths, names, strict=True)
        ]
    return names


# Settings that change neither the learning nor its speed: runs of one group may differ in them.
RECORDING_SETTINGS = {
    "parallel": ("num_devices",),
    "log": ("interval",),
    "checkpoint": ("interval", "keep", "max_failures"),
    "evaluation": ("episodes", "interval"),
    "env": ("stuck_after",),
}


class RunGroup(NamedTuple):
    """Runs of one game that differ only in their seeds."""

    game: str
    label: str  # name of the configuration, the same for all its games
    run_dirs: list[Path]
    is_run: bool = False  # whether the label is the name of the only run


def group_runs(run_dirs: Iterable[Path]) -> list[RunGroup]:
    """Groups runs whose configurations differ only in the seed, in the order of their first runs.

    The label is the configuration's part of a directory name that `jaxrl train`, `make` or `jaxrl
    sweep` chose, and otherwise the algorithm. Equal labels are extended by the settings in which
    their configurations differ. Raises `UserError` if a directory has no configuration.
    """
    by_kind: dict[Config, dict[str, list[Path]]] = {}  # kind -> game -> directories
    names: dict[Config, str] = {}
    for run_dir in run_dirs:
        config = load_config(run_dir)
        kind = _kind(config)
        by_kind.setdefault(kind, {}).setdefault(config.game, []).append(run_dir)
        names.setdefault(kind, _label(run_dir, config))
    labels = dict(zip(names, _distinct_labels(list(names), list(names.values())), strict=True))
    return [
        RunGroup(game, labels[kind], members)
        for kind, games in by_kind.items()
        for game, members in games.items()
    ]


def single_runs(run_dirs: Sequence[Path]) -> list[RunGroup]:
    """Returns a group for each run, under its name. Raises `UserError` if one is given twice."""
    return [
        RunGroup(_game(run_dir), name, [run_dir], is_run=True)
        for run_dir, name in zip(run_dirs, distinct_names(run_dirs), strict=True)
    ]


def group_any_runs(run_dirs: Sequence[Path]) -> list[RunGroup]:
    """Groups runs; one whose configuration is missing or invalid is a group under its name."""
    alone = [group for group in single_runs(run_dirs) if not _has_config(group.run_dirs[0])]
    others = {group.run_dirs[0] for group in alone}
    return group_runs(run_dir for run_dir in run_dirs if run_dir not in others) + alone


def _has_config(run_dir: Path) -> bool:
    """Returns whether a run's configuration can be loaded."""
    try:
        load_config(run_dir)
    except UserError:
        return False
    return True


def _game(run_dir: Path) -> str:
    """Returns a run's game, also from a configuration that cannot be loaded."""
    game = settings_by_key(run_dir).get("game")
    return game if isinstance(game, str) else "unknown game"


def _kind(config: Config) -> Config:
    """Returns the configuration with the default seed, game and recording settings."""
    defaults = Config()
    recording = {
        section: {key: getattr(getattr(defaults, section), key) for key in keys}
        for section, keys in RECORDING_SETTINGS.items()
    }
    return config.replaced(
        seed=defaults.seed, game=defaults.game, run_dir=defaults.run_dir, **recording
    )


def _label(run_dir: Path, config: Config) -> str:
    """Returns the configuration's part of the directory name, or else the algorithm."""
    game, seed = re.escape(config.game), config.seed
    trained = re.fullmatch(rf"{game}-(.+?)-seed{seed}(-\d+-\d+)?", run_dir.name)
    swept = re.fullmatch(rf"(.+?)-{game}-seed{seed}", run_dir.name)
    match = trained or swept
    return match[1] if match else config.algorithm


def _distinct_labels(kinds: list[Config], names: list[str]) -> list[str]:
    """Returns the labels; equal ones are extended by the settings in which their kinds differ."""
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        alike = [i for i, other in enumerate(names) if other == name]
        for i, settings in zip(alike, differences([kinds[i] for i in alike]), strict=True):
            short = short_names(list(settings))
            parts = [f"{short[key]} {shown(value)}" for key, value in settings.items()]
            labels[i] += f" ({', '.join(parts)})"
    return labels


def short_labels(labels: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns the parts that all labels share, and each label without them.

    Those of one sweep are "a2c_fast", and "learning_rate=0.001" and "learning_rate=0.003".
    """
    parts = [re.split(r"-(?!\d)", label) for label in labels]  # 1e-05 is one part
    if len(set(labels)) < 2 or len({len(pieces) for pieces in parts}) > 1:
        return "", {label: label for label in labels}
    differs = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    short = {
        label: "-".join(itertools.compress(pieces, differs))
        for label, pieces in zip(labels, parts, strict=True)
    }
    return "-".join(itertools.compress(parts[0], [not part for part in differs])), short


def runs_by_configuration(run_dirs: Iterable[Path]) -> dict[str, list[Path]]:
    """Returns the runs of each configuration, over all its games and seeds, by label."""
    members: dict[str, list[Path]] = {}
    for group in group_runs(run_dirs):
        members.setdefault(group.label, []).extend(group.run_dirs)
    return members
