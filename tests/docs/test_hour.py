"""The tables of an hour are made of the curves that the example writes."""

import itertools
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from jaxrl.config.toml import load as load_config
from jaxrl.runs import metrics
from tests.docs.test_examples import EXAMPLES, load
from tools import hour_tables, recorded_scores
from tools.hour_tables import Curve

FIELDS = load("hour").Point._fields


ROOT = Path(__file__).parents[2]
CURVES = sorted((ROOT / hour_tables.FOLDER).glob("*.csv"))


def test_the_page_shows_the_curves():
    page = (ROOT / hour_tables.PAGE).read_text(encoding="utf-8")
    assert hour_tables.written(page, [hour_tables.read(path) for path in CURVES]) == page


@pytest.mark.parametrize("path", CURVES, ids=lambda path: path.stem)
def test_a_curve_is_of_an_hour_and_ours_is_that_of_a_recorded_run(path):
    found = hour_tables.read(path)
    assert found.minutes[-1] == hour_tables.MINUTES
    assert {after - before for before, after in itertools.pairwise(found.minutes)} == {0.5}
    assert found.steps == sorted(found.steps)
    page = (ROOT / hour_tables.PAGE).read_text("utf-8")
    [command] = re.findall(rf"^    (.*\b{found.game}\b.* docs/examples/hour\.sh)$", page, re.M)
    script = (EXAMPLES / "hour.sh").read_text("utf-8")

    def ends_at(variable: str) -> int:
        given = re.findall(rf"{variable}=(\d+)", command)
        return int((given or re.findall(rf"{variable}:-(\d+)", script))[0])

    if found.library == "sample_factory":
        assert 0.9 < found.steps[-1] / ends_at("SF_STEPS") <= 1
    if found.library != hour_tables.OURS:
        return
    run_dir = ROOT / f"docs/results/runs/hour/vtrace_fast-{found.game}-seed1"
    lines = [line for line in metrics.read(run_dir) if line["step"] <= found.steps[-1]]
    assert len(lines) > 50
    for line in (line for line in lines if line["step"] >= found.steps[0]):
        place = next(n for n, step in enumerate(found.steps) if step >= line["step"])
        # The curve's time begins with the command, the log's with the session.
        assert 0 < found.minutes[place] - line["wall_seconds"] / 60 < 0.75
    # The curve has other lines of the log than the record, which are not far from them.
    returns = np.array([line["return_mean"] for line in lines])
    of_run = np.interp(found.steps, [line["step"] for line in lines], returns)
    away = np.abs(np.array(found.scores) - of_run) / np.ptp(returns)
    assert away.mean() < 0.02
    assert away.max() < 0.15
    assert away[-1] < 0.03
    shown = dict(zip(found.steps, found.scores, strict=True))
    both = [line for line in lines if line["step"] in shown]
    assert both
    for line in both:
        assert shown[line["step"]] == round(line["return_mean"], 2)
    assert load_config(run_dir / "config.toml").total_steps == ends_at("JAXRL_STEPS")


def test_readme_has_the_medians():
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    table = hour_tables.scores([hour_tables.read(path) for path in CURVES])
    median = dict(re.findall(r"^\| (.*?) \|.* \*\*(\S+)\*\* \|$", table, re.M))
    ours, ppo, _, appo = (median[name] for name in hour_tables.LIBRARIES.values())
    said = (
        f"jaxrl's median human-normalized score is {ours}; Stable-Baselines3's PPO has {ppo}, "
        f"Sample Factory {appo}, with almost their published settings."
    )
    assert said in text


def test_the_page_has_the_noop_games_of_the_recorded_runs():
    text = " ".join((ROOT / hour_tables.PAGE).read_text("utf-8").split())
    folder = ROOT / "docs/results/runs/hour"
    runs = [
        recorded_scores.read(folder / f"vtrace_fast-{game}-seed1") for game in hour_tables.GAMES
    ]
    *first, last = (f"{run.scores['noop']:,.1f}" for run in runs)
    median = statistics.median(run.normalized("noop") for run in runs)
    assert f"score {', '.join(first)} and {last}, a median of {median:.2f} (" in text


