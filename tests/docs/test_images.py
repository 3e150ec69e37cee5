"""The pictures of README and docs/: small, in one palette, and what their titles promise."""

from pathlib import Path

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image

from jaxrl.analysis.drawing import COLORS
from jaxrl.evaluation import video
from tests.docs.test_examples import load

ROOT = Path(__file__).parents[2]
IMAGES = sorted((ROOT / "docs/images").iterdir())
# That of a study is drawn in shades of the trials' values.
CHARTS = [path for path in IMAGES if path.suffix == ".png" and path.stem != "study_catch"]
FILM = ROOT / "docs/images/pong.gif"
RECORDED = ROOT / "docs/results/policy_lag_pong.json"


def shows(pixels, color, at_least=30):
    """Whether a picture u8[H, W, 3] has pixels of a color."""
    wanted = (np.array(matplotlib.colors.to_rgb(color)) * 255).round()
    return (np.abs(pixels.astype(float) - wanted).max(-1) <= 3).sum() >= at_least


def read(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_files_are_small(path):
    assert path.stat().st_size < 1.5e6


@pytest.mark.slow
@pytest.mark.parametrize("path", CHARTS, ids=lambda path: path.name)
def test_charts_have_the_colors_of_the_palette(path):
    pixels = read(path)
    curves = 1 if path.stem == "atari5" else 2  # one configuration has one color on every game
    assert sum(shows(pixels, color) for color in COLORS) >= curves
    others = list(matplotlib.colors.TABLEAU_COLORS.values())[:4]  # those that come by default
    assert not [color for color in others if shows(pixels, color)]


def test_the_film_of_readme_is_as_wide_as_a_page_plays_in_real_time_and_ends_in_a_win():
    with Image.open(FILM) as film:
        assert film.size == (320, 210 * 2 + video.CAPTION)
        assert film.info["loop"] > 0
        assert film.info["duration"] == pytest.approx(1000 / video.real_time(4), abs=10)
        assert 15 <= film.n_frames / video.real_time(4) <= 40  # seconds
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("L"))[: video.CAPTION] > 128
    # 21 points to none; the caption is drawn again to compare.
    game = np.zeros((210, 160, 3), np.uint8)
    wanted = video._picture(game, "pong   game over, final score 21")[: video.CAPTION, :, 0] > 128
    assert (last != wanted).sum() < 10  # another score differs by more


def test_the_picture_of_lags_on_pong_shows_the_figures_of_the_table():
    game, scores = load("policy_lag").recorded(RECORDED)
    assert game == "pong"
    table = (ROOT / "docs/results/policy_lag.md").read_text()
    titles = "Pong, return of the last fifth of training", "Pong, at the end"
    for title, lags in zip(titles, scores.values(), strict=True):
        line = next(line for line in table.splitlines() if line.startswith(f"| {title} |"))
        wanted = [[float(cell)] for cell in line.split("|")[2:-1]]
        assert lags == dict(zip((0, 1, 2, 4, 8, 16), wanted, strict=True))
    (axes,) = load("policy_lag").draw(game, scores).axes
    drawn = [line.get_ydata().tolist() for line in axes.get_lines()]
    assert drawn == [[value for (value,) in lags.values()] for lags in scores.values()]
    assert "seed" not in axes.get_ylabel()  # there is one
