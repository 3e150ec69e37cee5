import dataclasses
import json
import math

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jaxrl.analysis import bench_charts, curves, drawing, groups
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.config.toml import to_toml
from jaxrl.errors import UserError
from jaxrl.runs import evaluation_record, metrics
from jaxrl.runs.directory import settings_by_key


def make_run(path, returns, config=None, steps=None, episodes=None):
    """A run directory whose lines are 250,000 agent steps, 1,000,000 frames and a minute apart."""
    path.mkdir(parents=True)
    config = dataclasses.replace(config or Config(), run_dir=str(path))
    (path / "config.toml").write_text(to_toml(config))
    steps = steps or range(1, len(returns) + 1)
    lines = zip(steps, returns, episodes or [60 * n for n in steps], strict=True)
    rows = [
        {
            "step": 250_000 * n,
            "frames": 1_000_000 * n,
            "seconds": 60.0 * n,
            "return_mean": score,
            "episodes": ended,
        }
        for n, score, ended in lines
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def two_axes():
    return matplotlib.figure.Figure().subplots(1, 2)


def axes():
    return matplotlib.figure.Figure().subplots()


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def legend_of(figure):
    """The entries of the only legend of a figure, and its title."""
    (box,) = figure.legends
    assert not any(axes.get_legend() for axes in figure.axes)
    return [text.get_text() for text in box.get_texts()], box.get_title().get_text()


def test_a_curve_has_the_lines_with_games_in_the_units_of_its_label(tmp_path):
    run = make_run(tmp_path / "x", [None, 2.0, 4.0])
    assert curves.curve(run) == ([2.0, 3.0], [2.0, 4.0])
    assert curves.curve(run, "step") == ([0.5, 0.75], [2.0, 4.0])
    assert curves.curve(run, "seconds") == ([2.0, 3.0], [2.0, 4.0])


def test_smoothing_is_a_trailing_mean_of_the_lines_there_are(tmp_path):
    run = make_run(tmp_path / "x", [1.0, 2.0, 6.0, 4.0])
    # 1, (1 + 2) / 2, (1 + 2 + 6) / 3, (2 + 6 + 4) / 3
    assert curves.curve(run, smooth=3)[1] == [1.0, 1.5, 3.0, 4.0]
    assert curves.curve(run, smooth=1)[1] == [1.0, 2.0, 6.0, 4.0]
    with pytest.raises(UserError, match="at least 1"):
        curves.curve(run, smooth=0)


def test_smoothing_is_said_by_the_label(tmp_path):
    run = make_run(tmp_path / "x", [1.0, 2.0])
    plain, smooth = two_axes()
    curves.draw(plain, [run])
    curves.draw(smooth, [run], smooth=5)
    assert plain.get_ylabel() == "return, mean of the last 100 games"
    assert smooth.get_ylabel().endswith("trailing mean of 5 lines")


def test_a_band_is_over_the_range_that_all_seeds_have_reached(tmp_path):
    one = make_run(tmp_path / "1", [0.0, 10.0, 20.0], steps=[1, 2, 3])
    two = make_run(tmp_path / "2", [20.0, 40.0], steps=[2, 4])
    seeds = curves.band([one, two])
    # At 2 million frames 10 and 20; at 3 million 20, and 30 half way from 20 to 40.
    assert (seeds.x[0], seeds.x[-1]) == (2.0, 3.0)
    np.testing.assert_allclose([seeds.mean[0], seeds.mean[-1]], [15, 25])
    np.testing.assert_allclose([seeds.lowest[0], seeds.lowest[-1]], [10, 20])
    np.testing.assert_allclose([seeds.highest[0], seeds.highest[-1]], [20, 30])


def test_seeds_that_have_no_range_in_common_have_no_mean(tmp_path):
    early = make_run(tmp_path / "1", [0.0, 1.0], steps=[1, 2])
    late = make_run(tmp_path / "2", [2.0, 3.0], steps=[3, 4])
    silent = make_run(tmp_path / "3", [None, None])
    for runs in ([early, late], [early, silent]):
        assert curves.band(runs).x.size == 0


def test_runs_are_grouped_by_all_but_the_seed(tmp_path):
    quick = OptimizerConfig(learning_rate=1e-3)
    one = make_run(tmp_path / "pong-mine-seed1", [1.0], Config(seed=1))
    two = make_run(tmp_path / "pong-mine-seed2-20261121-101500", [1.0], Config(seed=2))
    other = make_run(tmp_path / "a", [1.0], Config().replaced(optimizer=quick, log={"interval": 5}))
    boxing = make_run(tmp_path / "boxing-mine-seed1", [1.0], Config(game="boxing"))
    grouped = groups.group_runs([one, other, boxing, two])
    assert [(g.game, g.label, g.run_dirs) for g in grouped] == [
        ("pong", "mine", [one, two]),
        ("boxing", "mine", [boxing]),
        ("pong", "a2c", [other]),
    ]


def test_groups_with_one_name_are_distinguished_by_their_settings(tmp_path):
    quick = OptimizerConfig(learning_rate=1e-3)
    one = make_run(tmp_path / "a", [1.0], Config())
    two = make_run(tmp_path / "b", [1.0], Config(optimizer=quick))
    assert [g.label for g in groups.group_runs([one, two])] == [
        "a2c (learning_rate 0.0007)",
        "a2c (learning_rate 0.001)",
    ]


def test_the_legend_names_the_interval_and_a_single_seed(tmp_path):
    three = [
        make_run(tmp_path / f"pong-a-seed{s}", [1.0, 2.0 * s], Config(seed=s), episodes=[100, 200])
        for s in (1, 2, 3)
    ]
    single = make_run(tmp_path / "pong-b-seed1", [1.0, 3.0], Config(num_envs=8), episodes=[50, 200])
    drawn = axes()
    curves.draw_seeds(drawn, groups.group_runs([*three, single]))
    seeds = "a: mean of 3 seeds,\nband from lowest to highest"
    assert legend(drawn) == [seeds, "b: 1 seed", curves.EARLY]
    mean = next(line for line in drawn.lines if line.get_label().startswith("a: mean"))
    assert mean.get_ydata()[-1] == pytest.approx((2 + 4 + 6) / 3)
    # The band of the three, one mean of first games, and its sign in the legend.
    assert len(drawn.collections) == 3


def test_a_picture_without_games_says_so(tmp_path):
    drawn = axes()
    training = make_run(tmp_path / "x", [None])
    curves.draw(drawn, [training])
    assert [text.get_text() for text in drawn.texts] == ["no game over yet"]
    ended = make_run(tmp_path / "y", [None], Config(total_steps=250_000))
    scores = np.array([1.0, 2.0])
    evaluation_record.write(
        ended, evaluation_record.summarize("pong", "noop", 250_000, scores, np.array([9, 9]))
    )
    drawn = axes()
    curves.draw(drawn, [ended])
    words = "no game ended in this run: train longer\nevaluation: mean score 1.5"
    assert [text.get_text() for text in drawn.texts] == [words]
    drawn = axes()
    curves.draw(drawn, [training, ended])
    words = "no game over yet\nevaluation of y: mean score 1.5"
    assert [text.get_text() for text in drawn.texts] == [words]


def test_a_comparison_has_a_row_for_each_game_and_one_color_for_each_configuration(tmp_path):
    runs = [
        make_run(
            tmp_path / f"{game}-{name}-seed1",
            [1.0, 2.0],
            Config(game=game, num_envs=envs),
            episodes=[100, 200],
        )
        for game, name, envs in (("pong", "a", 8), ("pong", "b", 16), ("boxing", "b", 16))
    ]
    figure = curves.comparison(runs, ("step", "frames", "seconds"), smooth=2)
    assert len(figure.axes) == 6
    assert [a.get_title(loc="left") for a in figure.axes[::3]] == ["pong", "boxing"]
    assert legend_of(figure) == (["a: 1 seed (pong)", "b: 1 seed"], "")
    second = figure.axes[0].lines[1], figure.axes[3].lines[0]
    assert second[0].get_color() == second[1].get_color() != figure.axes[0].lines[0].get_color()
    assert [a.get_xlabel() for a in figure.axes[3:]] == [
        curves.LABELS[axis] for axis in ("step", "frames", "seconds")
    ]
    assert figure.get_supylabel() == "return, mean of the last 100 games,\ntrailing mean of 2 lines"
    assert not any(a.get_ylabel() for a in figure.axes)  # of rows, they would overlap


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]


