import imageio.v2 as imageio
import numpy as np
import pytest

from jaxrl.analysis import trace_plots
from jaxrl.errors import UserError
from jaxrl.evaluation.trace import Trace


def make_trace(num_atoms=0):
    """Two decisions and the end of a game, of two actions."""
    atoms = np.linspace(-1, 1, num_atoms, dtype=np.float32)
    distributions = np.zeros((3, 2, num_atoms), np.float32)
    if num_atoms:
        distributions[:, 0, 0] = distributions[:, 1, -1] = 1  # returns of -1 and of 1
        distributions[2] = np.nan
    return Trace(
        game="catch",
        action_names=("LEFT", "RIGHT"),
        frames=np.full((3, 84, 84, 3), 7, np.uint8),
        actions=np.array([0, 1, -1], np.int32),
        rewards=np.array([0, 1, 0], np.float32),
        ends=np.array([False, False, True]),
        probabilities=np.array([[0.75, 0.25], [0.5, 0.5], [np.nan] * 2], np.float32),
        values=np.array([0.5, 1.0, np.nan], np.float32),
        atoms=atoms,
        distributions=distributions,
    )


def labels(figure):
    return [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]


def test_frames_are_shown_above_the_policy_and_the_value():
    figure = trace_plots.draw(make_trace())
    assert labels(figure) == ["policy", "value"]
    titles = [axes.get_title() for axes in figure.axes[: trace_plots.FRAMES_SHOWN]]
    # Eight of three rows, evenly: 0, 0.29, 0.57, 0.86, 1.14, 1.43, 1.71, 2 rounded
    rows = ["0: LEFT"] * 2 + ["1: RIGHT"] * 4 + ["2: over"] * 2
    assert titles == rows
    policy, value = figure.axes[trace_plots.FRAMES_SHOWN :]
    below, above = (patch.get_data() for patch in policy.patches)
    np.testing.assert_array_equal(below.values, np.array([0.75, 0.5, np.nan]))
    np.testing.assert_array_equal(above.values, np.array([1, 1, np.nan]))
    np.testing.assert_array_equal(above.baseline, below.values)
    assert [line.get_label() for line in value.lines] == ["reward"]
    assert value.lines[0].get_xydata().tolist() == [[1.5, 1.0]]


def test_of_c51_the_mean_returns_and_the_distribution_follow():
    figure = trace_plots.draw(make_trace(num_atoms=5))
    assert labels(figure) == [
        "policy", "value", "mean return\nof each action", "return of the\nchosen action",
    ]  # fmt: skip
    means, shades = figure.axes[trace_plots.FRAMES_SHOWN + 2 :]
    np.testing.assert_array_equal(means.patches[0].get_data().values, [-1, -1, np.nan])
    chosen = np.asarray(shades.collections[0].get_array().filled(np.nan))
    # LEFT is chosen first, whose return is -1, the lowest atom; then RIGHT.
    np.testing.assert_array_equal(chosen[:, 0], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(chosen[:, 1], [0, 0, 0, 0, 1])


def test_one_step_shows_each_actions_distribution():
    figure = trace_plots.draw_step(make_trace(num_atoms=5), 1)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["step 1", "LEFT\nmean -1.00", "RIGHT, chosen\nmean 1.00"]
    assert [bar.get_height() for bar in figure.axes[2].patches] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("num_atoms", "step", "message"), [(0, 0, "only C51"), (5, 2, "no action"), (5, 3, "no action")]
)
def test_steps_that_have_no_distribution_are_refused(num_atoms, step, message):
    with pytest.raises(UserError, match=message):
        trace_plots.draw_step(make_trace(num_atoms), step)


@pytest.mark.filterwarnings("ignore:os.fork")  # reading the video back starts a decoder
@pytest.mark.parametrize("num_atoms", [0, 5])
def test_a_film_has_a_picture_for_each_row(num_atoms, tmp_path):
    trace = make_trace(num_atoms)
    trace.frames[1] = 250
    (tmp_path / "film.mp4").write_bytes(trace_plots.film(trace))
    film = np.stack(imageio.mimread(tmp_path / "film.mp4", memtest=False)).astype(float)
    assert film.shape == (3, 448, 576, 3)
    # The screen is in the upper left: dark, bright, dark.
    screen = film[:, 100:150, 100:150].mean((1, 2, 3))
    assert screen[1] > 200
    assert screen[[0, 2]].max() < 60
    # Below it only the place in time moves.
    curves = np.abs(film[1] - film[0])[280:].mean(-1) > 60
    assert 0 < curves.mean() < 0.03


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_film_of_a_short_game_is_slowed(tmp_path):
    (tmp_path / "film.mp4").write_bytes(trace_plots.film(make_trace(0)))
    assert imageio.get_reader(tmp_path / "film.mp4").get_meta_data()["fps"] == 2
    (tmp_path / "film.mp4").write_bytes(trace_plots.film(make_trace(0), 15))
    assert imageio.get_reader(tmp_path / "film.mp4").get_meta_data()["fps"] == 15


def test_more_actions_than_colors_have_shades():
    trace = make_trace()._replace(action_names=tuple(f"A{n}" for n in range(18)))
    assert len({tuple(color) for color in trace_plots._colors(trace)}) == 18
