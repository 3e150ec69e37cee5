"""The scores of a trained policy and how its games were played.

evaluation.json is the newest evaluation; evaluations/noop.json and evaluations/sticky.json are the
newest by each protocol, so that none replaces another protocol's.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.atari.games import atari_games, known_games
from jaxrl.atari.scores import human_normalized
from jaxrl.config import extensions
from jaxrl.config.schema import Config
from jaxrl.errors import StorageError, UserError
from jaxrl.formatting import fault, games, shell_word
from jaxrl.runs import layout
from jaxrl.runs.files import check_writable, replace_text

LARGEST = 1e12  # no game has a score near it


@dataclass(frozen=True)
class Conditions:
    """Starts, resets, stickiness, actions and time limit of an evaluation's games."""

    noops: tuple[int, int]  # fewest and most no-ops at the start of a game
    fire: bool  # FIRE is pressed after them
    fire_steps: int  # more agent steps with FIRE, because the emulator may ignore one
    life_resets: bool  # all of this also after every lost life, as in training
    stickiness: float  # probability that an action is repeated
    all_actions: bool  # all 18, not only those that the game uses
    max_steps: int  # agent steps of a game; 0 without a limit
    # Older files have none of these.
    flicker: float = 0.0  # probability that the agent sees a blank frame
    frame_skip: int = 4  # emulator frames of a step
    mode: int = -1  # the game's; -1 is the default
    difficulty: int = -1
    grayscale: bool = True

    def chooses_mode(self) -> bool:
        """Returns whether the game was another than the one of published scores."""
        return max(self.mode, self.difficulty) >= 0

    def describe(self) -> str:
        """Returns one phrase: "0 to 29 no-ops and FIRE at the start, no sticky actions"."""
        fewest, most = self.noops
        noops = f"{most} no-op{'s' * (most > 1)}" if most else ""
        if fewest < most:
            noops = f"{fewest} to {noops}"
        fire = "FIRE" * self.fire
        if self.fire_steps:  # the emulator may ignore one
            fire += f" held for {self.fire_steps} steps more"
        begins = " and ".join(filter(None, [noops, fire])) or "nothing is pressed"
        when = "at the start" + " and after every lost life" * self.life_resets
        sticks = "no sticky actions"
        if self.stickiness:
            sticks = f"actions repeat with probability {self.stickiness:g}"
        phrases = [f"{begins} {when}", sticks] + ["all 18 actions"] * self.all_actions
        if self.flicker:
            phrases.append(f"frames are blank with probability {self.flicker:g}")
        if self.frame_skip != 4:
            phrases.append(f"steps of {self.frame_skip} frame{'s' * (self.frame_skip > 1)}")
        for name in ("mode", "difficulty"):
            if getattr(self, name) >= 0:
                phrases.append(f"{name} {getattr(self, name)}")
        return ", ".join(phrases + ["frames in color"] * (not self.grayscale))


NOTHING_PRESSED = Conditions((0, 0), False, 0, False, 0.0, False, 0)  # Catch has no options


@dataclass(frozen=True)
class Protocol:
    """Rules of an evaluation of whole games, at most 108,000 frames (30 minutes on the console)."""

    noop_max: int  # most no-ops at the start; EnvPool takes at least one, or FIRE
    stickiness: float  # probability that an action is repeated
    summary: str  # describes evaluations whose conditions differ or are not recorded
    published: str  # the conditions of the published scores that results are compared with


NOT_STICKY = Conditions((1, 30), False, 0, False, 0.0, False, 27_000).describe()
PROTOCOLS = {
    # Mnih 2015
    "noop": Protocol(
        noop_max=30,
        stickiness=0.0,
        summary="up to 30 no-ops at the start, no sticky actions",
        published=f"{NOT_STICKY}; nothing pressed for the agent, at most 108,000 frames, where the "
        "source does not say otherwise",
    ),
    # Machado 2018
    "sticky": Protocol(
        noop_max=1,
        stickiness=0.25,
        summary="actions repeat with probability 0.25",
        published="each action repeated with probability 0.25; actions, starts and time limit as "
        "each source has them",
    ),
}


