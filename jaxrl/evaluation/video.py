"""Records a game as an mp4 or a GIF, with the score above the picture."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from jaxrl.config.schema import Config
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import set_up
from jaxrl.program import rollout
from jaxrl.types import ActorState

REAL_TIME = 15  # pictures per second: an agent step is 4 of the console's 60 frames
HEIGHT = {".mp4": 420, ".gif": 210}  # of the game, in pixels
CAPTION = 28  # height of the text above the game, in pixels


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


def record(
    config: Config, actor: ActorState, protocol: str, target: Path, seed: int, max_seconds: float
) -> tuple[float, int, bool]:
    """Plays one game; returns its score, its length in agent steps, and whether it ended.

    Args:
      config: of the run that trained the policy.
      actor: the trained policy.
      protocol: one of `jaxrl.evaluation.protocols.PROTOCOLS`.
      target: the mp4 or GIF.
      seed: of the game and the actions.
      max_seconds: of video; a longer game is cut.
    """
    engine, agent, _ = set_up(config, protocol, 1)

    @jax.jit
    def step(actor: ActorState, state: rollout.RolloutState) -> Any:
        return rollout.step(agent, engine, actor, state)[0]

    state = start_games(config, engine, seed)
    score, length, over = 0.0, 0, False
    # Pictures are encoded at once: those of a long game would fill the host memory.
    writer: Any
    with (
        quiet_fork(),
        _writer(target) as writer,
    ):
        while not over and length < max_seconds * REAL_TIME:
            state = jax.block_until_ready(step(actor, state))
            engine.check()
            row = jax.device_get(state.timestep)
            score, length = score + float(row.score[0]), length + int(~row.reset[0])
            over = bool(row.game_over[0])
            if over and row.reset[0]:  # it ended during the reset; another game has begun
                break
            game = engine.render() if engine.render else row.frame[0][..., None].repeat(3, -1)
            caption = f"{config.game}   score {score:g}"
            picture = _picture(game, caption, HEIGHT[target.suffix])
            writer.append_data(picture)
        for _ in range(REAL_TIME):  # a second to read the result
            writer.append_data(picture)
    engine.close()
    return score, length, over