def test_a_single_run_is_named_with_its_game_algorithm_and_seed(tmp_path):
    run = make_run(tmp_path / "x", [1.0, 2.0], Config(game="boxing", seed=7), episodes=[99, 200])
    figure = curves.comparison([run])
    assert titles(figure) == ["boxing, a2c, seed 7"]
    assert figure.axes[0].get_ylabel() == "return, mean of the last 100 games"
    circle = "circle: mean of first games only, which favors short ones"
    assert legend_of(figure) == (["x"], circle)


@pytest.mark.parametrize(("games", "words"), [(1, "1 game so far"), (99, "99 games so far")])
def test_a_run_of_few_games_shows_their_mean_and_says_how_many(games, words, tmp_path):
    run = make_run(tmp_path / "x", [None, -20.5], episodes=[0, games])
    figure = curves.comparison([run])
    assert titles(figure) == [f"pong, a2c, seed 1: {words}"]
    left = figure.axes[0]
    assert left.get_ylabel() == "return, mean of the games so far"
    assert (list(left.lines[0].get_ydata()), left.lines[0].get_marker()) == ([-20.5], "o")
    assert legend_of(figure)[1] == curves.CIRCLES[curves.EARLY]


def test_runs_without_a_game_are_named_beside_the_others(tmp_path):
    """Of three seeds one has no game; the mean is of the two others, at their only step."""
    parts = ((1, [-20.0], [30]), (2, [None], [0]), (3, [-18.0], [33]))
    seeds = [
        make_run(tmp_path / f"pong-x-seed{n}", returns, Config(seed=n), episodes=ended)
        for n, returns, ended in parts
    ]
    silent = make_run(tmp_path / "pong-y-seed1", [None], Config(num_envs=4, total_steps=250_000))
    figure = curves.comparison([*seeds, silent])
    entries, title = legend_of(figure)
    assert entries == ["x: mean of 2 of 3 seeds", "y: no game ended in this run"]
    assert title == f"{curves.BANDS}; {curves.CIRCLES[curves.EARLY]}"
    (mean,) = [line for line in figure.axes[0].lines if line.get_label().startswith("x: mean")]
    assert (mean.get_ydata()[0], mean.get_marker()) == (-19.0, "o")