@dataclass(frozen=True)
class Evaluation:
    """The content of evaluation.json."""

    game: str
    protocol: str
    step: int | None  # agent steps of training before it
    episodes: int
    mean: float
    median: float
    std: float
    human_normalized_mean: float | None  # None where no human score of the game is published
    scores: list[float]
    lengths: list[int]  # agent steps
    epsilon: float | None = None  # probability of a random action of a value-based agent, else None
    conditions: Conditions | None = None  # None in files of an older jaxrl

    @property
    def is_default(self) -> bool:
        """Returns whether the game's mode and difficulty are those of published scores."""
        return self.conditions is None or not self.conditions.chooses_mode()


def protocol_of(config: Config) -> str:
    """Returns the protocol whose games are like those of training."""
    return "sticky" if config.env.repeat_action_probability > 0 else "noop"


def summarize(
    game: str,
    protocol: str,
    step: int | None,
    scores: np.ndarray,
    lengths: np.ndarray,
    epsilon: float | None = None,
    conditions: Conditions | None = None,
) -> Evaluation:
    """Summarizes games with these unclipped scores f[N] and lengths i[N]."""
    scores = scores.astype(float)
    return normalized(
        Evaluation(
            game=game,
            protocol=protocol,
            step=step,
            episodes=len(scores),
            mean=float(scores.mean()),
            median=float(np.median(scores)),
            std=float(scores.std()),
            human_normalized_mean=None,
            scores=scores.tolist(),
            lengths=lengths.tolist(),
            epsilon=epsilon,
            conditions=conditions,
        )
    )


def normalized(result: Evaluation) -> Evaluation:
    """Returns the evaluation with its human-normalized mean, where a human score is published."""
    human = human_normalized(result.game, result.mean) if result.is_default else None
    return dataclasses.replace(result, human_normalized_mean=human)


def unwritable(run_dir: Path) -> str:
    """Returns why no evaluation can be saved in a run directory; empty if one can."""
    evaluations = run_dir / layout.EVALUATIONS
    try:
        for folder in (run_dir, *[evaluations] * os.path.lexists(evaluations)):
            check_writable(folder)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write(run_dir: Path, result: Evaluation) -> None:
    """Writes evaluation.json and the protocol's file, each whole or not at all.

    An older run's only evaluation, by another protocol, moves to a file of that protocol. Raises
    `StorageError`.
    """
    try:
        _write(run_dir, result)
    except OSError as error:
        raise StorageError(
            f"the evaluation of '{run_dir}' cannot be saved: {error.strerror}"
        ) from error


def _write(run_dir: Path, result: Evaluation) -> None:
    text = json.dumps(dataclasses.asdict(result), indent=2) + "\n"
    (run_dir / layout.EVALUATIONS).mkdir(exist_ok=True)
    with contextlib.suppress(UserError):  # nothing that could be read is lost
        before = _path(run_dir, read(run_dir).protocol)
        if not before.exists():
            replace_text(before, (run_dir / layout.EVALUATION).read_text(encoding="utf-8"))
    replace_text(_path(run_dir, result.protocol), text)
    replace_text(run_dir / layout.EVALUATION, text)


def _path(run_dir: Path, protocol: str) -> Path:
    return run_dir / layout.EVALUATIONS / f"{protocol}.json"


def read(run_dir: Path, protocol: str | None = None) -> Evaluation:
    """Reads the newest evaluation of a run, of all or by one protocol.

    Raises `UserError` if there is none to read.
    """
    if protocol is None:
        return _read(run_dir, run_dir / layout.EVALUATION)
    path = _path(run_dir, protocol)
    if path.exists():
        return _read(run_dir, path)
    result = read(run_dir)  # older runs have one evaluation
    if result.protocol != protocol:
        raise UserError(
            f"'{run_dir}' was evaluated by protocol {result.protocol}: run "
            f"`jaxrl evaluate {shell_word(run_dir)} --protocol {protocol}`"
        )
    return result


def read_all(run_dir: Path) -> dict[str, Evaluation]:
    """Returns the evaluations of a run that can be read, by protocol."""
    evaluations = {}
    for protocol in PROTOCOLS:
        with contextlib.suppress(UserError):
            evaluations[protocol] = read(run_dir, protocol)
    return evaluations