def curve(library, game, *scores, steps=1000):
    """Returns a curve with a score each ten minutes, from the twentieth on."""
    minutes = [20.0 + 10 * number for number in range(len(scores))]
    return Curve(library, game, minutes, [steps] * len(scores), list(scores))


def test_a_curve_is_read_as_the_example_writes_it(tmp_path):
    path = tmp_path / "sb3_ppo-name_this_game-seed1.csv"
    path.write_text(f"{','.join(FIELDS)}\n0.5,3200,2292.3\n1.0,6400,2300.0\n")
    assert hour_tables.read(path) == (
        *("sb3_ppo", "name_this_game", [0.5, 1.0]),
        *([3200, 6400], [2292.3, 2300.0]),
    )


def test_a_row_has_the_scores_at_the_end_and_their_median_where_all_games_are_there():
    games = {"breakout": 1.7, "name_this_game": 8049.0, "pong": -20.7}
    ours = [curve("jaxrl", game, 0.0, score) for game, score in games.items()]
    others = [curve("sb3_a2c", "pong", 14.6, steps=900)]
    head, _, row, other = hour_tables.scores([*others, *ours]).splitlines()
    assert (
        head == "|  | agent steps (others: of finished games) | Breakout | Name This Game | Pong |"
    )
    assert row == ("| jaxrl, `vtrace_fast` | 1,000 | **1.7** (0.00) | **8,049.0** (1.00) | "
                   "**-20.7** (0.00) |")  # fmt: skip
    assert other == "| Stable-Baselines3, A2C | 900 |  |  | **14.6** (1.00) |"
    whole = [*others, *ours, curve("jaxrl", "qbert", 13455.0, steps=2000)]
    head, _, row, other = hour_tables.scores(whole).splitlines()
    assert head.endswith("| Breakout | Name This Game | Pong | Q*bert | median |")
    assert row.startswith("| jaxrl, `vtrace_fast` | 1,000 to 2,000 |")
    assert row.endswith(" **13,455.0** (1.00) | **0.50** |")
    assert other.endswith("| **14.6** (1.00) |  |  |")


def test_other_games_have_a_table_without_a_median_and_two_seeds_are_refused(tmp_path):
    games = "alien", "boxing", "pong", "seaquest"
    head, *_ = hour_tables.scores([curve("jaxrl", game, 1.0) for game in games]).splitlines()
    assert head.endswith("| Alien | Boxing | Pong | Seaquest |")
    paths = [tmp_path / f"jaxrl-pong-seed{seed}.csv" for seed in (1, 2)]
    for path in paths:
        path.write_text(f"{','.join(FIELDS)}\n60.0,1000,14.6\n")
    with pytest.raises(SystemExit, match="two curves of one game"):
        hour_tables.main([str(path) for path in paths])


@pytest.mark.parametrize(
    ("ours", "minutes"),
    [((1, 3, 4), "30"), ((3, 1, 4), "40"), ((3, 4, 5), "20"), ((1, 3, 2), "never")],
)
def test_another_library_is_passed_where_our_score_stays_above(ours, minutes):
    curves = [curve("jaxrl", "pong", *ours), curve("sample_factory", "pong", 9, 2)]
    head, _, row = hour_tables.passed(curves).splitlines()
    assert head == "|  | Pong |"
    assert row == f"| Sample Factory, APPO | {minutes} |"


def test_the_picture_has_a_panel_for_each_game(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(hour_tables, "save", lambda figure, target: figures.append(figure))
    curves = [curve("sb3_ppo", "pong", 3, 4), curve("jaxrl", "pong", 5, 6)]
    hour_tables.draw([*curves, curve("jaxrl", "qbert", 700, 800)], tmp_path / "hour.png")
    [figure] = figures
    drawn = {axes.get_title(): [line.get_ydata().tolist() for line in axes.lines]
             for axes in figure.axes}  # fmt: skip
    assert drawn == {"Pong": [[5, 6], [3, 4]], "Q*bert": [[700, 800]]}
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "jaxrl, vtrace_fast",
        "Stable-Baselines3, PPO",
    ]


