"""A report is one page that opens anywhere; what lies in a run directory does it no harm."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl.analysis import drawing
from jaxrl.analysis.report import charts as report_charts
from jaxrl.analysis.report import page as report_page
from jaxrl.analysis.report import reader
from jaxrl.analysis.report import study as report_study
from jaxrl.analysis.report.charts import _early
from jaxrl.analysis.report.entries import Entry, entries_of
from jaxrl.analysis.report.page import differing, write
from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.policies import policies
from jaxrl.runs import evaluation_record
from jaxrl.runs.lock import hold_lock
from jaxrl.runs.paths import run_dir_of

ROOT = Path(__file__).parents[2]
DEMO = [ROOT / "notebooks/demo" / name for name in ("pong-a2c_fast-seed1", "pong-c51_fast-seed1",
                                                    "pong-ppo_pong-seed1")]  # fmt: skip
HOSTILE = "<script>alert(1)</script>"
CONFIG = 'algorithm = "a2c"\ngame = "pong"\ntotal_steps = 300\nseed = 7\n'
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def row(step, **values):
    return {"step": step, "frames": 4 * step, "seconds": step / 10, "return_mean": None} | values


def make_run(path, rows=None, **files):
    """A run directory; `files` by name without suffix, as text, or as what JSON is written of."""
    path.mkdir(parents=True)
    rows = (
        [row(100), row(200, return_mean=-2.0), row(300, return_mean=5.5)] if rows is None else rows
    )
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    provenance = {"git_commit": COMMIT, "devices": ["cpu:0 cpu", "cpu:1 cpu"]}
    contents = {"config": CONFIG, "provenance": provenance} | files
    for name, content in contents.items():
        if content is not None:
            suffix = "toml" if name == "config" else "json"
            text = content if isinstance(content, str) else json.dumps(content)
            (path / f"{name}.{suffix}").write_text(text)
    return path


def evaluation(**changes):
    return {
        "game": "pong", "protocol": "noop", "step": 300, "episodes": 3, "mean": 2.0, "median": 1.0,
        "std": 0.5, "human_normalized_mean": 0.64, "scores": [1.0, 1.5, 3.5], "lengths": [9, 9, 9],
    } | changes  # fmt: skip


def page_of(tmp_path, *run_dirs, **options):
    target = tmp_path / "report.html"
    write(list(run_dirs), target, **options)
    return target.read_text()


def visible(page):
    """The page's text, without scripts, styles and tags."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def warnings(run_dir):
    (run,) = reader.read([run_dir])
    return run.warnings


def test_labels_of_the_page_refer_to_its_headings(tmp_path):
    """Screen readers announce a section by the heading that `aria-labelledby` names."""
    page = page_of(tmp_path, make_run(tmp_path / "x"))
    labels = re.findall(r'aria-labelledby="(\w+)"', page)
    assert len(labels) >= 5
    assert set(labels) <= set(re.findall(r'<h2 id="(\w+)"', page))


def test_the_runs_are_in_a_table(tmp_path):
    text = visible(page_of(tmp_path, make_run(tmp_path / "x")))
    # 300 steps are 1,200 frames, and took 30 seconds.
    assert "x 5.5 7 300 1,200 0:00:30 pong a2c 2 × cpu 0123456789ab" in text
    assert "Warnings" not in text
    assert "No run has an evaluation" in text
    assert "agent.gamma 0.99" in text


def test_an_evaluation_stands_beside_scores_of_the_same_protocol(tmp_path):
    noop = make_run(tmp_path / "x", evaluation=evaluation())
    text = visible(page_of(tmp_path, noop))
    assert "x 2.0 0.64 1.0 0.5 1.0 3.5 3 300 pong noop" in text
    assert "Rainbow 20.9 200,000,000 Hessel 2018" in text
    assert "x 2.0 1,200 this report" in text
    assert "Dopamine" not in text  # plays with sticky actions
    one_frame = make_run(
        tmp_path / "one", config=CONFIG + "[env]\nframe_skip = 1\n", evaluation=evaluation()
    )
    assert "one 2.0 300 this report" in visible(page_of(tmp_path, one_frame))
    sticky = make_run(tmp_path / "y", evaluation=evaluation(protocol="sticky", mean=-3.25))
    text = visible(page_of(tmp_path, sticky))
    assert "y −3.2 0.49 1.0" in text  # (-3.25 + 20.7) / (14.6 + 20.7)
    assert "Dopamine" in text
    assert "Hessel" not in text


