"""The pictures of README and docs/: small, in one palette, and what their titles promise."""

import json
from pathlib import Path

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from jaxrl.analysis.drawing import COLORS
from jaxrl.evaluation import video
from tests.docs.test_examples import load

ROOT = Path(__file__).parents[2]
IMAGES = sorted((ROOT / "docs/images").iterdir())
CHARTS = [path for path in IMAGES if path.suffix == ".png"]
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


@pytest.mark.parametrize("path", CHARTS, ids=lambda path: path.name)
def test_charts_have_the_colors_of_the_palette(path):
    pixels = read(path)
    assert sum(shows(pixels, color) for color in COLORS) >= 2
    others = list(matplotlib.colors.TABLEAU_COLORS.values())[:4]  # those that come by default
    assert not [color for color in others if shows(pixels, color)]


def test_the_film_of_readme_is_as_wide_as_a_page_plays_in_real_time_and_ends_in_a_win():
    with Image.open(FILM) as film:
        assert film.size == (320, 210 * 2 + video.CAPTION)
        assert film.info["loop"] > 0
        assert film.info["duration"] == pytest.approx(1000 / video.REAL_TIME, abs=10)
        assert 15 <= film.n_frames / video.REAL_TIME <= 40  # seconds
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("L"))[: video.CAPTION] > 128
    # 21 points to none; the caption is drawn again to compare.
    game = np.zeros((210, 160, 3), np.uint8)
    wanted = video._picture(game, "pong   score 21, game over")[: video.CAPTION, :, 0] > 128
    assert (last != wanted).mean() < 0.01
    other = video._picture(game, "pong   score 20")[: video.CAPTION, :, 0] > 128
    assert (last != other).mean() > 0.02


def test_every_lag_is_visible_on_pong():
    """Also where two curves are equal: those of 8 and 16 are."""
    game, study = load("policy_lag").recorded(RECORDED)
    assert (game, list(study)) == ("pong", [0, 1, 2, 4, 8, 16])
    figure = load("policy_lag").draw(game, study)
    curves, scores = figure.axes
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = curves.get_window_extent()
    height = canvas.get_width_height()[1]
    rows = slice(int(height - box.y1), int(height - box.y0))
    inside = np.asarray(canvas.buffer_rgba())[rows, int(box.x0) : int(box.x1), :3]
    assert all(shows(inside, color, 100) for color in COLORS)
    published = read(ROOT / "docs/images/policy_lag_pong.png")
    half = published[:, : published.shape[1] // 3]
    assert all(shows(half, color, 100) for color in COLORS)
    assert "seed" not in scores.get_ylabel()  # there is one


def test_the_recorded_curves_of_pong_agree_with_the_table():
    _, study = load("policy_lag").recorded(RECORDED)
    page = (ROOT / "docs/results/results.md").read_text()
    table = page[page.index("On Pong, one seed with Adam") :]
    for title, figure in (
        ("return of the last fifth of training", lambda run: load("policy_lag").score(run, 0.2)),
        ("at the end", lambda run: run.return_mean[-1]),
    ):
        line = next(line for line in table.splitlines() if line.startswith(f"| {title} |"))
        wanted = [float(cell) for cell in line.split("|")[2:-1]]
        np.testing.assert_allclose([figure(runs[0]) for runs in study.values()], wanted, atol=0.25)
    assert "read from the pixels" in json.loads(RECORDED.read_text())["note"]