def test_seeds_without_a_common_range_and_runs_of_one_seed_are_named_so(tmp_path):
    early = make_run(tmp_path / "pong-x-seed1", [0.0, 1.0], Config(seed=1), steps=[1, 2])
    late = make_run(tmp_path / "pong-x-seed1-20261121-101500", [2.0, 3.0], Config(seed=1), [3, 4])
    ((label,), _) = legend_of(curves.comparison([early, late]))
    assert label == "x: mean of 2 runs, which have no range in common"


@pytest.mark.slow
def test_names_with_dollars_are_no_formulas(tmp_path):
    """Matplotlib would refuse this one, as TeX."""
    run = make_run(tmp_path / r"$\frac$", [1.0, 2.0])
    (run / "config.toml").write_text("game = '$\\frac$'\n")
    silent = make_run(tmp_path / r"$\bad$", [None])
    many = [make_run(tmp_path / f"$\\{n}$", [1.0, 2.0]) for n in range(curves.MOST_ROWS)]
    for n, path in enumerate(many):
        (path / "config.toml").write_text(f"game = '$\\{n}$'\n")
    for run_dirs in ([run], [run, silent], [silent], [run, *many]):
        curves.learning_curve(run_dirs, tmp_path / "x.png")
        assert (tmp_path / "x.png").is_file()


def test_each_run_has_a_curve_if_that_is_asked_for(tmp_path):
    runs = [
        make_run(tmp_path / f"pong-x-seed{n}", [1.0, n], Config(seed=n), episodes=[200, 300])
        for n in (1, 2)
    ]
    together, apart = curves.comparison(runs), curves.comparison(runs, each=True)
    assert legend_of(together) == (["x: mean of 2 seeds"], curves.BANDS)
    assert legend_of(apart) == (["seed1", "seed2"], "pong-x")
    assert len({line.get_color() for line in apart.axes[0].lines}) == 2


def test_a_run_without_a_configuration_is_compared_under_its_name(tmp_path):
    runs = [make_run(tmp_path / name, [1.0, 2.0]) for name in ("a", "b", "c")]
    (runs[0] / "config.toml").unlink()
    (runs[1] / "config.toml").write_text('game = "pong"\nlog_interval = 5\n')  # of older versions
    figure = curves.comparison(runs)
    assert titles(figure) == ["pong", "unknown game"]
    assert legend_of(figure)[0] == ["a2c: 1 seed (pong)", "b (pong)", "a (unknown game)"]


