"""Records a game as an mp4 or a GIF, with the score above the picture."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.evaluation import film
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import newest_row, screen, set_up
from jaxrl.program import rollout
from jaxrl.types import ActorState, EnvEngine

CONSOLE = 60  # frames per second
SHORTEST = 5.0  # seconds of film, so that a game of a few steps can be seen
SLOWEST = 2  # pictures per second
HEIGHT = 420  # height of the game in pixels: twice an Atari game's, which is then 320 wide
CAPTION = 28  # height of the text above the game, in pixels

Step = Callable[[rollout.RolloutState], rollout.RolloutState]


def real_time(frame_skip: int) -> float:
    """Returns the pictures per second at the console's speed, one for a step: 15 for 4 frames."""
    return CONSOLE / frame_skip


def pictures_per_second(steps: float, fastest: float, shortest: float = SHORTEST) -> float:
    """Returns the speed of a film: `fastest`, the console's, or slower for a game of few steps."""
    return min(fastest, max(SLOWEST, steps / shortest))


def _picture(game: np.ndarray, caption: str) -> np.ndarray:
    """Returns u8[H, W, 3], enlarged to `HEIGHT`, under a caption; codecs require even sides."""
    scale = max(1, HEIGHT // game.shape[0])
    large = game.repeat(scale, 0).repeat(scale, 1)
    height, width = large.shape[0] + CAPTION, large.shape[1]
    picture = Image.new("RGB", (width + width % 2, height + height % 2))
    picture.paste(Image.fromarray(large), (0, CAPTION))
    font = ImageFont.load_default(size=16)
    ImageDraw.Draw(picture).text((6, 4), caption, fill="white", font=font)
    return np.asarray(picture)


class _Progress(NamedTuple):
    """The progress of the one game."""

    state: rollout.RolloutState
    score: float
    length: int  # agent steps
    over: bool
    is_next_game: bool  # the game ended during a reset: the newest row is the next game's


def record(
    config: Config,
    actor: ActorState,
    protocol: str,
    target: Path,
    seed: int,
    max_seconds: float,
    from_step: int = 0,
) -> tuple[float, int, bool]:
    """Plays one game; returns its score, its length in agent steps, and whether it ended.

    Args:
      config: configuration of the run that trained the policy.
      actor: the trained policy.
      protocol: a name of `evaluation_record.PROTOCOLS`.
      target: the mp4 or GIF.
      seed: seed of the game and the actions.
      max_seconds: longest video; a longer game is cut, one of few steps slowed within the limit.
      from_step: agent steps to play before the video begins.

    Raises `UserError`, and writes nothing, if the game ends before `from_step`.
    """
    engine, agent, _ = set_up(config, protocol, 1)
    speed = real_time(config.env.frame_skip)

    @jax.jit
    def play(actor: ActorState, state: rollout.RolloutState) -> rollout.RolloutState:
        return rollout.step(agent, engine, actor, state)[0]

    step = partial(play, actor)
    game = _Progress(start_games(agent, engine, seed), 0.0, 0, False, False)
    try:
        game = _play_unseen(engine, step, game, from_step)
        game = _film(engine, step, game, target, from_step + max_seconds * speed, speed)
    finally:
        engine.close()
    return game.score, game.length, game.over


def _advance(engine: EnvEngine, step: Step, game: _Progress) -> _Progress:
    """Plays one row of the game."""
    state = jax.block_until_ready(step(game.state))
    engine.check()
    row = newest_row(state)
    over_during_reset = row.game_over and row.reset
    score, length = game.score + row.score, game.length + (not row.reset)
    return _Progress(state, score, length, row.game_over, over_during_reset)


def _play_unseen(engine: EnvEngine, step: Step, game: _Progress, from_step: int) -> _Progress:
    """Plays up to an agent step, and through the reset where a life ends there."""
    done = False
    while game.length < from_step or done:
        game = _advance(engine, step, game)
        if game.over:
            raise UserError(
                f"from_step = {from_step}: the game ended at agent step {game.length}; take an "
                "earlier one, or another seed"
            )
        done = newest_row(game.state).done
    return game


def _film(
    engine: EnvEngine,
    step: Step,
    game: _Progress,
    target: Path,
    max_length: float,
    fastest: float,
) -> _Progress:
    """Plays to the end of the game, or to `max_length` agent steps, and writes the pictures."""
    longest = (max_length - game.length) / fastest
    first: list[np.ndarray] = []
    rows = _rows(engine, step, game, max_length)
    for played, picture in itertools.islice(rows, int(SHORTEST * fastest)):
        game = played
        first.append(picture)
    # By the length of the whole game: the end of a long one keeps its speed.
    slow = pictures_per_second(game.length, fastest, min(SHORTEST, longest))
    speed = slow if game.over else fastest

    def pictures() -> Iterator[np.ndarray]:
        nonlocal game
        yield from first
        last = first[-1]
        for played, picture in rows:  # encoded at once: a long game would fill the host memory
            game, last = played, picture
            yield last
        if game.over:  # a second to read the result, one picture at least if steps are so long
            last = _end(engine.spec.game, game.score, last)
            yield from itertools.repeat(last, max(1, round(speed)))

    film.write(target, pictures(), speed)
    return game


def _rows(
    engine: EnvEngine, step: Step, game: _Progress, max_length: float
) -> Iterator[tuple[_Progress, np.ndarray]]:
    """Yields the game after each row, and its picture under a caption with the score.

    A game that ends during a reset yields its last screen again: the newest one is the next game's.
    """
    shown: np.ndarray | None = None
    while not game.over and game.length < max_length:
        before, game = game.score, _advance(engine, step, game)
        if shown is None or not game.is_next_game:
            shown = screen(engine, game.state)
        # A console draws a score one frame after it counts: not the one that ends the game.
        score = before if game.over and engine.render else game.score
        yield game, _picture(shown, f"{engine.spec.game}   score {score:g}")


def _end(name: str, score: float, last: np.ndarray) -> np.ndarray:
    """Returns a picture as large as the last one, with the result and no screen."""
    return _picture(np.zeros_like(last[CAPTION:]), f"{name}   game over, final score {score:g}")