@pytest.mark.parametrize("chosen", [{"mode": 0}, {"difficulty": 1}])
def test_a_game_of_another_mode_stands_beside_no_published_score(tmp_path, chosen):
    played = evaluation_record.Conditions((0, 29), True, 0, True, 0.0, False, 27_000)
    conditions = dataclasses.asdict(dataclasses.replace(played, **chosen))
    other = make_run(tmp_path / "other", evaluation=evaluation(conditions=conditions))
    assert reader.read([other])[0].evaluation.human_normalized_mean is None
    assert "Hessel" not in visible(page_of(tmp_path, other))
    text = visible(page_of(tmp_path, other, make_run(tmp_path / "x", evaluation=evaluation())))
    assert "Hessel" in text
    assert text.count("this report") == 1  # of x


def test_how_games_were_played_and_means_of_first_games_are_shown(tmp_path):
    played = evaluation_record.Conditions((0, 29), True, 0, True, 0.0, False, 27_000)
    record = evaluation(conditions=dataclasses.asdict(played))
    rows = [row(n, return_mean=1.0 * n, episodes=n) for n in (50, 99, 100)]
    run_dir = make_run(tmp_path / "x", rows, evaluation=record)
    page = page_of(tmp_path, run_dir, make_run(tmp_path / "y", evaluation=evaluation()))
    assert played.describe() in visible(page)
    assert "not recorded" in visible(page)
    (run,) = reader.read([run_dir])
    assert _early(run) == [True, True, False]
    wrong = make_run(tmp_path / "z", evaluation=evaluation(conditions={"noops": 3}))
    assert any("evaluation.json cannot be read" in warning for warning in warnings(wrong))


def test_no_published_score_is_said_of_a_game_that_papers_play(tmp_path):
    run_dir = make_run(tmp_path / "x", evaluation=evaluation(protocol="mine"))
    assert "No published score of the same protocol is known" in visible(page_of(tmp_path, run_dir))
    catch = CONFIG.replace("pong", "catch")
    run_dir = make_run(tmp_path / "y", config=catch, evaluation=evaluation(game="catch"))
    text = visible(page_of(tmp_path, run_dir))
    assert "published" not in text.lower()
    assert "Human-normalized" not in text  # no human has played it either


def sweep_of(folder, seeds=(1, 2), mean=(2.0, 12.0)):
    """Runs of two learning rates; a seed more scores a point more, around each rate's mean."""
    middle = sum(seeds) / len(seeds)
    return [
        make_run(
            folder / f"a2c_fast-learning_rate={rate:g}-pong-seed{seed}",
            [row(n, return_mean=score + seed + n / 100, episodes=n) for n in (100, 200, 300)],
            config=CONFIG.replace("7", str(seed)) + f"[optimizer]\nlearning_rate = {rate}\n",
            evaluation=evaluation(
                mean=score + seed - middle,
                scores=[score + seed - middle + part for part in (-1.0, 0.0, 1.0)],
            ),
        )
        for seed in seeds
        for rate, score in zip((1e-3, 3e-3), mean, strict=True)
    ]