def test_a_sweep_is_named_by_what_differs_below_panels_that_keep_their_width(tmp_path):
    """Also with long names and many members: a panel is 4 inches wide at least, and 2 high."""
    rates = (1e-5, 1e-4, 3e-3)
    runs = [
        make_run(
            tmp_path
            / f"a2c_fast-a_long_key_of_one_value=44-learning_rate={rate:g}-pong-seed{seed}",
            [1.0, 2.0],
            Config(seed=seed, optimizer=OptimizerConfig(learning_rate=rate)),
            episodes=[100, 200],
        )
        for seed in (1, 2)
        for rate in rates
    ]
    figure = curves.comparison(runs)
    entries, title = legend_of(figure)
    assert entries == [f"learning_rate={rate:g}: mean of 2 seeds" for rate in rates]
    assert title.split("; ")[:2] == ["a2c_fast-a_long_key_of_one_value=44", curves.BANDS]
    each = curves.comparison(runs, each=True)
    assert legend_of(each)[0][0] == "learning_rate=1e-05-seed1"
    long = make_run(tmp_path / ("long-name-" * 20), [1.0, 2.0])
    for drawn in (figure, each, curves.comparison([*runs, long], each=True)):
        FigureCanvasAgg(drawn).draw()
        for panel in drawn.axes:
            size = panel.get_window_extent().size / drawn.dpi
            assert size[0] > 4, size
            assert size[1] > 2, size
        assert not overlapping(drawn)


def overlapping(figure):
    """Labels of axes and ticks that overlap those of other axes."""
    shown = [[a.xaxis.label, a.yaxis.label, *a.get_xticklabels()] for a in figure.axes]
    boxes = [[text.get_window_extent() for text in texts if text.get_text()] for texts in shown]
    return [
        (box, other)
        for place, panel_boxes in enumerate(boxes)
        for others in boxes[place + 1 :]
        for box in panel_boxes
        for other in others
        if box.overlaps(other)
    ]


def test_a_short_run_is_drawn_in_units_that_fit(tmp_path):
    """400 and 800 agent steps, 1,600 and 3,200 frames, 1.5 and 3 seconds."""
    run = make_run(tmp_path / "x", [1.0, 2.0])
    lines = [
        {"step": 400 * n, "frames": 1600 * n, "seconds": 1.5 * n, "return_mean": n, "episodes": n}
        for n in (1, 2)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = curves.comparison([run], ("step", "frames", "seconds"))
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "agent steps",
        "emulator frames (thousands)",
        "training time (seconds, compilation excluded)",
    ]
    assert [list(axes.lines[0].get_xdata()) for axes in figure.axes] == [
        [400, 800], [1.6, 3.2], [1.5, 3.0],
    ]  # fmt: skip
    assert curves.curve(run, "seconds") == ([0.025, 0.05], [1.0, 2.0])  # minutes, in tables
    alone = axes()
    curves.draw(alone, [run], "seconds")
    assert alone.get_xlabel() == "training time (seconds, compilation excluded)"


@pytest.mark.parametrize(("games", "panels"), [(1, 2), (6, 12), (7, 7), (9, 9)])
def test_every_game_has_a_panel(games, panels, tmp_path):
    names = ["pong", "boxing", "breakout", "alien", "amidar", "qbert", "freeway", "hero", "krull"]
    runs = [
        make_run(tmp_path / f"{game}-{name}-seed1", [1.0, 2.0], Config(game=game, num_envs=envs))
        for game in names[:games]
        for name, envs in (("a", 8), ("b", 16))
    ]
    figure = curves.comparison(runs)
    assert sum(axes.axison for axes in figure.axes) == panels
    shown = titles(figure) or [axes.get_title() for axes in figure.axes if axes.axison]
    assert shown == names[:games]
    assert all(len(axes.lines) == 2 for axes in figure.axes if axes.axison)


def test_the_time_to_a_score_is_that_of_the_first_line_that_has_it(tmp_path):
    # The first line, of 60 games, does not count.
    run = make_run(tmp_path / "x", [11.0, 5.0, 12.0, 9.0, 18.0])
    table = curves.time_to_score([run], [10, 18, 20])
    assert table.to_dict("list") == {
        "run": ["x"] * 3,
        "score": [10, 18, 20],
        "step": [750_000, 1_250_000, None],
        "frames": [3_000_000, 5_000_000, None],
        "minutes": [3.0, 5.0, None],
    }


def test_throughput_is_drawn_of_all_and_of_each_environment():
    rates = {
        40: {"loop": 2000.0, "training": 800.0},
        20: {"loop": 2200.0, "training": 600.0},
    }
    both, each = two_axes()
    bench_charts.draw_throughput((both, each), rates)
    training = [axes.lines[1] for axes in (both, each)]
    assert list(training[0].get_xdata()) == [20, 40]
    assert list(training[0].get_ydata()) == [600, 800]
    assert list(training[1].get_ydata()) == [600 / 20, 800 / 40]
    assert legend(each) == ["loop", "training"]