def _read(run_dir: Path, path: Path) -> Evaluation:
    """Reads one file. Raises `UserError`."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block
            raise ValueError("it is not a file")
        record = json.loads(path.read_text(encoding="utf-8"))
        scores, lengths = _numbers(record["scores"]), _numbers(record["lengths"])
        step, protocol, game = record["step"], record["protocol"], record["game"]
        if len(lengths) != len(scores):
            raise ValueError("the numbers of lengths and scores differ")
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}")
        if game not in known_games() and not extensions.engine_of(game):
            raise ValueError(f"unknown game {game!r}")
        if not (step is None or type(step) is int):
            raise ValueError("'step' is not a number")
        epsilon = record.get("epsilon")  # older files have none
        if not (epsilon is None or (type(epsilon) in (int, float) and 0 <= epsilon <= 1)):
            raise ValueError("'epsilon' is not a probability")
        conditions = read_conditions(record.get("conditions"))
        return summarize(game, protocol, step, scores, lengths.astype(int), epsilon, conditions)
    except FileNotFoundError:
        raise UserError(
            f"'{run_dir}' has no {layout.EVALUATION}: run `jaxrl evaluate {shell_word(run_dir)}`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(
            f"'{path}' cannot be read ({fault(error)}): run `jaxrl evaluate {shell_word(run_dir)}`"
        ) from None


def _numbers(listed: Any) -> np.ndarray:
    if not (isinstance(listed, list) and listed):
        raise ValueError("no list of scores")
    if not all(type(x) in (int, float) and abs(x) < LARGEST for x in listed):  # also not NaN
        raise ValueError("a score is not a number")
    return np.asarray(listed, float)


def read_conditions(recorded: Any) -> Conditions | None:
    """Reads the conditions of a file; an older file has none.

    Raises `ValueError`, `KeyError` or `TypeError` if they make no sense.
    """
    if recorded is None:
        return None
    if not isinstance(recorded, dict):
        raise ValueError("'conditions' is not an object")
    conditions = Conditions(**recorded | {"noops": tuple(recorded["noops"])})
    flags = conditions.fire, conditions.life_resets, conditions.all_actions
    counts = *conditions.noops, conditions.fire_steps, conditions.max_steps, conditions.frame_skip
    modes = conditions.mode, conditions.difficulty
    probabilities = conditions.stickiness, conditions.flicker
    if not (
        len(conditions.noops) == 2
        and all(type(x) is bool for x in flags)
        and all(type(x) is int and 0 <= x < 2**31 for x in counts)
        and all(type(x) is int and -1 <= x < 2**31 for x in modes)
        and all(type(x) in (int, float) and 0 <= x <= 1 for x in probabilities)
    ):
        raise ValueError("'conditions' make no sense")
    return conditions


def is_of_end(run_dir: Path, total_steps: int) -> bool:
    """Returns whether an evaluation of a run is of a policy that was trained to the end."""
    steps = [result.step for result in read_all(run_dir).values()]
    return any(step is not None and step >= total_steps for step in steps)


def played(results: Iterable[Evaluation]) -> str:
    """Returns the conditions of evaluations by one protocol, as text for a line's brackets."""
    evaluations = list(results)
    conditions = {
        r.conditions or (None if r.game in atari_games() else NOTHING_PRESSED) for r in evaluations
    }
    (only, *others) = conditions
    return only.describe() if only and not others else PROTOCOLS[evaluations[0].protocol].summary


def describe(result: Evaluation) -> str:
    """Returns one line for people."""
    human = result.human_normalized_mean
    normalized = "" if human is None else f", human-normalized {human:.2f}"
    trained = "" if result.step is None else f" after {result.step:,} steps"
    random = "" if result.epsilon is None else f"epsilon {result.epsilon:g}, "
    spread = f"mean {result.mean:.1f} (standard deviation {result.std:.1f}), median"
    scores = "score" if result.episodes == 1 else spread
    return (
        f"{result.game}{trained}, protocol {result.protocol} ({played([result])}), "
        f"{random}{games(result.episodes)}: {scores} {result.median:.1f}{normalized}"
    )
