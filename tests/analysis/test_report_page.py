"""A report in a real browser: offline, on a phone, in the dark, and about a hostile run."""

import os
import re
import shutil

import pytest

from jaxrl.analysis.drawing import COLORS
from jaxrl.analysis.report import entries
from jaxrl.analysis.report.page import write
from tests.analysis.test_report import DEMO, evaluation, hostile_run, make_run, row, sweep_of

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    required = os.environ.get("JAXRL_BROWSER") == "required"
    if os.environ.get("JAXRL_BROWSER") == "none":
        pytest.skip("the browser does not work here")
    if path is None:
        assert not required, "JAXRL_BROWSER is 'required', and there is no Chromium"
        pytest.skip("there is no Chromium")
    if not required:
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a report of runs offline; whatever goes wrong in the page fails the test at its end."""
    wrong, contexts = [], []

    def note(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(request.url)

    def open_report(*run_dirs, width=1280, scheme="light", touch=False):
        target = tmp_path / "opened.html"
        write(list(run_dirs), target)
        viewport = {"width": width, "height": 900}
        context = chromium.new_context(
            viewport=viewport, color_scheme=scheme, offline=True, has_touch=touch, is_mobile=touch
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on("request", note)
        page.goto(target.as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=30_000)
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert wrong == []


def picture(page, selector="#return-0"):
    """u8[H, W, 3] of an element."""
    import imageio.v2 as imageio

    page.wait_for_timeout(300)  # for the next animation frames
    return imageio.imread(page.locator(selector).screenshot())[..., :3]


def has_color(pixels, color):
    wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((abs(pixels.astype(int) - wanted).max(-1) <= 8).any())


def x_axis(page):
    """The label of the first plot's horizontal axis, and its range."""
    return page.evaluate(
        "() => { const plot = Bokeh.documents[0].roots()[0];"
        " return [plot.below[0].axis_label, plot.x_range.start, plot.x_range.end]; }"
    )


def hover(page, share):
    """Points at the first plot, at a share of its width."""
    page.locator("#return-0").scroll_into_view_if_needed()
    box = page.locator("#return-0").bounding_box()
    page.mouse.move(box["x"] + box["width"] * share - 5, box["y"] + 150)
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + 150)
    page.wait_for_selector("#tip:visible", timeout=5000)
    return page.locator("#tip").inner_text()


@pytest.mark.slow
def test_curves_are_drawn_and_hidden_by_a_click(opened):
    page = opened(*DEMO)
    colors = [entries.style(place)[0] for place in range(3)]
    assert [has_color(picture(page), color) for color in colors] == [True] * 3
    page.click("button.run >> nth=1")
    assert [has_color(picture(page), color) for color in colors] == [True, False, True]
    assert "a2c_fast" in (shown := hover(page, 0.15))
    assert "c51_fast" not in shown
    page.click("button.run >> nth=1")
    assert has_color(picture(page), colors[1])


@pytest.mark.slow
def test_pointing_at_a_curve_tells_run_and_return(opened, tmp_path):
    page = opened(make_run(tmp_path / "mine", [row(s, return_mean=7.25) for s in range(100, 200)]))
    shown = hover(page, 0.5)
    # 100 to 199 steps are 400 to 796 frames.
    assert re.fullmatch(r"mine\s+7\.25\s+at [4-7]\d\d", shown.strip()), shown


@pytest.mark.slow
def test_the_axis_can_be_switched(opened):
    page = opened(*DEMO)
    label, start, end = x_axis(page)
    assert label == "emulator frames (millions)"
    assert start < 0.2 < 11 < end < 14  # A2C had 12 million
    page.check("input[value=seconds]")
    page.wait_for_timeout(300)
    label, start, end = x_axis(page)
    assert label == "training time (minutes, compilation excluded)"
    assert 45 < end < 60  # A2C took 51
    page.check("input[value=step]")
    page.wait_for_timeout(300)
    label, start, end = x_axis(page)
    assert label == "agent steps (millions)"
    assert 2.9 < end < 3.5