def test_a_picture_of_throughput_is_written_or_refused(tmp_path):
    rates = {1: {"training": 5.0}}
    bench_charts.throughput(rates, tmp_path / "x.png", "title")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="cannot write"):
        bench_charts.throughput(rates, tmp_path / "none" / "x.png", "title")


def test_shares_are_stacked_in_percent():
    drawn = axes()
    bench_charts.draw_shares(drawn, {8: {"emulators": 0.25, "learning": 0.75}})
    lower, upper = drawn.patches
    assert (lower.get_y(), lower.get_height()) == (0, 25)
    assert (upper.get_y(), upper.get_height()) == (25, 75)
    assert [text.get_text() for text in drawn.texts] == ["25", "75"]


def test_scaling_is_drawn_beside_the_multiple_of_one_device():
    rates, share = two_axes()
    bench_charts.draw_scaling((rates, share), {"a": {1: 100.0, 4: 300.0}})
    ideal, measured = rates.lines
    assert list(ideal.get_ydata()) == [100, 400]
    assert list(measured.get_ydata()) == [100, 300]
    assert list(share.lines[0].get_ydata()) == [1.0, 0.75]
    assert math.isclose(share.get_ylim()[0], 0)


def test_a_second_round_of_colors_has_other_lines():
    styles = [tuple(drawing.line_style(n).values()) for n in range(4 * len(drawing.COLORS))]
    assert len(set(styles)) == len(styles)


def early_lines(run_dir):
    return metrics.covers_first_games(metrics.read(run_dir), settings_by_key(run_dir))


def test_means_of_first_games_are_marked(tmp_path):
    """With 60 environments 120 games must have ended: 30 and 119 have a circle, 120 has none."""
    returns, ended = [None, 1.0, 2.0, 3.0, 4.0], [0, 30, 119, 120, 900]
    run_dir = make_run(tmp_path / "x", returns, Config(num_envs=60), episodes=ended)
    other = make_run(tmp_path / "y", [1.0], Config(num_envs=8), episodes=[100])
    assert early_lines(run_dir) == [True, True, True, False, False]
    assert early_lines(other) == [False]
    drawn = axes()
    again = make_run(tmp_path / "z", returns, Config(num_envs=60), episodes=ended)
    curves.draw(drawn, [run_dir, other, again])
    # The last is the legend's.
    assert [len(marks.get_offsets()) for marks in drawn.collections] == [2, 2, 0]
    np.testing.assert_allclose(drawn.collections[0].get_offsets()[:, 1], [1.0, 2.0])
    assert legend(drawn) == ["x", "y", "z", curves.EARLY]
    # A resume begins new games: 900 have ended before it, and 120 must end again.
    rows = [{"episodes": n} for n in (130, 900, 910, 1019, 1020)]
    rows[2]["compile_seconds"] = 1.0
    early, pong = [False, False, True, True, False], {"num_envs": 60, "game": "pong"}
    assert metrics.covers_first_games(rows, pong) == early
    assert not any(metrics.covers_first_games(rows, pong | {"game": "catch"}))
    assert [metrics.games_needed(n) for n in (1, 50, 51, 1200)] == [100, 100, 102, 2400]


@pytest.mark.parametrize(
    ("config", "early"),
    [
        # As an older version wrote it: a key that is none now, but the environments are named.
        ('num_envs = 60\ngame = "pong"\nlog_interval = 5\n', [True, True, False]),
        ('num_envs = "60"\nlog_interval = 5\n', [True, True, True]),
        ("num_envs = ", [True, True, True]),
        (None, [True, True, True]),
    ],
)
def test_means_of_first_games_are_marked_where_the_configuration_cannot_be_loaded(
    config, early, tmp_path
):
    run_dir = make_run(tmp_path / "x", [1.0, 2.0, 3.0], episodes=[60, 110, 120])
    (run_dir / "config.toml").unlink()
    if config is not None:
        (run_dir / "config.toml").write_text(config)
    assert early_lines(run_dir) == early
    drawn = axes()
    curves.draw(drawn, [run_dir])
    assert len(drawn.collections[0].get_offsets()) == sum(early)
    assert legend(drawn)[-1] == (curves.UNKNOWN if all(early) else curves.EARLY)