def test_a_sweep_begins_with_its_comparison(tmp_path):
    """Means 2 and 12 of seeds -1, 0 and 1 around them: ± 4.3027 / √3 = 2.484."""
    made = sweep_of(tmp_path / "s", seeds=(1, 2, 3))
    (made[0] / "provenance.json").unlink()
    page = page_of(tmp_path, *made)
    sections = ["comparison", "warnings", "curves", "evaluation", "trained", "configuration"]
    assert re.findall(r'<h2 id="(\w+)"', page) == sections
    text = visible(page)
    names = "learning_rate=0.003 against learning_rate=0.001"
    assert f"Comparison {names}: learning_rate=0.003 is better: the 95 % interval" in text
    assert "mean 12.00 against 2.00 points: difference +10.00 [+7.73, +12.27]" in text
    # (12 + 20.7) / 35.3 and (2 + 20.7) / 35.3
    assert "learning_rate=0.003 12.00 0.93 9.52 to 14.48 3 17.00 14.52 to 19.48" in text
    assert "learning_rate=0.001 2.00 0.64 −0.48 to 4.48 3 7.00" in text
    assert (
        "Setting Mean score Human-normalized Interval of the mean score Runs Final return "
        "Interval of the return"
    ) in text
    assert "fewer than 5 seeds prove little" in text
    assert "All of a2c_fast-pong. Written" in text
    first, second = entries_of(reader.read(made))
    assert (first.name, second.name) == ("learning_rate=0.001", "learning_rate=0.003")
    assert [len(entry.runs) for entry in (first, second)] == [3, 3]
    (chart,) = report_charts.return_charts([first, second], report_charts.LONGEST)
    drawn = set(re.findall(r"#[0-9A-F]{6}", str(chart.item)))
    assert drawn & set(drawing.COLORS) == {first.color, second.color}
    assert report_charts.SEEDS_NOTE in chart.caption


def test_a_study_has_no_verdict_without_evaluations_or_with_many_settings(tmp_path, monkeypatch):
    made = sweep_of(tmp_path / "s")
    (made[0] / "evaluation.json").unlink()
    text = visible(page_of(tmp_path, *made))
    assert "no verdict: there is no evaluation of learning_rate=0.001-seed1" in text
    assert "is better" not in text
    monkeypatch.setattr(report_study, "MOST_COMPARED", 1)
    assert "no verdict on more than 1" in visible(page_of(tmp_path, *sweep_of(tmp_path / "t")))
    mixed = sweep_of(tmp_path / "u")
    monkeypatch.undo()
    (mixed[0] / "evaluation.json").write_text(json.dumps(evaluation(protocol="sticky")))
    text = visible(page_of(tmp_path, *mixed))
    assert "no verdict: scores of different protocols cannot be compared" in text
    assert str(tmp_path) not in text
    assert "Comparison " not in visible(page_of(tmp_path, mixed[0]))


def test_a_run_of_another_game_takes_no_verdict_from_a_sweep(tmp_path):
    made = sweep_of(tmp_path / "s")
    other = make_run(
        tmp_path / "ppo-boxing-seed1",
        config=CONFIG.replace("pong", "boxing"),
        evaluation=evaluation(game="boxing", protocol="sticky"),
    )
    text = visible(page_of(tmp_path, *made, other))
    assert "learning_rate=0.003" in text.partition(" against ")[0]
    assert "no verdict" not in text


def entry_of(name, scores):
    """Of runs with these (game, mean score)."""
    runs = []
    for game, mean in scores:
        run = reader.ReportedRun(Path(name), name, [], {"game": game})
        run.evaluation = reader._parse_evaluation(evaluation(game=game, mean=mean))
        runs.append(run)
    return Entry(name, "", "", runs)


@pytest.mark.parametrize(
    "scores",
    [
        # (x + 20.7) / 35.3 of pong, (x - 1.7) / 28.8 of breakout: 0.7 twice, and 1 and 0.
        ([("pong", 4.01), ("breakout", 21.86)], [*[("pong", 14.6)] * 3, ("breakout", 1.7)]),
        # Only catch is common, which no human plays: 5 points are more than 1.
        ([("pong", -20.7), ("catch", 5.0)], [("catch", 1.0)]),
        # A game that one entry alone has played counts for none.
        ([("pong", 10.0)], [("pong", 0.0), ("breakout", 300.0)]),
    ],
)
def test_the_best_of_a_study_is_by_the_games_that_all_have_played(scores):
    better, worse = (entry_of(name, of) for name, of in zip("ab", scores, strict=True))
    for entries in ([better, worse], [worse, better]):
        assert report_study._best_first(entries) == [better, worse]


