"""One palette for all pictures, which everybody can tell apart, on white and on a dark page."""

import itertools
import json
import re
from pathlib import Path

import matplotlib.colors
import matplotlib.figure
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jaxrl.analysis import bench_charts, curves, drawing, profiles
from jaxrl.analysis.report import entries
from tests.analysis.test_curves import make_run

ROOT = Path(__file__).parents[2]
DEMO = sorted((ROOT / "notebooks/demo").iterdir())
TAB10 = list(matplotlib.colors.TABLEAU_COLORS.values())
# Machado 2009, severity 1, of linear RGB.
DEFECTS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip


def linear(color):
    """Linear RGB of a color."""
    x = np.array(matplotlib.colors.to_rgb(color))
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of linear RGB."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x = to_xyz @ rgb.clip(0, 1) / [0.9505, 1, 1.089]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colors, defect):
    """The distance of the two colors that are hardest to tell apart."""
    seen = [lab(DEFECTS[defect] @ linear(color)) for color in colors]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


def contrast(first, second):
    """The contrast of two colors (WCAG 2.1)."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    light, dark = sorted((float(weights @ linear(x)) for x in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("defect", DEFECTS)
def test_colors_are_distinct_for_everybody(defect):
    assert closest(drawing.COLORS, defect) > 12
    assert min(closest(TAB10, name) for name in DEFECTS) < 6  # matplotlib's own are not


def test_colors_are_visible_on_white_and_on_the_dark_page():
    css = (ROOT / "jaxrl/analysis/report/assets/page.css").read_text()
    light, dark = re.findall(r"--page: (#\w{6})", css)
    for color in (*drawing.COLORS, drawing.GRAY):
        assert contrast(color, light) > 2, color
        assert contrast(color, dark) > 3, color


def test_a_report_and_a_plot_have_the_same_colors_and_lines():
    places = range(len(drawing.COLORS) * len(drawing.LINES))
    assert [entries.style(n)[0] for n in places] == [drawing.line_style(n)["color"] for n in places]
    assert len({entries.style(n) for n in places}) == len(places)


def sources():
    """The code that draws, by its path: of the package, the tools, the examples and notebooks."""
    for folder in ("jaxrl", "tools", "docs/examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        yield path, "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def test_only_one_module_names_colors():
    named = re.compile(r"""["']#[0-9a-fA-F]{6}["']|tab:\w+|(?<!cmap=)["']gr[ea]y["']|["']C\d["']""")
    by_file = {path.name: named.findall(text) for path, text in sources()}
    assert [name for name, colors in by_file.items() if colors] == ["drawing.py"]


def test_every_curve_has_a_color_of_the_palette():
    for text in (text for path, text in sources() if path.name != "drawing.py"):
        for call in re.findall(r"axis\.plot\(.*\)|axes\.plot\(.*\)", text):
            assert re.search(r"color=|\*\*line|, line\)", call) or "[], []" in call, call


# --- legends -------------------------------------------------------------------------------------


def covered(figure):
    """The legends of a figure that lie on any of its axes."""
    FigureCanvasAgg(figure).draw()
    every = [axes for axes in figure.axes if axes.axison]
    legends = [*figure.legends, *(axes.get_legend() for axes in every if axes.get_legend())]
    assert legends
    return [
        legend
        for legend in legends
        for axes in every
        if legend.get_window_extent().overlaps(axes.get_window_extent())
    ]


def test_a_legend_on_the_axes_is_found():
    figure = matplotlib.figure.Figure(layout="constrained")
    figure.subplots().plot([1, 2], label="x")
    figure.axes[0].legend()
    assert len(covered(figure)) == 1


@pytest.mark.parametrize("number", [1, pytest.param(len(DEMO), marks=pytest.mark.slow)])
@pytest.mark.parametrize("each", [False, True])
def test_legends_of_learning_curves_cover_nothing(number, each):
    assert covered(curves.comparison(DEMO[-number:], each=each)) == []


def test_the_legend_of_many_games_covers_nothing(tmp_path):
    from jaxrl.config.schema import Config

    names = ("pong", "boxing", "breakout", "alien", "amidar", "qbert", "freeway")
    runs = [make_run(tmp_path / name, [1.0, 2.0], Config(game=name)) for name in names]
    figure = curves.comparison(runs)
    assert covered(figure) == []
    assert [axes.get_title() for axes in figure.axes if axes.axison] == list(names)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a2c"]


def test_legends_of_benchmarks_and_profiles_cover_nothing(tmp_path, monkeypatch):
    loads = {"loop": 9.0, "training": 5.0}
    for draw, data in (
        (bench_charts.draw_throughput, {8: loads, 16: loads}),
        (bench_charts.draw_scaling, {"a": {1: 100.0, 4: 300.0}}),
    ):
        figure = matplotlib.figure.Figure(layout="constrained")
        draw(figure.subplots(1, 2), data)
        assert covered(figure) == []
    figure = matplotlib.figure.Figure(layout="constrained")
    bench_charts.draw_shares(figure.subplots(), {8: {"emulators": 0.25, "learning": 0.75}})
    assert covered(figure) == []
    figures = []
    monkeypatch.setattr(profiles, "save", lambda figure, target: figures.append(figure))
    scores = {"pong": np.array([0.5, 1.0]), "boxing": np.array([0.7, 0.9])}
    profiles.draw({"a": scores, "b": scores}, "noop", tmp_path / "x.png")
    assert covered(figures[0]) == []
