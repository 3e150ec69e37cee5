"""Searches: mistakes, spaces, and trials that are trained, pruned, stopped and gone on with."""

import dataclasses
import json
import math
import signal
import subprocess
import sys

import matplotlib.image
import numpy as np
import optuna
import pytest
import sqlalchemy
from optuna.distributions import FloatDistribution, IntDistribution

from jaxrl.analysis import study_plots
from jaxrl.cli import main
from jaxrl.config.schema import Config
from jaxrl.config.toml import load, load_recipe, to_toml
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.experiments import runner, search, search_plan, search_results
from jaxrl.experiments.search_plan import Choices, Range
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics, population
from jaxrl.runs.lock import hold_directory, is_locked
from tests.experiments.test_sweep import until
from tests.survival import ROOT, begin, check_metrics, finish

runner_train = runner.train  # before tests replace it
RATE, TORSO = "optimizer.learning_rate", "network.torso"
STUDY = """
config = "a2c_fast"
game = "catch"
total_steps = 4000
trials = 8
[set]
evaluation.episodes = 0
optimizer.learning_rate = 1e-6
[search]
optimizer.learning_rate = { low = 1e-4, high = 1e-1, log = true }
network.torso = ["nips", "nature"]
"""


def goodness(config):
    """The best rate is 1e-2, and nature is better by one."""
    away = abs(math.log10(config.optimizer.learning_rate) + 2)
    return -away + (config.network.torso == "nature")


def curve(config, part=1.0):
    """Lines of a run of which a part is trained: it grows from zero to its goodness."""
    steps = range(80, round(config.total_steps * part) + 1, 80)
    return [
        {"step": step, "frames": 4 * step, "seconds": step, "wall_seconds": step,
         "episodes": 2 * step, "return_mean": goodness(config) * step / config.total_steps}
        for step in steps
    ]  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    """Runs that train nothing; returns how each ends, by name, and the names that ran."""
    ends, ran = {}, []
    monkeypatch.setattr(search, "STARTUP", 2)
    monkeypatch.setattr(search_results, "RESAMPLES", 5)

    def train(member, stop, shown):
        ran.append(member.name)
        end = ends.get(member.name, "done")
        end = end.pop(0) if isinstance(end, list) else end
        to_its_end = end in ("done", "no game", "dips", "dips and is watched")
        lines = curve(member.config, 1.0 if to_its_end else 0.5)
        if end == "falls behind":
            lines = [line | {"return_mean": -100.0} for line in lines]
        if end == "no game":
            lines = [line | {"return_mean": None} for line in lines]
        if to_its_end and end.startswith("dips"):
            lines = [line | {"return_mean": -9.0 if line["step"] < 2000 else 9.0} for line in lines]
        for n in range(1, len(lines)) if end == "dips and is watched" else ():
            leave(member, lines[:n], False)
            shown()
        leave(member, lines, to_its_end)
        shown()
        if end == "is interrupted":
            stop.handle(signal.SIGTERM)
        return end if isinstance(end, int) else 0 if to_its_end else 143

    monkeypatch.setattr(runner, "train", train)
    engine = sqlalchemy.engine.Engine
    sqlalchemy.event.listen(engine, "connect", do_not_sync)
    yield ends, ran
    sqlalchemy.event.remove(engine, "connect", do_not_sync)


def do_not_sync(connection, _):
    """No test needs a database that survives a power cut: each commit would wait for the disk."""
    connection.execute("PRAGMA synchronous = OFF")


def leave(member, lines, ended):
    """What training leaves of a run."""
    member.run_dir.mkdir(exist_ok=True)
    (member.run_dir / "config.toml").write_text(to_toml(member.config))
    (member.run_dir / layout.METRICS).write_text("".join(json.dumps(x) + "\n" for x in lines))
    member.log.write_text("its last words\n")
    if ended:
        (member.run_dir / layout.LEARNING_CURVE).write_text("a picture")


@pytest.fixture
def study(tmp_path):
    """Writes a study with some of its lines replaced, and returns the words of its command."""

    def write(*replaced, more=""):
        text = STUDY
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "study.toml").write_text(more + text)
        return [str(tmp_path / "study.toml"), "--root", str(tmp_path / "s")]

    return write