@pytest.mark.parametrize(("count", "lowest"), [(1, [0]), (2, [0, 1]), (3, [1, 2]), (4, [2, 3])])
def test_the_lowest_panel_of_each_column_has_the_minutes(count, lowest, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(hour_tables, "save", lambda figure, target: figures.append(figure))
    games = hour_tables.GAMES[:count]
    hour_tables.draw([curve("jaxrl", game, 1, 2) for game in games], tmp_path / "hour.png")
    axes = figures[0].axes[:count]
    assert [n for n, of in enumerate(axes) if of.get_xlabel()] == lowest
    shown = [of.xaxis.get_tick_params()["labelbottom"] for of in axes]
    assert [n for n, label in enumerate(shown) if label] == lowest


def test_the_script_makes_every_curve_that_is_not_there_by_its_librarys_python(
    tmp_path, monkeypatch
):
    (tmp_path / "docs/examples").mkdir(parents=True)
    shutil.copy(EXAMPLES / "hour.sh", tmp_path / "docs/examples")
    leave(tmp_path / "bin/taskset", 'core=$2\nshift 2\necho "$core" "$@" >> cores\nexec "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for folder in (".venv", "hour/sb3", "hour/sf"):
        leave(tmp_path / folder / "bin/python", f'echo {folder} "$@" >> calls')
        (tmp_path / folder / "installed").touch()
    (tmp_path / "hour/sb3_ppo-pong-seed1.csv").touch()
    subprocess.run([tmp_path / "docs/examples/hour.sh"], check=True)
    *hours, last = (tmp_path / "calls").read_text().splitlines()
    assert last == ".venv -m tools.hour_tables hour/sb3_ppo-pong-seed1.csv"
    ran = [
        "jaxrl breakout --steps 25000000",
        "sb3_a2c pong",
        "sample_factory qbert --steps 950000",
    ]
    for folder, arguments in zip((".venv", "hour/sb3", "hour/sf"), ran, strict=True):
        assert f"{folder} docs/examples/hour.py {arguments}" in hours
    made = {tuple(line.split()[2:4]) for line in hours}
    every = {(library, game) for library in hour_tables.LIBRARIES for game in hour_tables.GAMES}
    assert made == every - {("sb3_ppo", "pong")}
    assert len(hours) == 15
    cores = [line.split() for line in (tmp_path / "cores").read_text().splitlines()]
    assert {(core, words[2]) for core, *words in cores} == {
        *(("0", "jaxrl"), ("0", "sb3_a2c")),
        *(("1", "sb3_ppo"), ("1", "sample_factory")),
    }
    leave(tmp_path / "hour/sf/bin/python", "exit 1")
    (tmp_path / "calls").unlink()
    ended = subprocess.run([tmp_path / "docs/examples/hour.sh"], check=False, capture_output=True)
    assert ended.returncode == 1
    assert b"no curve, see hour/sample_factory-breakout.log" in ended.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 12  # the others, and the tables
    (tmp_path / "calls").unlink()
    monkeypatch.setenv("GAMES", "pong qbert")
    subprocess.run([tmp_path / "docs/examples/hour.sh"], check=False, capture_output=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(" ".join(call.split()[2:4]) for call in calls[:-1]) == [
        *("jaxrl pong", "jaxrl qbert", "sb3_a2c pong", "sb3_a2c qbert", "sb3_ppo qbert"),
    ]


def test_the_script_installs_what_the_example_says():
    install = re.findall(r"^install \w+ (.+)$", (EXAMPLES / "hour.sh").read_text("utf-8"), re.M)
    assert len(install) == 2
    for packages in install:
        assert f"/bin/pip install {packages}\n" in load("hour").__doc__


def leave(path, lines):
    """Writes a shell script that can be called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def test_curves_are_printed_as_tables_and_drawn_beside_them(tmp_path, capsys):
    for library, score in (("sb3_ppo", -20.7), ("jaxrl", 14.6)):
        path = tmp_path / f"{library}-pong-seed1.csv"
        path.write_text(f"{','.join(FIELDS)}\n60.0,1000,{score}\n")
    assert hour_tables.main([str(path) for path in tmp_path.glob("*.csv")]) == 0
    printed = capsys.readouterr().out
    assert "| jaxrl, `vtrace_fast` | 1,000 | **14.6** (1.00) |" in printed
    assert "| Stable-Baselines3, PPO | 60 |" in printed
    assert matplotlib.image.imread(tmp_path / "hour.png").shape[2] >= 3