def test_only_whole_paths_become_names():
    runs = [
        reader.ReportedRun(Path(path), name, [])
        for path, name in (("s/a", "first"), ("s/a-2", "second"))
    ]
    shortened = report_study._hide_paths(
        UserError("'s/a': apps/a, s/abc and pass/a are s/a, s/a-2; 's/a-2/config.toml' as 2: s/a"),
        runs,
    )
    assert shortened == (
        "'first': apps/a, s/abc and pass/a are first, second; 'second/config.toml' as 2: first"
    )


def test_the_mean_of_seeds_is_at_equal_steps_of_all_of_them():
    """Steps 2 to 3 are common; at 3 the second is half way from 10 to 30."""
    columns = {"frames": [4, 8, 12], "step": [1, 2, 3], "seconds": [1, 2, 3], "y": [0, 1, 2]}
    others = {"frames": [8, 16], "step": [2, 4], "seconds": [4, 8], "y": [10, 30]}
    seeds = [
        {key: np.float32(values) for key, values in seed.items()} for seed in (columns, others)
    ]
    mean = report_charts.mean_curve(seeds)
    ends = {key: [values[0], values[-1]] for key, values in mean.items()}
    assert ends == {
        "step": [2, 3], "frames": [8, 12], "seconds": [3, 4.5],
        "y": [5.5, 11], "low": [1, 2], "high": [10, 20],
    }  # fmt: skip
    assert report_charts.mean_curve(seeds[:1]) is None
    assert report_charts.mean_curve([seeds[0], others | {"step": np.float32([5, 6])}]) is None


def test_a_plain_resume_is_no_warning(tmp_path):
    """Ctrl-C and `jaxrl resume`: nothing about the figures is in doubt."""
    provenance = {"git_commit": COMMIT, "resumed": [{"overridden": {}}]}
    run_dir = make_run(tmp_path / "x", provenance=provenance)
    assert warnings(run_dir) == []
    assert "This run was resumed once." in visible(page_of(tmp_path, run_dir))


def test_differing_settings_are_shown(tmp_path):
    first = make_run(tmp_path / "x")
    second = make_run(tmp_path / "y", config=CONFIG + "num_envs = 32\n[agent]\ngamma = 0.5\n")
    settings = differing(reader.read([first, second]))
    assert settings == {"num_envs": [16, 32], "agent.gamma": [0.99, 0.5]}
    text = visible(page_of(tmp_path, first, second))
    assert "2 runs of pong" in text
    assert "agent.gamma 0.99 0.5" in text


def test_runs_without_a_configuration_differ_in_nothing(tmp_path):
    run_dirs = [make_run(tmp_path / "x"), make_run(tmp_path / "y", config=None)]
    assert differing(reader.read(run_dirs)) == {}


def test_concerns_are_warnings(tmp_path):
    resumed = [{}, {"overridden": {"seed": [1, 2]}}]
    provenance = {"git_commit": COMMIT + "-dirty", "resumed": resumed}
    rows = [row(100, goodput=0.95), row(200, goodput=0.52, wall_seconds=700)]
    for line, skipped in zip(rows, (1.0, 2.0), strict=True):
        line["loss/skipped_updates"] = skipped
    run_dir = make_run(tmp_path / "x", rows, provenance=provenance)
    (run_dir / "damaged").mkdir()
    assert warnings(run_dir) == [
        "ended after 200 of 300 agent steps",
        "updates skipped because they were not finite: 3",
        "goodput 0.52: the rest of the time went into compilation, saving, restarts or lost work",
        "resumed 2 times, with changed seed",
        "trained by code with uncommitted changes",
        "damaged checkpoints were set aside in damaged/",
    ]
    other = make_run(tmp_path / "y", [row(300, goodput=0.5, wall_seconds=60)])
    assert warnings(other) == []
    waited = {"goodput": 0.5, "wall_seconds": 700, "evaluation/seconds": 315.0}
    assert warnings(make_run(tmp_path / "z", [row(300, **waited)])) == []
    text = visible(page_of(tmp_path, run_dir, other))
    assert "not of the same commit: 0123456789ab, 0123456789ab-dirty (all)" in text
    assert "resumed 2 times, with changed seed (x)" in text


