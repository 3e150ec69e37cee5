import numpy as np

from jaxrl.analysis import branch_plots
from jaxrl.evaluation.branches import Branches


def make_branches(**changes):
    """Three actions over two steps: the first two lead to the same reward, the last to the end."""
    pictures = np.zeros((3, 2, 8, 8, 3), np.uint8)
    pictures[2] = 200
    result = Branches(
        game="pong",
        action_names=("NOOP", "FIRE", "RIGHT"),
        step=1234,
        score=-2.0,
        screen=np.zeros((8, 8, 3), np.uint8),
        probabilities=np.array([0.25, 0.5, 0.25], np.float32),
        value=0.5,
        chosen=1,
        rewards=np.array([[0, 1], [0, 1], [-1, 0]], np.float32),
        values=np.array([[0.6, 0.4], [0.6, 0.4], [0.1, np.nan]], np.float32),
        lengths=np.array([2, 2, 1], np.int32),
        terminated=np.array([False, False, True]),
        game_over=np.array([False, False, True]),
        returns=np.array([1.38, 1.38, -1.0], np.float32),
        picture_steps=np.array([1, 2], np.int32),
        pictures=pictures,
    )
    return result._replace(**changes)


def test_each_outcome_has_a_row_of_pictures():
    figure = branch_plots.draw(make_branches())
    screen, returns, values, *grid = figure.axes
    assert screen.get_title() == "step 1,234, score -2"
    assert [axes.get_title() for axes in grid] == ["step 1,235", "step 1,236", "", ""]
    # The best return first; actions that lead to the same share a row.
    assert [axes.get_ylabel() for axes in grid] == ["NOOP\nFIRE\n1.38", "", "RIGHT\n-1.00", ""]
    assert [axes.get_xlabel() for axes in grid] == ["", "reward +1", "reward -1, game over", ""]
    assert [axes.images[0].get_alpha() for axes in grid] == [1, 1, 1, 0.3]  # pale after the end
    labels = [label.get_text() for label in returns.get_yticklabels()]
    assert labels == ["NOOP 25 %", "▸ FIRE 50 %", "RIGHT 25 %"]
    lines = [line.get_xdata() for line in returns.lines[::3]][:3]
    np.testing.assert_allclose(lines, [[0.6, 1.38], [0.6, 1.38], [0.1, -1]], rtol=1e-6)
    # From the state's value on; of a terminal state it is 0.
    curves = [line.get_ydata() for line in values.lines if line.get_linestyle() == "-"]
    np.testing.assert_allclose(curves, [[0.5, 0.6, 0.4], [0.5, 0, np.nan]], rtol=1e-6)


def test_of_many_outcomes_the_best_and_the_worst_have_rows():
    names = tuple(f"A{action}" for action in range(18))
    result = make_branches(action_names=names, chosen=0)
    longer = {
        field: np.repeat(getattr(result, field), 6, axis=0)
        for field in ("probabilities", "rewards", "values", "lengths", "terminated", "game_over",
                      "pictures")
    }  # fmt: skip
    longer["rewards"][:, 1] = longer["returns"] = np.arange(18, dtype=np.float32)
    figure = branch_plots.draw(result._replace(**longer))
    first = [axes.get_ylabel().split("\n")[0] for axes in figure.axes[3::2]]
    assert first == ["A17", "A16", "A15", "A2", "A1", "A0"]


def test_choices_are_drawn_over_the_game():
    result = [make_branches(step=10), make_branches(step=20, value=1.5, chosen=2)]
    (axes,) = branch_plots.draw_choices(result).axes
    value, others, chosen = axes.lines
    np.testing.assert_array_equal(value.get_xydata(), [[10, 0.5], [20, 1.5]])
    np.testing.assert_allclose(others.get_ydata(), [1.38, 1.38, -1] * 2, rtol=1e-6)
    np.testing.assert_allclose(chosen.get_xydata(), [[10, 1.38], [20, -1]], rtol=1e-6)
