"""The members of a sweep: their order, the progress of each, and its results.

JAX is imported only where metrics are read, because a mistake must be reported at once.
"""

import dataclasses
import itertools
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxrl.atari.games import game_name, known_games
from jaxrl.atari.scores import reference_scores
from jaxrl.config import variations
from jaxrl.config.diff import changes, flat
from jaxrl.config.overrides import FREE
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import find, load_recipe, to_toml
from jaxrl.config.validation import check, check_game
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, layout
from jaxrl.runs.directory import check_new_run, load_config
from jaxrl.runs.files import replace_text

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
# Keys that --set may not vary.
GIVEN = {
    "game": "give --games",
    "seed": "give --seeds",
    "run_dir": "give --root",
    "algorithm": "give --configs",
}

State = Literal["new", "begun", "done"]
Row = dict[str, Any]  # the object of one member in sweep.json


@dataclass(frozen=True)
class SweepMember:
    """One run of a sweep."""

    file: Path  # its configuration, as the user named it
    config: Config  # with its game, seed and run directory
    settings: tuple[tuple[str, Any], ...] = ()  # keys that vary, with this member's values

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return Path(self.config.run_dir)

    @property
    def name(self) -> str:
        """CONFIG-GAME-seedSEED, where CONFIG ends in the values of the keys with several."""
        return self.run_dir.name

    @property
    def label(self) -> str:
        """Its configuration's part of the name, the same for all games and seeds."""
        return self.name.removesuffix(f"-{self.config.game}-seed{self.config.seed}")

    @property
    def log(self) -> Path:
        """The output of its processes."""
        return self.run_dir.with_name(f"{self.name}.log")

    @property
    def recipe(self) -> Path:
        """The sweep's copy of its configuration, made when the sweep began."""
        return self.run_dir.with_name(f"{self.label}.toml")

    def recipe_text(self) -> str:
        """Returns the contents of `recipe`: the file, or all keys where some of them vary."""
        if not self.settings:
            return self.file.read_text(encoding="utf-8")
        varied = ", ".join(f"{key} = {variations.shown(value)}" for key, value in self.settings)
        of_member = ("game", "seed", "run_dir")  # which each member is given
        return f"# {self.file} with {varied}\n{to_toml(self.config, without=of_member)}"

    @property
    def total_steps(self) -> int:
        """Agent steps of the whole run, which ends with a whole update."""
        return resolve(self.config).total_steps


# --- which there are ------------------------------------------------------------------------------


def atari57() -> tuple[str, ...]:
    """Returns the 57 games with published human scores, the most informative first.

    The nested subsets that predict the median over all games come first, and last the games whose
    rewards are so rare that most algorithms score nothing, which says little about them.
    """
    others = sorted(set(reference_scores()) - set(ATARI_10) - set(HARD))
    return (*ATARI_10, *others, *HARD)


def games_of(words: tuple[str, ...]) -> list[str]:
    """Returns the games of these words, in the order of training. Raises `UserError`."""
    groups = {"atari5": ATARI_5, "atari57": atari57()}
    games: list[str] = []
    for word in words:
        if word not in groups:
            check_game(game_name(word), (*known_games(), *groups))
        games += groups.get(word, (game_name(word),))
    return games


def plan(
    files: tuple[Path, ...],
    words: tuple[str, ...],
    seeds: tuple[int, ...],
    root: Path,
    sets: tuple[str, ...] = (),
    **settings: Any,
) -> list[SweepMember]:
    """Returns the members in the order of training; `settings` change all configurations.

    All games with the first seed come before the second seed, because games differ more than
    seeds. The configurations are innermost, each with every combination of the values of `sets`,
    words like `num_envs=16,32`: each game compares them as soon as it is trained. A sweep that an
    older version has begun in `root` keeps its names. Raises `UserError`.
    """
    for name, given in (("games", words), ("seeds", seeds), ("configs", files)):
        if not given:
            raise UserError(f"--{name} is empty: a sweep needs at least one of each")
    varied = variations.read(sets)
    for key in flat(settings):
        if key in varied:
            raise UserError(f"--set {key}: it is given by an option of sweep too: leave one out")
    games = games_of(words)
    variants = [one for file in files for one in _variants(find(file), varied, settings)]
    endings = [f"-{game}-seed{seed}" for game, seed in itertools.product(games, seeds)]
    if any(os.path.isdir(root / f"{one.former}{end}") for one in variants for end in endings):
        variants = [one._replace(label=one.former) for one in variants]
    members: dict[str, SweepMember] = {}
    names: dict[Config, str] = {}
    for seed, game, variant in itertools.product(seeds, games, variants):
        run_dir = root / f"{variant.label}-{game}-seed{seed}"
        config = dataclasses.replace(variant.recipe, game=game, seed=seed)
        check(config)
        _check_name(run_dir.name, members, names.setdefault(config, run_dir.name))
        config = dataclasses.replace(config, run_dir=str(run_dir))
        settings_of_member = tuple(variant.settings.items())
        members[run_dir.name] = SweepMember(variant.file, config, settings_of_member)
    return list(members.values())


class _Variant(NamedTuple):
    """A configuration with values of the keys that vary."""

    file: Path
    recipe: Config
    settings: variations.Settings
    label: str  # its part of its members' names
    former: str  # the same of older versions, which name keys of one value too


def _variants(file: Path, varied: dict[str, list[Any]], settings: dict[str, Any]) -> list[_Variant]:
    """Returns a configuration with every combination of values. Raises `UserError`."""
    recipe = load_recipe(file).replaced(**settings)
    variants = []
    for chosen in variations.combinations(recipe, varied, GIVEN):
        # A key of one value would lengthen every name, and tell nothing apart.
        named = {key: value for key, value in chosen.items() if len(varied[key]) > 1}
        label, former = (
            "-".join([file.stem, *filter(None, [variations.label(keys)])])
            for keys in (named, chosen)
        )
        config = variations.with_settings(recipe, chosen)
        variants.append(_Variant(file, config, chosen, label, former))
    return variants