def test_a_run_that_trains_is_reported_and_not_disturbed(tmp_path):
    run_dir = make_run(tmp_path / "x")
    with hold_lock(run_dir):
        lock = (run_dir / "lock").read_text()
        assert warnings(run_dir) == ["still training: the figures are not final"]
        assert (run_dir / "lock").read_text() == lock
    assert warnings(run_dir) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config", None, "has no config.toml"),
        ("config", "game = 3\n", "config.toml': game = 3"),
        ("config", "a" + "[" * 20_000, "config.toml"),
        ("provenance", None, "no provenance.json: commit and devices are unknown"),
        ("provenance", "[]", "provenance.json cannot be read: it holds no object"),
        ("provenance", "[" * 100_000, "provenance.json cannot be read"),
        ("evaluation", "{", "evaluation.json cannot be read"),
        ("evaluation", "{}", "evaluation.json cannot be read: it has no 'episodes'"),
        ("evaluation", evaluation(mean=None), "it has no 'mean'"),
        ("evaluation", json.dumps(evaluation(std=1)).replace("2.0", "NaN"), "it has no 'mean'"),
        ("evaluation", evaluation(game=["x"]), "it has no 'game'"),
    ],
)
def test_what_is_missing_or_damaged_is_a_warning(tmp_path, name, text, message):
    run_dir = make_run(tmp_path / "x", **{name: text})
    first, *others = warnings(run_dir)
    assert message.replace("config.toml'", "config.toml") in first
    unknown = "num_envs is unknown: every return is marked as one of first games"
    assert others == [unknown] * (name == "config")
    assert "Warnings" in visible(page_of(tmp_path, run_dir))


@pytest.mark.parametrize(
    "provenance",
    [
        {"git_commit": 3, "devices": "cpu", "resumed": 3, "command": ["x"]},
        {"git_commit": None, "devices": [None, 3, {}], "resumed": [3, {"overridden": [1]}]},
        {"git_commit": "\ud800", "command": "\ud800", "devices": ["\ud800"]},
    ],
)
def test_nonsense_in_the_provenance_is_borne(tmp_path, provenance):
    page_of(tmp_path, make_run(tmp_path / "x", provenance=provenance))


def test_numbers_that_are_none_are_left_out(tmp_path):
    rows = [
        row(1, return_mean=1.0), row(2, return_mean=float("nan")), row(3, return_mean=3.0),
        row(4, return_mean=1e300), row(5, return_mean=10**400),
    ]  # fmt: skip
    run_dir = make_run(tmp_path / "x", rows)
    (run,) = reader.read([run_dir])
    curve = report_charts.curve(run, "return_mean")
    assert curve["step"].tolist() == pytest.approx([1e-6, 3e-6])
    assert curve["y"].tolist() == [1.0, 3.0]
    page_of(tmp_path, run_dir)


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path):
    rows = [row(step, return_mean=float(step)) for step in range(1, 2502)]
    (run,) = reader.read([make_run(tmp_path / "x", rows)])
    # Of 2,501 lines every third, from the last one back: 834 of them, the first is line 2.
    y = report_charts.curve(run, "return_mean")["y"]
    assert (len(y), y[0], y[-1]) == (834, 2.0, 2501.0)
    assert "Curves of more than 1000 lines" in visible(page_of(tmp_path, tmp_path / "x"))


