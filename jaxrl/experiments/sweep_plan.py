"""The members of a sweep and their order: every configuration on every game with every seed."""

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.atari.games import game_name, known_games
from jaxrl.atari.scores import reference_scores
from jaxrl.config import variations
from jaxrl.config.diff import flat
from jaxrl.config.schema import Config
from jaxrl.config.toml import find, load_recipe
from jaxrl.config.validation import check, check_game
from jaxrl.errors import UserError
from jaxrl.experiments.members import Member

# Nested subsets of Aitchison et al. 2022 ("Atari-5: Distilling the Arcade Learning Environment down
# to Five Games"): the first one, three, five and ten predict the median over 57 games best.
ATARI_5 = ("name_this_game", "battle_zone", "phoenix", "double_dunk", "qbert")
ATARI_10 = (*ATARI_5, "amidar", "bowling", "frostbite", "kung_fu_master", "riverraid")
# Sparse rewards that are hard to find (Bellemare et al. 2016, table 1).
HARD = (
    "freeway",
    "gravitar",
    "montezuma_revenge",
    "pitfall",
    "private_eye",
    "solaris",
    "venture",
)

LONGEST_NAME = 240  # bytes of a member's name; a file system takes 255, and its files are longer
# Keys that --set may not vary, with the option that gives them.
SET_BY_OPTION = {
    "game": "give --games",
    "seed": "give --seeds",
    "run_dir": "give --root",
    "algorithm": "give --configs",
}


def atari57() -> tuple[str, ...]:
    """Returns the 57 games with published human scores, the most informative first.

    The nested subsets that predict the median over all games come first, and last the games whose
    rewards are so rare that most algorithms score nothing, which says little about them.
    """
    others = sorted(set(reference_scores()) - set(ATARI_10) - set(HARD))
    return (*ATARI_10, *others, *HARD)


def games_of(names: tuple[str, ...]) -> list[str]:
    """Returns the games of these names, groups included. Raises `UserError`."""
    groups = {"atari5": ATARI_5, "atari57": atari57()}
    games: list[str] = []
    for name in names:
        if name not in groups:
            check_game(game_name(name), (*known_games(), *groups))
        games += groups.get(name, (game_name(name),))
    return games


def plan(
    files: tuple[Path, ...],
    games: tuple[str, ...],
    seeds: tuple[int, ...],
    root: Path,
    sets: tuple[str, ...] = (),
    **settings: Any,
) -> list[Member]:
    """Returns the members in the order of training; `settings` change all configurations.

    All games with the first seed come before the second seed, because games differ more than
    seeds. The configurations are innermost, each with every combination of the values of `sets`,
    such as `num_envs=16,32`: each game compares them as soon as it is trained. A sweep that an
    older version has begun in `root` keeps its names. Raises `UserError`.
    """
    for name, values in (("games", games), ("seeds", seeds), ("configs", files)):
        if not values:
            raise UserError(f"--{name} is empty: a sweep needs at least one of each")
    varied = variations.read(sets)
    for key in flat(settings):
        if key in varied:
            raise UserError(f"--set {key}: it is given by an option of sweep too: leave one out")
    all_games = games_of(games)
    variants = [variant for file in files for variant in _variants(find(file), varied, settings)]
    endings = [f"-{game}-seed{seed}" for game, seed in itertools.product(all_games, seeds)]
    if any(os.path.isdir(root / f"{x.former_label}{end}") for x in variants for end in endings):
        variants = [variant._replace(label=variant.former_label) for variant in variants]
    members: dict[str, Member] = {}
    names: dict[Config, str] = {}
    for seed, game, variant in itertools.product(seeds, all_games, variants):
        run_dir = root / f"{variant.label}-{game}-seed{seed}"
        config = dataclasses.replace(variant.recipe, game=game, seed=seed)
        check(config)
        _check_name(run_dir.name, members, names.setdefault(config, run_dir.name))
        config = dataclasses.replace(config, run_dir=str(run_dir))
        members[run_dir.name] = Member(variant.file, config, tuple(variant.settings.items()))
    return list(members.values())


class _Variant(NamedTuple):
    """A configuration with values of the keys that vary."""

    file: Path
    recipe: Config
    settings: variations.Settings
    label: str  # the part of its members' names
    former_label: str  # that of older versions, which name keys with one value too


def _variants(file: Path, varied: dict[str, list[Any]], settings: dict[str, Any]) -> list[_Variant]:
    """Returns a configuration with every combination of values. Raises `UserError`."""
    recipe = load_recipe(file).replaced(**settings)
    variants = []
    for chosen in variations.combinations(recipe, varied, SET_BY_OPTION):
        # A key with one value would lengthen every name, and distinguish nothing.
        named = {key: value for key, value in chosen.items() if len(varied[key]) > 1}
        label, former_label = (
            "-".join([file.stem, *filter(None, [variations.label(values)])])
            for values in (named, chosen)
        )
        config = variations.with_settings(recipe, chosen)
        variants.append(_Variant(file, config, chosen, label, former_label))
    return variants


def _check_name(name: str, members: dict[str, Member], first: str) -> None:
    """Refuses a name that is taken or too long, and a member that equals the member `first`."""
    if name in members:
        raise UserError(
            f"'{name}' is there twice: name each game, seed, configuration and value of --set "
            "once, and give configurations different file names"
        )
    if first != name:
        raise UserError(f"'{first}' and '{name}' are the same run: leave one configuration out")
    if len(os.fsencode(name)) > LONGEST_NAME:
        raise UserError(f"'{name}' is too long for the name of a directory: vary fewer keys")