def planned(words):
    return search_plan.load(search_plan.Path(words[0]))


def rows(tmp_path):
    return json.loads((tmp_path / "s" / "study.json").read_text())["trials"]


# --- the file -------------------------------------------------------------------------------------

SPACE = "{ low = 1e-4, high = 1e-1, log = true }"
LIST = '["nips", "nature"]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"a2c_fast"', '"a2c_fats"', "no configuration file 'a2c_fats': did you mean"),
        ('"catch"', '"cathc"', "unknown game 'cathc': did you mean catch"),
        ('game = "catch"', "", "game is missing"),
        ("trials = 8", "trails = 8", "unknown key 'trails': did you mean 'trials'?"),
        ("trials = 8", "trials = 0", "trials = 0: must be at least 1"),
        ("trials = 8", 'trials = "8"', "must be a whole number"),
        ("trials = 8", 'pruner = "mean"', "must be one of median, hyperband, none"),
        ("trials = 8", 'objective = "score"', "must be one of return, evaluation"),
        ("trials = 8", 'objective = "evaluation"', "evaluation.episodes = 0 leaves evaluations"),
        ("trials = 8", 'direction = "up"', "must be one of maximize, minimize"),
        ("trials = 8", "seeds = 3", "seeds = 3: must be a list of whole numbers"),
        ("trials = 8", "seeds = [1, 1]", "must be different numbers"),
        ("trials = 8", "seeds = []", "must be a list of whole numbers"),
        ("trials = 8", "seed = 1", "unknown key 'seed': did you mean 'seeds'?"),
        ("trials = 8", "trials = ", "is not valid TOML"),
        ("[search]", "[serach]", "unknown key 'serach': did you mean 'search'?"),
        ("[search]", "[[search]]", "must be a table, [search]"),
        ("evaluation.episodes = 0", "evaluation.episode = 0", "[set]: unknown key"),
        ("evaluation.episodes = 0", "evaluation.episodes = -1", "must be at least 0"),
        ("evaluation.episodes = 0", "total_steps = 3", "give total_steps at the top"),
        ("network.torso", "network.torsos", "[search]: unknown key 'network.torsos': did you mean"),
        ("network.torso", "agent.epochs", "it belongs to ppo and pqn"),
        (f"network.torso = {LIST}", "lr = [1, 2]", "did you mean 'optimizer.learning_rate'?"),
        (f"network.torso = {LIST}", "game = [1]", "game cannot vary here: give game at the top"),
        (f"network.torso = {LIST}", "seed = [1]", "give seeds at the top"),
        (f"network.torso = {LIST}", "algorithm = [1]", "give config at the top"),
        (f"network.torso = {LIST}", "run_dir = [1]", "give --root"),
        (LIST, '["nips", "resnet"]', "network.torso = 'resnet': must be one of nips"),
        (LIST, '["nips", "nips"]', "a value is there twice"),
        (LIST, "[]", "must be a list of values, or { low = ..., high = ... }"),
        (LIST, '"nips"', "must be a list of values"),
        (LIST, "{ low = 1, high = 2 }", "is not a number: give a list of values"),
        (SPACE, "{ low = 1e-4 }", "high is missing"),
        (SPACE, "{ low = 1e-4, high = 1e-5 }", "low = 0.0001 must be below high = 1e-05"),
        (SPACE, "{ low = 1, high = inf }", "a finite number"),
        (SPACE, "{ low = -1, high = 1 }", "learning_rate = -1.0: must be at least 0"),
        (SPACE, "{ low = 0, high = 1, log = true }", "log needs a low above 0"),
        (SPACE, "{ low = 1, high = 2, step = 0.1, log = true }", "takes no step"),
        (SPACE, "{ low = 1, high = 2, step = 3 }", "at most 1, high - low"),
        (SPACE, "{ low = 1, high = 2, log = 1 }", "must be true or false"),
        (SPACE, "{ low = 1, high = 2, setp = 1 }", "known are low, high, step, log"),
        (SPACE, '{ low = "a", high = 2 }', "must be a number"),
        (LIST, '["nips"]\nnum_envs = { low = 1.5, high = 3 }', "must be a whole number"),
        (LIST, '["nips"]\nnum_envs = { low = 1, high = 3, step = 0.5 }', "must be a whole number"),
        (LIST, '["nips"]\nnum_envs = { low = 0, high = 3 }', "num_envs = 0: must be at least 1"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(old, new, message, study, tmp_path, capsys):
    words = study((old, new))
    assert main.main(["search", *words]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.startswith(f"jaxrl: '{words[0]}'")
    assert told.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_a_file_that_is_not_there_or_a_root_that_is_none(study, tmp_path, capsys):
    assert main.main(["search", str(tmp_path / "none.toml")]) == 2
    assert "no study file" in capsys.readouterr().err
    words = study()
    (tmp_path / "s").write_text("")
    assert main.main(["search", *words]) == 2
    assert "is not a directory: choose another --root" in capsys.readouterr().err


def test_spaces_are_read_with_quotes_or_without(study):
    lines = ("num_envs = { low = 16, high = 60, step = 16 }", '"agent.gamma" = [0.9, 1]')
    more = "\n".join((*lines, "agent.rollout_length = { low = 1, high = 2e1, log = true }"))
    plan = planned(study((f"network.torso = {LIST}", f"network.torso = {LIST}\n{more}")))
    assert plan.spaces == {
        RATE: Range(1e-4, 1e-1, None, True),
        TORSO: Choices(("nips", "nature")),
        "num_envs": Range(16, 48, 16, False),  # 60 cannot be reached
        "agent.gamma": Choices((0.9, 1.0)),
        "agent.rollout_length": Range(1, 20, None, True),
    }
    assert [space.whole for space in plan.spaces.values() if isinstance(space, Range)] == [
        False, True, True,
    ]  # fmt: skip
    assert plan.base_settings() == {
        RATE: 1e-6, TORSO: "nips", "num_envs": 16, "agent.gamma": 0.99, "agent.rollout_length": 5,
    }  # fmt: skip
    assert (plan.base.total_steps, plan.base.game, plan.options.trials) == (4000, "catch", 8)
    envs = plan.spaces["num_envs"]
    assert [envs.contains(n) for n in (16, 20, 32, 48, 64)] == [True, False, True, True, False]
    assert not plan.spaces[RATE].contains(1e-6)


def test_a_recipe_lies_beside_the_study_or_here(study, tmp_path, monkeypatch):
    words = study(('"a2c_fast"', '"mine.toml"'))
    (tmp_path / "mine.toml").write_text("num_envs = 3")
    assert planned(words).base.num_envs == 3
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "mine.toml").rename(here / "mine.toml")
    with pytest.raises(UserError, match="no configuration file"):
        planned(words)
    monkeypatch.chdir(here)
    assert planned(words).base.num_envs == 3


def test_the_runs_of_a_trial(study, tmp_path):
    plan = planned(study(("trials = 8", "seeds = [3, 1]")))
    members = plan.members(7, {RATE: 0.5, TORSO: "nature"}, tmp_path)
    assert [member.name for member in members] == ["trial-007-catch-seed3", "trial-007-catch-seed1"]
    assert {member.recipe.name for member in members} == {"trial-007.toml"}
    first = members[0].config
    assert (first.seed, first.optimizer.learning_rate, first.network.torso) == (3, 0.5, "nature")
    assert first.log.interval == 80  # 50 lines, though the recipe has one each 10,000 steps
    assert (
        plan.recipe({RATE: 0.5}).log.interval
        == load_recipe(search_plan.Path("a2c_fast")).log.interval
    )


def test_dry_run_shows_the_spaces(study, tmp_path, capsys):
    assert main.run("search", [*study(), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "8 trials of 1 seeds, 4,000 steps of catch each",
        "optimizer.learning_rate: low 0.0001, high 0.1, log true (the recipe has 1e-06)",
        "network.torso: nips, nature (the recipe has nips)",
    ]
    assert not (tmp_path / "s").exists()


def test_without_optuna_it_says_how_to_get_it(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main.main(["search", *study()]) == 2
    assert "pip install -e '.[search]'" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


# --- curves and values ----------------------------------------------------------------------------


def line(step, value, games=1000):
    return {"step": step, "frames": 0, "seconds": 0, "episodes": games, "return_mean": value}


def test_points_of_a_curve_are_the_same_for_all_runs():
    config = Config().replaced(total_steps=200, num_envs=16)
    # Of 200 steps, a point each 10: the first return is at step 30, and 90 passes two at once.
    lines = [line(25, None), line(30, 1.0), line(70, 2.0), line(75, None), line(90, 3.0)]
    found = search_results.marks(lines, config)
    assert found == {3: 1.0, 4: 2.0, 5: 2.0, 6: 2.0, 7: 2.0, 8: 3.0, 9: 3.0}
    assert search_results.marks([line(20, 1.0)], config) == {1: 1.0, 2: 1.0}
    assert max(search_results.marks([line(205, 1.0)], config)) == search.MARKS
    assert search_results.marks([], config) == {}


def test_points_of_a_curve_leave_out_first_games():
    lines = [line(10 * n, float(n), games=60 * n) for n in range(1, 8)]
    # 16 environments need 100 games, which are there at point 2; 200 need 400, at point 7.
    config = Config().replaced(total_steps=200, num_envs=16)
    assert search_results.marks(lines, config) == {n: float(n) for n in range(2, 8)}
    assert search_results.marks(lines, config.replaced(num_envs=200)) == {7: 7.0}
    assert search_results.marks(lines, config.replaced(num_envs=300)) == {}


def test_the_value_is_the_mean_return_of_the_last_tenth_or_of_the_evaluation(study, tmp_path):
    plan = planned(study())
    (member,) = plan.members(0, {}, tmp_path)

    def value(*lines):
        leave(member, lines, True)
        return search_results.objective(plan, member)

    # The last tenth comes after step 3,600.
    lines = line(3600, 9.0), line(3680, None), line(3760, 1.0), line(4000, 2.0)
    assert value(*lines) == (1.5, "")
    # 16 environments: the first 100 games to end are short ones.
    assert value(line(3680, 9.0, games=99), line(3760, 1.0, games=100)) == (1.0, "")
    early = line(3680, 9.0, games=40), line(3760, 1.0, games=80)
    assert value(*early) == (5.0, search_results.FIRST_GAMES)
    assert value(lines[0]) == (None, "no game ended in the last tenth of its 4,000 steps")
    evaluated = dataclasses.replace(plan.options, objective="evaluation")
    scores = search.np.array([1.0, 4.0])
    record = evaluation_record.summarize("catch", "noop", 4000, scores=scores, lengths=scores)
    evaluation_record.write(member.run_dir, record)
    plan = dataclasses.replace(plan, options=evaluated)
    assert search_results.objective(plan, member) == (2.5, "")


# --- trials, by a stand-in ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_study_improves_on_the_recipe_and_says_so(study, fake, tmp_path, capsys):
    unpruned = 'pruner = "none"\n'
    words = study(more=unpruned)
    assert main.run("search", words) == 0
    said = capsys.readouterr()
    ran = fake[1]
    assert ran[0] == "trial-000-catch-seed1"
    trials = rows(tmp_path)
    assert [trial["number"] for trial in trials] == list(range(8))
    assert trials[0]["settings"] == {RATE: 1e-6, TORSO: "nips"}
    base = load_recipe(search_plan.Path("a2c_fast"))
    for trial in trials:
        changed = base.replaced(
            optimizer={"learning_rate": trial["settings"][RATE]},
            network={"torso": trial["settings"][TORSO]},
        )
        # Of 50 lines the last five: 0.92, 0.94, ... 1.0 of the goodness.
        assert trial["value"] == pytest.approx(0.96 * goodness(changed)), trial
    assert {trial["note"] for trial in trials} == {""}
    values = [trial["value"] for trial in trials]
    best = max(trials, key=lambda trial: trial["value"])
    assert values[0] == min(values) == pytest.approx(-4 * 0.96)
    table = [line.split() for line in said.out.splitlines()]
    assert ["0", "done", "-3.840", "1e-06", "nips"] in table
    assert (
        f"best: trial {best['number']}, return {best['value']:.3f}; the recipe, trial 0: -3.840"
        in said.out
    )
    assert f"train with it: jaxrl train --config {tmp_path}/s/best.toml" in said.out
    assert "[1/8] trial-000: the recipe, learning_rate 1e-06, torso nips\n" in said.err

    found = load(tmp_path / "s" / "best.toml")
    check(found)
    assert found.optimizer.learning_rate == best["settings"][RATE]
    assert found.network.torso == best["settings"][TORSO]
    assert (found.game, found.seed, found.total_steps, found.run_dir) == ("catch", 1, 4000, "")
    assert found.log.interval == base.log.interval
    text = (tmp_path / "s" / "best.toml").read_text()
    assert f"# trial-{best['number']:03}, the best of 8: " in text
    assert "the recipe a2c_fast: -3.84\n" in text
    written = json.loads((tmp_path / "s" / "study.json").read_text())
    shares = written["importance"]
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == set(written["importance_interval"]) == {RATE, TORSO}
    for name in search_results.PICTURES:
        assert matplotlib.image.imread(tmp_path / "s" / name)[..., :3].std() > 0.05

    # The same command repeats nothing, more trials go on, and anything else is another study.
    before = list(ran)
    assert main.run("search", words) == 0
    assert ran == before
    assert "8 of 8 trials done already" in capsys.readouterr().err
    study(("trials = 8", "trials = 9"), more=unpruned)
    assert main.run("search", words) == 0
    assert rows(tmp_path)[:8] == trials
    assert len(rows(tmp_path)) == 9
    study(("high = 1e-1", "high = 1e-2"), ("trials = 8", 'seeds = [1, 2]\ndirection = "minimize"'))
    with pytest.raises(UserError) as told:
        main.run("search", words)
    assert "search.optimizer.learning_rate.high = 0.1 there and 0.01 here" in str(told.value)
    assert "seeds = [1] there and [1, 2] here" in str(told.value)


@pytest.mark.slow
@pytest.mark.rotating(4, group="search")
def test_a_stopped_search_goes_on_and_draws_the_same_values(study, fake, tmp_path, capsys):
    words = study(("trials = 8", "trials = 5"))
    assert main.run("search", words) == 0
    whole = rows(tmp_path)
    (tmp_path / "s").rename(tmp_path / "whole")
    ends, ran = fake
    ran.clear()
    ends["trial-003-catch-seed1"] = ["is interrupted", "done"]
    assert main.run("search", words) == 143
    assert f"stopped; go on with: jaxrl search {' '.join(words)}" in capsys.readouterr().err
    assert [row["status"] for row in rows(tmp_path)] == ["done", "done", "done", "stopped"]
    assert (tmp_path / "s" / "best.toml").is_file()
    assert main.run("search", words) == 0
    assert rows(tmp_path) == whole
    # Nothing is trained twice but what was stopped.
    times = {name: ran.count(name) for name in ran}
    assert times.pop("trial-003-catch-seed1") == 2
    assert set(times.values()) == {1}


# A run whose curve falls behind: it says so, and waits for the signal.
BEHIND = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
run_dir = Path(sys.argv[1])
run_dir.mkdir()
(run_dir / "config.toml").write_text(sys.argv[2])
(run_dir / "metrics.jsonl").write_text(sys.argv[3])
time.sleep(60)
"""


@pytest.mark.parametrize(
    "pruner", ["median", pytest.param("hyperband", marks=pytest.mark.slow), "none"]
)
def test_a_run_that_falls_behind_is_pruned(pruner, study, fake, tmp_path, monkeypatch, capsys):
    last, really = "trial-004-catch-seed1", runner_train
    trials = ("trials = 8", f'trials = 5\npruner = "{pruner}"')
    words = study(trials)
    fake[0][last] = "falls behind"
    if pruner == "median":  # in a process
        stand_in = runner.train

        def train(member, stop, shown):
            return (really if member.name == last else stand_in)(member, stop, shown)

        def command(member):
            lines = [line | {"return_mean": -100.0} for line in curve(member.config, 0.5)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            return [sys.executable, "-c", BEHIND, str(member.run_dir), to_toml(member.config), text]

        monkeypatch.setattr(runner, "train", train)
        monkeypatch.setattr(runner, "command", command)
    status = main.run("search", words)
    found = rows(tmp_path)[4]
    if pruner == "none":
        assert (status, found["status"]) == (1, "failed")
        return
    assert (status, found["status"], found["value"]) == (0, "pruned", None)
    assert "trial-004: pruned after" in capsys.readouterr().err
    with hold_directory(tmp_path / "s", "--root"):
        trial = search.open_study(planned(words), tmp_path / "s").trials[4]
    assert trial.state == search.TrialState.PRUNED
    assert max(trial.intermediate_values) == search.WARM_UP  # though its curve went on


@pytest.mark.slow
def test_pruning_does_not_depend_on_how_often_a_curve_is_read(study, fake, tmp_path):
    """A run that is behind at a quarter and ahead later, read at its end or at each line."""
    words, found = study(("trials = 8", "trials = 4")), []
    for end in ("dips", "dips and is watched"):
        fake[0]["trial-002-catch-seed1"] = end
        assert main.run("search", words) == 0
        with hold_directory(tmp_path / "s", "--root"):
            trials = search.open_study(planned(words), tmp_path / "s").trials
        found.append((rows(tmp_path), [trial.intermediate_values for trial in trials]))
        (tmp_path / "s").rename(tmp_path / end)
    assert found[0] == found[1]
    assert found[0][0][2]["status"] == "pruned"
    assert found[0][1][2] == dict.fromkeys(range(1, search.WARM_UP + 1), -9.0)


@pytest.mark.parametrize("pruner", [pytest.param("median", marks=pytest.mark.slow), "hyperband"])
def test_a_run_that_is_pruned_stays_so_after_a_kill(pruner, study, fake, tmp_path, monkeypatch):
    """The search is killed while the run saves, after it was pruned."""
    words = study(("trials = 8", f'trials = 5\npruner = "{pruner}"'))
    fake[0]["trial-004-catch-seed1"] = "falls behind"

    def kill(stop):
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(runner.SignalRelay, "end_member", kill)
        with pytest.raises(InterruptedError):
            main.run("search", words)
    fake[1].clear()
    assert main.run("search", words) == 0
    assert fake[1] == []
    assert rows(tmp_path)[4]["status"] == "pruned"


def test_a_failing_trial_does_not_stop_the_others_and_is_tried_again(study, fake, tmp_path, capsys):
    ends, ran = fake
    words = study(("trials = 8", "trials = 5"))
    ends |= {"trial-001-catch-seed1": [1, "done"], "trial-002-catch-seed1": 3}
    ends |= {"trial-003-catch-seed1": "no game"}
    assert main.run("search", words) == 1
    said = capsys.readouterr()
    found = [row["status"] for row in rows(tmp_path)]
    assert found == ["done", "failed", "diverged", "refused", "done"]
    assert f"(status 1, its last words: see {tmp_path}/s/trial-001-catch-seed1.log)" in said.err
    assert "(no game ended in the last tenth of its 4,000 steps)" in said.err
    ran.clear()
    assert main.run("search", words) == 0
    assert ran == ["trial-001-catch-seed1"]
    found = [row["status"] for row in rows(tmp_path)]
    assert found == ["done", "done", "diverged", "refused", "done"]


@pytest.mark.parametrize("end", [2, "no game"])
def test_a_recipe_that_fails_ends_the_search_in_one_line(end, study, fake, capsys):
    fake[0]["trial-000-catch-seed1"] = end
    assert main.main(["search", *study()]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("jaxrl: the recipe itself, trial-000, failed: ")
    assert fake[1] == ["trial-000-catch-seed1"]


def test_values_that_only_together_make_no_sense_are_refused_and_others_go_on(
    study, fake, tmp_path
):
    lists = (LIST, '["impala"]\nnetwork.extra_layers = [1]')
    assert main.run("search", study(lists, ("trials = 8", "trials = 2"))) == 0
    assert fake[1] == ["trial-000-catch-seed1"]
    last = rows(tmp_path)[1]
    assert (last["status"], last["value"]) == ("refused", None)
    assert last["note"].startswith("network.first_stride and network.extra_layers: impala has none")


def test_the_value_of_several_seeds_is_their_mean(study, fake, tmp_path, monkeypatch):
    def objective(plan, member):
        return float(member.config.seed + len(fake[1])), search_results.FIRST_GAMES

    monkeypatch.setattr(search_results, "objective", objective)
    words = study(("trials = 8", "trials = 2\nseeds = [5, 9]"))
    assert main.run("search", words) == 0
    assert fake[1] == [f"trial-00{n}-catch-seed{seed}" for n in (0, 1) for seed in (5, 9)]
    first, second = rows(tmp_path)
    assert (first["scores"], first["value"]) == ([6, 11], 8.5)
    assert (second["scores"], second["value"]) == ([8, 13], 10.5)
    assert first["note"] == search_results.FIRST_GAMES  # of both seeds, said once
    with hold_directory(tmp_path / "s", "--root"):
        trial = search.open_study(planned(words), tmp_path / "s").trials[0]
    # At the end of the second seed, the mean of the first one's value and of the curve.
    assert set(trial.intermediate_values) == set(range(1, 2 * search.MARKS + 1))
    assert trial.intermediate_values[2 * search.MARKS] == pytest.approx((6 - 4) / 2)


def test_values_that_were_tried_are_not_trained_again(study, fake, tmp_path):
    words = study((SPACE, "[1e-2]"), ("trials = 8", "trials = 5"))
    assert main.run("search", words) == 0
    assert len(fake[1]) == 3  # the recipe, nips and nature
    found = rows(tmp_path)
    assert sorted(row["status"] for row in found) == ["done"] * 3 + ["repeated"] * 2
    for row in found[1:]:
        assert row["value"] == pytest.approx(0.96 if row["settings"][TORSO] == "nature" else 0)


@pytest.mark.parametrize(("end", "status"), [(3, "diverged"), ("no game", "refused")])
def test_values_that_trained_badly_are_not_trained_again(end, status, study, fake, tmp_path):
    fake[0].update({f"trial-00{n}-catch-seed1": end for n in range(1, 5)})
    assert main.run("search", study((SPACE, "[1e-2]"), ("trials = 8", "trials = 5"))) == 0
    assert len(fake[1]) == 3  # the recipe, nips and nature
    found = rows(tmp_path)[1:]
    assert [row["status"] for row in found] == [status] * 4
    first = {row["settings"][TORSO]: row for row in reversed(found)}
    for row in found:
        if row not in first.values():
            assert row["note"] == f"as {first[row['settings'][TORSO]]['name']}"


def test_the_best_recipe_trains_with_other_seeds(study, fake, tmp_path):
    assert main.run("search", study(("trials = 8", "trials = 1\nseeds = [5]"))) == 0
    config = load(tmp_path / "s" / "best.toml")
    found = population.configs_of(config, (2, 3), tmp_path / "p")
    assert [member.seed for member in found] == [2, 3]


def test_a_recipe_within_the_spaces_is_a_trial_to_learn_from(study, fake, tmp_path):
    words = study(("learning_rate = 1e-6", "learning_rate = 1e-3"), ("trials = 8", "trials = 1"))
    assert main.run("search", words) == 0
    with hold_directory(tmp_path / "s", "--root"):
        trial = search.open_study(planned(words), tmp_path / "s").trials[0]
    assert trial.params == {RATE: 1e-3, TORSO: "nips"}


def test_a_damaged_study_is_refused_in_one_line(study, fake, tmp_path, capsys):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / layout.STUDY).write_text("no database" * 100)
    assert main.main(["search", *study()]) == 2
    told = capsys.readouterr().err
    assert f"cannot read '{tmp_path}/s/study.db' (file is not a database)" in told
    assert told.count("\n") == 1
    assert fake[1] == []


def test_the_example_is_a_study_whose_values_can_train(tmp_path):
    file = ROOT / "docs" / "examples" / "study_catch.toml"
    assert f"```toml\n{file.read_text()}```" in (ROOT / "docs/guides/studies.md").read_text()
    plan = search_plan.load(file)
    low = {RATE: 1e-4, "agent.rollout_length": 5, "network.normalize_observations": True}
    high = {RATE: 1e-2, "agent.rollout_length": 20, "network.normalize_observations": False}
    assert list(plan.spaces) == list(low)
    for settings in (plan.base_settings(), low, high):
        assert plan.members(1, settings, tmp_path)
    assert plan.base.optimizer.learning_rate < 1e-5


# --- real runs ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(4, group="search")
def test_a_search_that_is_killed_goes_on_and_finds_a_better_recipe(study, tmp_path):
    """Four trials of A2C on Catch with small frames, from a rate at which nothing is learned."""
    small = "env = { frame_height = 44, frame_width = 44, random_start_steps = 10 }"
    words = study(
        ("trials = 8", "trials = 4"),
        ("total_steps = 4000", "total_steps = 8000"),
        ("evaluation.episodes = 0", f"evaluation.episodes = 0\n{small}\nparallel.num_devices = 1"),
        (
            "optimizer.learning_rate = 1e-6",
            "optimizer = { learning_rate = 1e-6, schedule = 'constant' }",
        ),
        (SPACE, "{ low = 5e-4, high = 5e-3, log = true }"),
        (f"network.torso = {LIST}", ""),
    )
    (member,) = planned(words).members(2, {RATE: 1.0}, tmp_path / "s")
    options = {"stdout": subprocess.PIPE, "start_new_session": True}
    process = begin("search", *words, **options)
    try:
        until(lambda: (member.run_dir / layout.METRICS).is_file(), process, seconds=300)
        until(lambda: metrics.read(member.run_dir), process)
    finally:
        process.kill()  # the third trial has begun
        process.communicate()
    until(lambda: not is_locked(member.run_dir))
    saved = checkpoint_files.steps(member.run_dir)[-1]  # as after SIGTERM

    status, errors = finish(begin("search", *words, **options), timeout=500)
    assert status == 0, errors
    assert "2 of 4 trials done already" in errors
    if saved < member.total_steps:
        assert f"resumed at step {saved:,}" in member.log.read_text()
    check_metrics(member.run_dir)
    logs = {path.name: path.read_text() for path in (tmp_path / "s").glob("*.log")}
    assert len(logs) == 4
    assert all(text.count("$ ") == 1 for name, text in logs.items() if name != member.log.name)
    trials = rows(tmp_path)
    values = [trial["value"] for trial in trials if trial["value"] is not None]
    # Catch by chance is -0.75 or so, and 1 is the most.
    assert values[0] < -0.5
    assert max(values) > values[0] + 0.5
    assert {trial["status"] for trial in trials} <= {"done", "pruned"}
    found = load(tmp_path / "s" / "best.toml")
    assert found.optimizer.learning_rate > 5e-4


def trials_at(rates, values):
    """A study of two keys, of which the second says nothing."""
    space = {"rate": FloatDistribution(1e-4, 1e-2, log=True), "units": IntDistribution(1, 4)}
    found = optuna.create_study(direction="maximize")
    for place, (rate, value) in enumerate(zip(rates, values, strict=True)):
        params = {"rate": rate, "units": 1 + place % 4}
        found.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
    return found


def test_importance_has_an_interval_that_four_trials_leave_wide(tmp_path, monkeypatch):
    few = search_results.importances(trials_at([1e-4, 1e-3, 3e-3, 1e-2], [0.0, 0.9, 1.0, 0.5]))
    assert sum(found.share for found in few.values()) == pytest.approx(1)
    assert few["rate"].low <= 0.5  # which of the two matters is not known
    assert few["rate"].high > 0.9
    rates = np.geomspace(1e-4, 1e-2, 40)
    clear = search_results.importances(trials_at(rates, -np.abs(np.log10(rates) + 3)))
    assert 0.5 < clear["rate"].low <= clear["rate"].share <= clear["rate"].high <= 1
    drawn = []
    monkeypatch.setattr(study_plots, "save", lambda figure, target: drawn.append(figure))
    study_plots.importance(few, 4, "catch", tmp_path / "x.png")
    (axes,) = drawn[0].axes
    assert "of 4 trials; lines: 95 % bootstrap intervals" in axes.get_xlabel()
    words = [text.get_text() for text in axes.texts]
    best = max(few.values())
    assert words[-1] == "{:.0f} % ({:.0f} to {:.0f})".format(*(100 * x for x in best))
    assert len(axes.collections) == 1  # the lines of the intervals