def test_a_run_without_a_line_or_a_game(tmp_path):
    text = visible(page_of(tmp_path, make_run(tmp_path / "x", [])))
    assert "metrics.jsonl has no line yet" in text
    assert "There is nothing to draw yet" in text
    text = visible(page_of(tmp_path, make_run(tmp_path / "y", [row(300, goodput=0.99)])))
    assert "No game has ended yet" in text


def test_each_game_has_a_panel_with_its_runs_in_their_colors(tmp_path):
    boxing = CONFIG.replace("pong", "boxing")
    made = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", config=boxing),
        make_run(tmp_path / "c"),
        make_run(tmp_path / "d", [row(300)], config=boxing),
        make_run(tmp_path / "e", [row(300)], config=CONFIG.replace("pong", "catch")),
    ]
    runs = reader.read(made)
    pong, other = report_charts.return_charts(entries_of(runs), report_charts.LONGEST)
    assert [chart.target for chart in (pong, other)] == ["return-0", "return-1"]
    assert [chart.caption.split(":")[0] for chart in (pong, other)] == ["pong", "boxing"]
    assert [chart.without for chart in (pong, other)] == [[], ["d"]]
    drawn = set(re.findall(r"#[0-9A-F]{6}", str(pong.item)))
    # They differ in game only, and the two of pong in nothing: one configuration, one color.
    assert drawn & set(drawing.COLORS) == {drawing.COLORS[0]}
    assert report_charts.runs_without_return(runs) == ["e"]
    text = visible(page_of(tmp_path, *made))
    assert "Left out, because no game has ended: d" in text
    assert "Left out, because no game has ended: e" in text


def test_runs_that_are_left_out_are_counted_with_their_reasons(tmp_path):
    run_dir = make_run(tmp_path / "x")
    missing = {tmp_path / "y": "no metrics.jsonl yet", tmp_path / "<script>alert(1)": "z"}
    page = page_of(tmp_path, run_dir, left_out=missing)
    assert "2 runs are left out y: no metrics.jsonl yet" in visible(page)
    assert "<script>alert" not in page
    one = visible(page_of(tmp_path, run_dir, left_out={tmp_path / "y": "not trained"}))
    assert "1 run is left out y: not trained" in one
    assert "left out" not in visible(page_of(tmp_path, run_dir))


def test_mistakes_are_refused(tmp_path):
    good = make_run(tmp_path / "x")
    (tmp_path / "empty").mkdir()
    for run_dirs, target, message in (
        ([tmp_path / "empty"], "r.html", "has no metrics.jsonl"),
        ([good, tmp_path / "none"], "r.html", "has no metrics.jsonl"),
        ([], "r.html", "at least one run directory"),
        ([good, good], "r.html", "'x' is given twice"),
        ([good], "none/r.html", "cannot write"),
        ([Path("\0")], "r.html", "cannot read"),
    ):
        with pytest.raises(UserError, match=message):
            write(run_dirs, tmp_path / target)
    assert not (tmp_path / "r.html").exists()


def test_the_policies_of_the_package_have_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "-o", "none.html"]) == 2
    assert "at least one run directory, or --recorded" in capsys.readouterr().err
    assert main(["report", "pong", "--recorded", "--no-video", "-o", "all.html"]) == 0
    text = visible((tmp_path / "all.html").read_text(encoding="utf-8"))
    make_run(tmp_path / "runs/pong")  # a run of a policy's name stands beside it
    assert main(["report", "runs/pong", "--recorded", "--no-video", "-o", "both.html"]) == 0
    both = visible((tmp_path / "both.html").read_text(encoding="utf-8"))
    for name, path in policies().items():
        assert name in text
        mean = f"{evaluation_record.read(run_dir_of(path)).mean:,.1f}".replace("-", "−")
        assert mean in both
        assert mean in text


def test_a_link_out_of_the_run_directory_is_refused(tmp_path):
    run_dir = make_run(tmp_path / "x")
    (tmp_path / "precious").write_text("precious")
    (run_dir / "video.mp4").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="is a link out of the run directory"):
        page_of(tmp_path, run_dir)


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(tmp_path):
    run_dir = make_run(tmp_path / "x", provenance=None)
    for name in ("provenance.json", "evaluation.json", "video.mp4", "lock"):
        os.mkfifo(run_dir / name)
    page_of(tmp_path, run_dir)