@pytest.mark.slow
def test_the_wheel_zooms_with_ctrl_and_scrolls_without(opened):
    page = opened(*DEMO)
    whole = x_axis(page)
    hover(page, 0.5)
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(300)
    assert x_axis(page) == whole
    hover(page, 0.5)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    page.wait_for_timeout(300)
    _, start, end = x_axis(page)
    assert whole[1] < start < end < whole[2]
    page.check("input[value=step]")  # a zoom of one axis says nothing on another
    page.check("input[value=frames]")
    page.wait_for_timeout(300)
    assert x_axis(page) == whole


@pytest.mark.slow
def test_losses_are_drawn_when_they_are_asked_for(opened):
    page = opened(*DEMO)
    before = page.evaluate("Bokeh.documents.length")
    page.click("#losses summary")
    number = page.locator("#losses .chart").count()
    assert number >= 10
    page.wait_for_selector(f"#loss-{number - 1} > *", timeout=30_000)
    assert page.evaluate("Bokeh.documents.length") == before + number
    assert has_color(picture(page, "#loss-1"), COLORS[0])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.slow
def test_the_page_is_never_wider_than_the_window(opened, tmp_path, width):
    long = make_run(tmp_path / ("long-name-" * 20), evaluation=evaluation())
    page = opened(*DEMO, long, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.slow
def test_scores_are_in_sight(opened, tmp_path, width):
    """Of a run with a long name, and of a sweep: without scrolling a table sideways."""
    long = make_run(tmp_path / "a2c_fast-with-a-long-name-pong-seed1", evaluation=evaluation())
    page = opened(long, width=width)
    scores = page.locator("[aria-labelledby=evaluation] td.strong")
    assert scores.all_inner_texts()[:2] == ["2.0", "0.64"]
    edges = [box["x"] + box["width"] for box in (scores.nth(n).bounding_box() for n in range(2))]
    page = opened(*sweep_of(tmp_path / "sweep"), width=width)
    means = page.locator("[aria-labelledby=comparison] td.strong")
    assert means.all_inner_texts() == ["12.00", "0.93", "2.00", "0.64"]
    edges += [box["x"] + box["width"] for box in (means.nth(n).bounding_box() for n in range(4))]
    assert max(edges) < width - 16, edges


@pytest.mark.slow
def test_a_button_hides_all_seeds_of_a_configuration(opened, tmp_path):
    page = opened(*sweep_of(tmp_path))
    colors = [entries.style(place)[0] for place in range(2)]
    assert [has_color(picture(page), color) for color in colors] == [True, True]
    assert page.locator("button.run").all_inner_texts() == [
        "learning_rate=0.001", "learning_rate=0.003",
    ]  # fmt: skip
    assert "learning_rate=0.001: mean of 2 seeds" in hover(page, 0.5)
    page.click("button.run >> nth=0")
    assert [has_color(picture(page), color) for color in colors] == [False, True]
    assert "0.001" not in hover(page, 0.5)


def hints(page):
    """Of each table on the page: whether it is wider than its box, whether the page says so."""
    return page.evaluate(
        "() => [...document.querySelectorAll('.scroll')].filter(b => b.clientWidth).map(b => "
        "[b.scrollWidth > b.clientWidth + 1, !b.previousElementSibling.hidden && "
        "b.previousElementSibling.className === 'hint', b.className.split(' ').slice(1).sort()"
        ".join()])"
    )


def swipe(page, x, y, dx, dy):
    """Draws a finger over the screen."""
    session = page.context.new_cdp_session(page)

    def touch(kind, share=None):
        points = [] if share is None else [{"x": x + dx * share, "y": y + dy * share}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_timeout(20)

    touch("touchStart", 0)
    for n in range(1, 11):
        touch("touchMove", n / 10)
    touch("touchEnd")
    page.wait_for_timeout(500)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_a_phone_says_which_tables_scroll_and_scrolls_them(opened, tmp_path, scheme):
    run_dir = make_run(tmp_path / "x", evaluation=evaluation())
    page = opened(run_dir, width=390, scheme=scheme, touch=True)
    marks = hints(page)
    assert marks[0] == [True, True, "more-right"]
    assert all(wide == hinted for wide, hinted, _ in marks)
    page.evaluate("document.querySelector('.scroll').scrollIntoView({block: 'center'})")
    box = page.locator(".scroll").first.bounding_box()
    swipe(page, 300, box["y"] + box["height"] - 20, -200, 0)
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") > 50
    assert hints(page)[0] == [True, True, "more-left,more-right"]
    page.evaluate("document.querySelector('.scroll').scrollLeft = 1e4")
    page.wait_for_timeout(300)
    assert hints(page)[0] == [True, True, "more-left"]


@pytest.mark.slow
def test_a_finger_on_a_chart_scrolls_the_page(opened, tmp_path):
    page = opened(make_run(tmp_path / "x"), width=390, touch=True)
    page.evaluate("document.querySelector('#return-0').scrollIntoView({block: 'center'})")
    before, box = page.evaluate("scrollY"), page.locator("#return-0").bounding_box()
    swipe(page, box["x"] + 150, box["y"] + 150, 0, 100)
    assert page.evaluate("scrollY") < before - 50


@pytest.mark.slow
def test_a_table_that_fits_has_no_hint(opened, tmp_path):
    marks = hints(opened(make_run(tmp_path / "x")))
    assert marks
    assert not any(wide or hinted for wide, hinted, _ in marks)


@pytest.mark.slow
def test_every_game_has_a_panel_beside_the_others(opened, tmp_path):
    config = 'algorithm = "a2c"\ngame = "{}"\n'
    made = [make_run(tmp_path / g, config=config.format(g)) for g in ("pong", "boxing", "alien")]
    page = opened(*made)
    boxes = [page.locator(f"#return-{n}").bounding_box() for n in range(3)]
    assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"]
    # One configuration, one color.
    assert all(has_color(picture(page, f"#return-{n}"), COLORS[0]) for n in range(3))
    assert page.locator("#return-3").count() == 0


@pytest.mark.parametrize(("scheme", "fill"), [("light", "#ffffff"), ("dark", "#14171b")])
@pytest.mark.slow
def test_circles_are_hollow_on_both_pages(opened, tmp_path, scheme, fill):
    page = opened(make_run(tmp_path / "x"), scheme=scheme)
    marks = page.evaluate(
        "Bokeh.documents[0].roots()[0].renderers.filter(r => r.tags.includes('hollow'))"
        ".map(r => r.glyph.fill_color.value ?? r.glyph.fill_color)"
    )
    assert marks == [fill]


def luminance(color):
    """Relative luminance of 'rgb(…)' (WCAG 2.1)."""
    parts = [int(x) / 255 for x in re.findall(r"\d+", color)[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_luminance():
    assert luminance("rgb(0, 0, 0)") == 0
    assert luminance("rgb(255, 255, 255)") == pytest.approx(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_text_is_legible_in_both_schemes(opened, tmp_path, scheme):
    page = opened(make_run(tmp_path / "x", provenance=None), scheme=scheme)
    background = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    for selector in ("h1", ".written", ".warnings li", "caption", "td", "button.run"):
        color = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).color")
        light, dark = sorted([luminance(color), background], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, selector
    plot = float((picture(page) / 255).mean())
    assert plot < 0.25 if scheme == "dark" else plot > 0.85


@pytest.mark.slow
def test_the_plots_follow_a_change_of_scheme(opened, tmp_path):
    page = opened(make_run(tmp_path / "x"))
    color = "Bokeh.documents[0].roots()[0].below[0].axis_label_text_color"
    assert luminance_of_hex(page.evaluate(color)) < 0.1
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert luminance_of_hex(page.evaluate(color)) > 0.6
    assert float((picture(page) / 255).mean()) < 0.25


def luminance_of_hex(color):
    return luminance(f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})")


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_hostile_run_runs_nothing_in_the_browser(opened, tmp_path):
    page = opened(hostile_run(tmp_path), make_run(tmp_path / "$$y$$"))
    assert "<img src=x onerror=alert(1)>$ $x$ $" in hover(page, 0.5)
    assert page.locator("img").count() == 0
    page.click("#losses summary")
    page.wait_for_timeout(1000)
