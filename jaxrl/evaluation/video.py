"""Records a game as an mp4 or a GIF, with the score above the picture."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import set_up
from jaxrl.program import rollout
from jaxrl.types import ActorState, EnvEngine, TimeStep

REAL_TIME = 15  # pictures per second: an agent step is 4 of the console's 60 frames
HEIGHT = {".mp4": 420, ".gif": 210}  # of the game, in pixels
CAPTION = 28  # height of the text above the game, in pixels

Step = Callable[[rollout.RolloutState], rollout.RolloutState]


@contextlib.contextmanager
def quiet_fork() -> Iterator[None]:
    """Silences Python's warning of deadlocks: the fork at once becomes the video encoder."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        yield


def _writer(target: Path) -> Any:
    """Opens a GIF or an mp4 for writing, by the target's suffix."""
    if target.suffix == ".gif":
        return imageio.get_writer(target, format="GIF-PIL", fps=REAL_TIME, loop=0)
    return imageio.get_writer(target, format="FFMPEG", fps=REAL_TIME, macro_block_size=2)


def _picture(game: np.ndarray, caption: str, height: int) -> np.ndarray:
    """Returns u8[H, W, 3], enlarged to `height`, under a caption; codecs require even sides."""
    scale = max(1, height // game.shape[0])
    large = game.repeat(scale, 0).repeat(scale, 1)
    height, width = large.shape[0] + CAPTION, large.shape[1]
    picture = Image.new("RGB", (width + width % 2, height + height % 2))
    picture.paste(Image.fromarray(large), (0, CAPTION))
    font = ImageFont.load_default(size=16)
    ImageDraw.Draw(picture).text((6, 4), caption, fill="white", font=font)
    return np.asarray(picture)


class _Progress(NamedTuple):
    """How far the one game has been played."""

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
      config: of the run that trained the policy.
      actor: the trained policy.
      protocol: one of `jaxrl.evaluation.protocols.PROTOCOLS`.
      target: the mp4 or GIF.
      seed: of the game and the actions.
      max_seconds: of video; a longer game is cut.
      from_step: agent steps to play before the video begins.

    Raises `UserError`, and writes nothing, if the game ends before `from_step`.
    """
    engine, agent, _ = set_up(config, protocol, 1)

    @jax.jit
    def play(actor: ActorState, state: rollout.RolloutState) -> rollout.RolloutState:
        return rollout.step(agent, engine, actor, state)[0]

    step = partial(play, actor)
    game = _Progress(start_games(config, engine, seed), 0.0, 0, False, False)
    try:
        game = _play_unseen(engine, step, game, from_step)
        game = _film(engine, step, game, target, from_step + max_seconds * REAL_TIME)
    finally:
        engine.close()
    return game.score, game.length, game.over


def _advance(engine: EnvEngine, step: Step, game: _Progress) -> _Progress:
    """Plays one row of the game."""
    state = jax.block_until_ready(step(game.state))
    engine.check()
    row = jax.device_get(state.timestep)
    over, reset = bool(row.game_over[0]), bool(row.reset[0])
    return _Progress(
        state, game.score + float(row.score[0]), game.length + (not reset), over, over and reset
    )


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
        done = bool((game.state.timestep.terminated | game.state.timestep.truncated)[0])
    return game


def _film(
    engine: EnvEngine, step: Step, game: _Progress, target: Path, max_length: float
) -> _Progress:
    """Plays to the end of the game, or to `max_length` agent steps, and writes the pictures."""
    # Pictures are encoded at once: those of a long game would fill the host memory.
    writer: Any
    with (
        quiet_fork(),
        _writer(target) as writer,
    ):
        while not game.over and game.length < max_length:
            game = _advance(engine, step, game)
            if game.is_next_game:
                break
            shown = engine.render() if engine.render else _gray(game.state.timestep)
            caption = f"{engine.spec.game}   score {game.score:g}"
            picture = _picture(shown, caption, HEIGHT[target.suffix])
            writer.append_data(picture)
        for _ in range(REAL_TIME):  # a second to read the result
            writer.append_data(picture)
    return game


def _gray(timestep: TimeStep) -> np.ndarray:
    """Returns the frame of the one environment as u8[H, W, 3]."""
    return np.asarray(timestep.frame)[0][..., None].repeat(3, -1)