def test_runs_of_the_same_name_are_distinguished(tmp_path):
    made = [make_run(tmp_path / name) for name in ("a/x", "b/x", "y")]
    assert [run.name for run in reader.read(made)] == ["a/x", "b/x", "y"]


def test_names_that_no_page_can_show_are_distinguished(tmp_path):
    made = [make_run(tmp_path / os.fsdecode(name)) for name in (b"\xff", b"\xfe")]
    assert [run.name for run in reader.read(made)] == ["? (1)", "? (2)"]


def test_an_older_evaluation_and_configuration_are_read(tmp_path):
    """Their keys had other names: (2 + 20.7) / (14.6 + 20.7) = 0.64 of Pong."""
    record = evaluation(protocol="sticky")
    record["human_normalised_mean"] = record.pop("human_normalized_mean")
    config = 'game = "pong"\nnum_envs = 8\nrepeat_action_probability = 0.0\n'
    (run,) = reader.read([make_run(tmp_path / "x", evaluation=record, config=config)])
    assert run.evaluation.human_normalized_mean == pytest.approx(0.643, abs=1e-3)
    refused, sticks = run.warnings
    assert "it belongs in [env], as 'env.repeat_action_probability'" in refused
    assert "probability 0 in training and 0.25 in the evaluation" in sticks


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
def test_actions_that_stick_otherwise_than_in_training_are_a_warning(protocol, tmp_path):
    run_dir = make_run(tmp_path / "x", evaluation=evaluation(protocol=protocol))
    message = [warning for warning in warnings(run_dir) if "repeated with probability" in warning]
    if protocol == "noop":
        assert not message
    else:
        assert "probability 0 in training and 0.25 in the evaluation" in message[0]


def test_the_video_is_in_the_page(tmp_path, monkeypatch):
    run_dir = make_run(tmp_path / "x")
    (run_dir / "video.mp4").write_bytes(b"abc")
    assert "data:video/mp4;base64,YWJj" in page_of(tmp_path, run_dir)
    assert "data:video" not in page_of(tmp_path, run_dir, video=False)
    monkeypatch.setattr(report_page, "LARGEST_VIDEO", 2)
    page = page_of(tmp_path, run_dir)
    assert "data:video" not in page
    assert "left out" in visible(page)


def hostile_run(tmp_path):
    rows = [row(100 * i, return_mean=float(i), **{f"loss/{HOSTILE}": 1.0}) for i in (1, 2, 3)]
    config = f"game = '{HOSTILE}'\n'{HOSTILE}' = '{HOSTILE}'\n"
    provenance = {
        "git_commit": HOSTILE, "devices": [f"cpu:0 {HOSTILE}"], "command": HOSTILE,
        "resumed": [{"overridden": {HOSTILE: [1, 2]}}],
    }  # fmt: skip
    record = evaluation(game=HOSTILE, protocol=HOSTILE)
    # No file name holds a slash.
    name = "<img src=x onerror=alert(1)>$$x$$"
    return make_run(
        tmp_path / name, rows, config=config, provenance=provenance, evaluation=record
    )  # fmt: skip


def test_everything_is_escaped(tmp_path):
    page = page_of(tmp_path, hostile_run(tmp_path))
    assert HOSTILE not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8
    assert page.count("</script>") == page.count("<script") == 3
    (charts,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page)
    assert len(json.loads(charts)["charts"]) == 2


def test_the_page_is_small_and_names_no_place(tmp_path):
    page = page_of(tmp_path, *DEMO)
    assert len(page.encode()) < 5_000_000
    assert str(ROOT) not in page
    # Elements that fetch something have it with them.
    tags = "".join(re.findall(r"<[a-z][^>]*>", re.sub(r"(?s)<script>.*?</script>", "", page)))
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', tags) == []