def _check_name(name: str, members: dict[str, SweepMember], same: str) -> None:
    """Refuses a name that is taken or too long, and a member that `same` is already."""
    if name in members:
        raise UserError(
            f"'{name}' is there twice: name each game, seed, configuration and value of --set "
            "once, and give configurations different file names"
        )
    if same != name:
        raise UserError(f"'{same}' and '{name}' are the same run: leave one configuration out")
    if len(os.fsencode(name)) > LONGEST_NAME:
        raise UserError(f"'{name}' is too long for the name of a directory: vary fewer keys")


# --- how far they are -----------------------------------------------------------------------------


def _last_line(run_dir: Path) -> dict[str, Any]:
    """Returns the last line of a run's metrics; empty where none can be read."""
    from jaxrl.runs import metrics

    if not (run_dir / layout.METRICS).is_file():
        return {}
    try:
        return (metrics.read(run_dir) or [{}])[-1]
    except UserError:
        return {}  # `jaxrl resume` reports the fault


def state(member: SweepMember) -> State:
    """Returns whether something is left to train, evaluate or draw, as `jaxrl resume` sees it."""
    from jaxrl.runs import evaluation_record

    run_dir, total = member.run_dir, member.total_steps
    if not (run_dir / layout.CONFIG).is_file():
        return "new"
    saved = checkpoint_files.steps(run_dir)  # may have been removed since, to make room
    trained = _last_line(run_dir).get("step", 0) >= total and (not saved or saved[-1] >= total)
    evaluated = not member.config.evaluation.episodes or evaluation_record.is_of_end(run_dir, total)
    return (
        "done" if trained and evaluated and (run_dir / layout.LEARNING_CURVE).is_file() else "begun"
    )


def _values(config: Config) -> dict[str, Any]:
    """Returns the values by their dotted keys, without those that say where it trains."""
    values = flat(dataclasses.asdict(config.with_time_limit()))  # a run has written it down
    return {key: value for key, value in values.items() if key not in FREE}


def check_directory(member: SweepMember) -> None:
    """Refuses a directory that holds something other than this member. Raises `UserError`."""
    run_dir, asked = member.run_dir, member.config
    try:
        if not (run_dir / layout.CONFIG).is_file():
            check_new_run(asked)
            return
    except (OSError, ValueError, UserError) as error:
        reason = f"{error}" if isinstance(error, OSError | ValueError) else "it holds no run"
        raise UserError(f"cannot train in '{run_dir}' ({reason}): choose another --root") from None
    found = load_config(run_dir)
    # Training writes down how many learners there are.
    if asked.parallel.sync_every and not asked.parallel.num_learners:
        found = found.replaced(parallel={"num_learners": 0})
    if differing := changes(_values(found), _values(asked)):
        raise UserError(
            f"'{run_dir}' was begun with another configuration ({'; '.join(differing)}): choose "
            "another --root, or ask for what was begun"
        )


def _number(value: Any) -> float | None:
    """Returns the value if it is a finite number, else None."""
    try:
        return value if type(value) in (int, float) and math.isfinite(value) else None
    except OverflowError:
        return None


def describe(member: SweepMember, status: str, exit_status: int | None = None) -> Row:
    """Returns the object of a member in sweep.json.

    Args:
      member: of the sweep.
      status: new, begun, done, failed or stopped.
      exit_status: of its process; None where this sweep started none.
    """
    from jaxrl.runs import evaluation_record

    last = _last_line(member.run_dir)
    try:
        evaluation = evaluation_record.read(member.run_dir)
    except UserError:
        evaluation = None
    return {
        "name": member.name,
        "config": str(member.file),
        "settings": dict(member.settings),
        "algorithm": member.config.algorithm,
        "game": member.config.game,
        "seed": member.config.seed,
        "run_dir": str(member.run_dir),
        "status": status,
        "exit_status": exit_status,
        # A checkpoint of the end comes without a line where it was stopped within an interval.
        "step": max([_number(last.get("step")) or 0, *checkpoint_files.steps(member.run_dir)[-1:]]),
        "total_steps": member.total_steps,
        "wall_seconds": _number(last.get("wall_seconds")),
        "return_mean": _number(last.get("return_mean")),
        "evaluation_protocol": evaluation and evaluation.protocol,
        "evaluation_mean": evaluation and evaluation.mean,
        "human_normalized_mean": evaluation and evaluation.human_normalized_mean,
    }


def write(root: Path, rows: list[Row]) -> None:
    """Writes sweep.json, whole or not at all: a list with one object per member."""
    replace_text(root / layout.SWEEP, json.dumps(rows, indent=2, allow_nan=False) + "\n")


def seconds_left(rows: list[Row]) -> float | None:
    """Returns the seconds of the remaining members, by the pace of their configurations.

    A configuration without a pace takes that of all others; None where there is none at all.
    """
    paced = [row for row in rows if row["wall_seconds"] and row["step"]]
    left = [row for row in rows if row["status"] in ("new", "begun")]
    if not paced:
        return None if left else 0.0
    seconds = 0.0
    for row in left:
        same = [other for other in paced if other["config"] == row["config"]]
        alike = [x for x in same if x.get("settings") == row.get("settings")] or same or paced
        pace = sum(x["wall_seconds"] for x in alike) / sum(x["step"] for x in alike)
        seconds += pace * max(row["total_steps"] - row["step"], 0)
    return seconds
