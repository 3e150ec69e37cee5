"""Films are as fast as the console, but for games too short to be seen, and as wide as a page."""

import imageio.v2 as imageio
import numpy as np
import pytest
from PIL import Image

from jaxrl.evaluation import video
from tests.evaluation.test_protocols import scripted


@pytest.mark.parametrize(
    ("steps", "shortest", "speed"),
    [
        (2000, 5.0, 15),  # of Pong
        (75, 5.0, 15),  # five seconds of the console
        (50, 5.0, 10),  # 50 steps in 5 seconds
        (6, 5.0, 2),  # of Catch: not slower than 2
        (6, 1.0, 6),  # where a second is the limit
    ],
)
def test_the_speed_of_a_film(steps, shortest, speed):
    assert video.pictures_per_second(steps, 15, shortest) == speed


def test_a_film_shows_sixty_frames_in_a_second():
    assert [video.real_time(frame_skip) for frame_skip in (1, 2, 4, 5)] == [60, 30, 15, 12]
    assert video.pictures_per_second(2000, video.real_time(2)) == 30


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize(
    ("max_seconds", "speed"), [pytest.param(60.0, 2, marks=pytest.mark.slow), (1.0, 3)]
)
def test_a_film_of_a_short_game_is_slowed_within_its_limit(
    max_seconds, speed, monkeypatch, tmp_path
):
    """Three agent steps and two more rows."""
    config, actor = scripted(monkeypatch)
    video.record(config, actor, "noop", tmp_path / "x.mp4", 0, max_seconds)
    meta = imageio.get_reader(tmp_path / "x.mp4").get_meta_data()
    assert meta["fps"] == speed
    assert meta["duration"] == pytest.approx(5 / speed + 1, abs=0.1)
    video.record(config, actor, "noop", tmp_path / "x.gif", 0, max_seconds)
    with Image.open(tmp_path / "x.gif") as gif:
        assert gif.info["duration"] == pytest.approx(1000 / speed, abs=10)


def test_a_film_of_long_steps_has_its_last_picture(monkeypatch, tmp_path):
    """A step of 255 frames lasts for four seconds: the end is one picture more."""
    config, actor = scripted(monkeypatch)
    written = []
    monkeypatch.setattr(
        video.film, "write", lambda target, pictures, speed: written.extend(pictures)
    )
    config = config.replaced(env={"frame_skip": 255})
    video.record(config, actor, "noop", tmp_path / "x.mp4", 0, 60.0)
    assert len(written) == 6
    assert not written[-1][video.CAPTION :].any()  # no screen


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_game_that_is_cut_keeps_its_speed(monkeypatch, tmp_path):
    config, actor = scripted(monkeypatch)
    video.record(config, actor, "noop", tmp_path / "x.mp4", 0, 2 / 15)
    assert imageio.get_reader(tmp_path / "x.mp4").get_meta_data()["fps"] == 15


@pytest.mark.parametrize(("game", "size"), [((210, 160), (448, 320)), ((84, 84), (448, 420))])
def test_pictures_are_enlarged_below_their_caption(game, size):
    pixels = np.full((*game, 3), 200, np.uint8)
    picture = video._picture(pixels, "pong   score 3")
    assert picture.shape == (*size, 3)
    assert (picture[video.CAPTION :] == 200).all()
    assert picture[: video.CAPTION].max() == 255
