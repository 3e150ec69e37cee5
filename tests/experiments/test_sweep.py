"""Sweeps: their order, what is left out, refused, survived and told; in processes and as jobs."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from jaxrl.analysis import comparison
from jaxrl.analysis.groups import group_runs
from jaxrl.atari.games import known_games
from jaxrl.atari.scores import reference_scores
from jaxrl.cli import main
from jaxrl.cli import sweep as cli_sweep
from jaxrl.cli.parsing import parse
from jaxrl.cli.train import Train
from jaxrl.config import variations
from jaxrl.config.toml import to_toml
from jaxrl.errors import UserError
from jaxrl.experiments import members, runner, slurm, sweep, sweep_plan
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.runs.lock import hold_directory, is_locked
from jaxrl.training.display import Display
from tests.conftest import recipe_file
from tests.survival import ROOT, check_metrics, environment, finish

FILES = (recipe_file("a2c_fast"), recipe_file("ppo"))
LINE = {"frames": 1600, "seconds": 1.0, "return_mean": 0.5, "wall_seconds": 2.0}
# A member that writes what a run of 400 steps leaves, and ends with the given status.
FAKE = """
import json, sys
from pathlib import Path
config, run_dir, line, status = sys.argv[1:]
run_dir = Path(run_dir)
run_dir.mkdir(exist_ok=True)
(run_dir / "config.toml").write_text(Path(config).read_text())
print("trained\\nits last \\x1b[2Jwords")
if status == "0":
    (run_dir / "metrics.jsonl").write_text(line + "\\n")
    (run_dir / "learning_curve.png").write_text("a picture")
sys.exit(int(status))
"""


def planned(root, games=("pong", "catch"), seeds=(1,), files=FILES[:1], total_steps=400):
    plan = sweep_plan.plan(files, games, seeds, root, total_steps=total_steps)
    return [
        dataclasses.replace(x, config=x.config.replaced(evaluation={"episodes": 0})) for x in plan
    ]


def leave(member, step=400, **row):
    """What `jaxrl train` leaves behind of a member."""
    member.run_dir.mkdir(parents=True)
    (member.run_dir / "config.toml").write_text(to_toml(member.config))
    (member.run_dir / layout.METRICS).write_text(json.dumps(LINE | {"step": step} | row) + "\n")
    (member.run_dir / layout.LEARNING_CURVE).write_text("a picture")
    return member.run_dir


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Members that train nothing; returns the exit statuses by name, and the names that ran."""
    statuses, ran = {}, []

    def command(member):
        ran.append(member.name)
        status = statuses.get(member.name, [0])
        status = status.pop(0) if len(status) > 1 else status[0]
        config = tmp_path / "whole.toml"
        config.write_text(to_toml(member.config))
        line = json.dumps(LINE | {"step": member.total_steps})
        words = [config, member.run_dir, line, status]
        return [sys.executable, "-c", FAKE, *map(str, words)]

    monkeypatch.setattr(runner, "command", command)
    return statuses, ran


def run(plan, root, capsys):
    """The rows of a sweep in this process, and what it says."""
    with (
        Display() as display,
        hold_directory(root, "--root"),
        runner.SignalRelay().watching() as stop,
    ):
        rows = sweep.run(plan, root, display, stop)
    assert json.loads((root / layout.SWEEP).read_text()) == rows
    return rows, capsys.readouterr().err


def test_the_report_counts_members_that_were_not_trained(tmp_path):
    members = sweep_plan.plan(FILES, ("pong",), (1,), tmp_path)
    assert sweep.report(members, tmp_path) is None
    trained = members[0].run_dir
    trained.mkdir(parents=True)
    (trained / layout.METRICS).write_text('{"step": 1, "frames": 4, "seconds": 1}\n')
    page = sweep.report(members, tmp_path).read_text()
    assert "1 run is left out" in page
    assert f'{members[1].run_dir.name}: <span class="plain">not trained' in page


# --- which, and in which order --------------------------------------------------------------------


def test_seeds_are_outermost_and_configurations_innermost(tmp_path):
    plan = sweep_plan.plan(FILES, ("pong", "catch"), (3, 1), tmp_path)
    assert [member.name for member in plan] == [
        "a2c_fast-pong-seed3", "ppo-pong-seed3", "a2c_fast-catch-seed3", "ppo-catch-seed3",
        "a2c_fast-pong-seed1", "ppo-pong-seed1", "a2c_fast-catch-seed1", "ppo-catch-seed1",
    ]  # fmt: skip
    assert plan[1].config.algorithm == "ppo"
    assert (plan[1].config.game, plan[1].config.seed) == ("pong", 3)
    assert plan[1].config.optimizer.recipe_envs == plan[1].config.num_envs  # as train has it


def test_the_groups_of_games():
    assert sorted(sweep_plan.games_of(("atari5",))) == [
        "battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert",
    ]  # fmt: skip
    games = sweep_plan.games_of(("atari57", "catch"))
    assert games[:5] == sweep_plan.games_of(("atari5",))
    assert len(games) == len(set(games)) == 58
    assert set(games) - {"catch"} == set(reference_scores()) <= set(known_games())
    assert games[-8:-1] == list(sweep_plan.HARD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--games pogn --seeds 1 --configs {ppo}", "unknown game 'pogn': did you mean pong"),
        ("--games atari56 --seeds 1 --configs {ppo}", "did you mean atari5, atari57"),
        ("--games pong --seeds 1 --configs {ppo}x", "no configuration file"),
        ("--games pong --seeds --configs {ppo}", "--seeds is empty"),
        ("--games pong --configs {ppo}", "--seeds"),
        ("--games pong --seeds -1 --configs {ppo}", "must be at least 0"),
        ("--games pong --seeds 1 --configs {ppo} --total-steps 0", "must be at least 1"),
        ("--games pong --seeds 1 1 --configs {ppo}", "'ppo-pong-seed1' is there twice"),
        ("--games atari5 qbert --seeds 1 --configs {ppo}", "'ppo-qbert-seed1' is there twice"),
        ("--games pong --seeds 1 --configs {ppo} {here}/ppo.toml", "different file names"),
        ("--games pong --seeds 1 --configs {ppo} --root {here}/file", "is not a directory"),
        ("--games pong --seeds 1 --configs {ppo} --root {here}/file/x", "choose another --root"),
        ("--games pong --seeds 1 --configs {ppo} --slurm-time 10", "--slurm-time needs --slurm"),
        ("--games pong --seeds 1 --configs {ppo} --slurm --slurm-time 0", "must be at least 1"),
        ("{one} --set optimizer.lr=1,2", "unknown key 'optimizer.lr': did you mean 'optimizer.lea"),
        ("{one} --set lr=1", "--set lr: unknown key 'lr': did you mean 'optimizer.learning_rate'?"),
        ("{one} --set agent.replay_capacity=1", "it belongs to dqn, c51, qr_dqn, iqn and r2d2"),
        ("{one} --set optimizer.learning_rate=1,-1", "learning_rate = -1.0: must be at least 0"),
        ("{one} --set num_envs=16,many", "num_envs = 'many': must be a whole number"),
        ("{one} --set num_envs=16,2.5", "num_envs = 2.5: must be a whole number"),
        (
            "{one} --set network.torso=resnet",
            "must be one of nips, nature, gamma, hadamax, gamma_hadamax, impala",
        ),
        ("{one} --set num_envs=16,,32", "--set num_envs=16,,32: a value is empty"),
        ("{one} --set num_envs=", "a value is empty"),
        ("{one} --set num_envs", "must be KEY=VALUE,VALUE"),
        ("{one} --set num_envs=16 --set num-envs=32", "--set num_envs is given twice"),
        ("{one} --set num_envs=16,1.6e1", "'ppo-num_envs=16-pong-seed1' is there twice"),
        ("{one} --set game=pong,catch", "game cannot vary here: give --games"),
        ("{one} --set seed=1,2", "seed cannot vary here: give --seeds"),
        ("{one} --set run_dir=x", "run_dir cannot vary here: give --root"),
        ("{one} --set algorithm=a2c", "algorithm cannot vary here: give --configs"),
        ("{one} --set total_steps=1,2 --total-steps 3", "leave one out"),
        ("--games pong --seeds 1 --configs {ppo} {here}/copy.toml", "'ppo-pong-seed1' and 'copy-"),
        ("{one} --set agent.num_minibatches=3,4", "agent.num_minibatches = 3 does not divide"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(arguments, message, tmp_path, fake):
    (tmp_path / "file").write_text("not a directory")
    for name in ("ppo.toml", "copy.toml"):
        (tmp_path / name).write_text(FILES[1].read_text())
    one = f"--games pong --seeds 1 --configs {FILES[1]}"
    words = arguments.format(ppo=FILES[1], here=tmp_path, one=one).split()
    words += [] if "--root" in words else ["--root", str(tmp_path / "root")]
    with pytest.raises(UserError) as told:
        main.run("sweep", words)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "root").exists()
    assert fake[1] == []


def test_set_makes_every_combination_and_the_names_tell_them_apart(tmp_path, capsys):
    words = ["--games", "catch", "--seeds", "1", "--configs", "a2c_fast", "--root", str(tmp_path)]
    words += ["--set", "optimizer.learning-rate=3e-4,1e-3", "--set", "network.torso=nips,nature"]
    assert main.run("sweep", [*words, "--dry-run"]) == 0
    names = capsys.readouterr().out.split()[2::3]
    assert names == [
        "a2c_fast-learning_rate=0.0003-torso=nips-catch-seed1",
        "a2c_fast-learning_rate=0.0003-torso=nature-catch-seed1",
        "a2c_fast-learning_rate=0.001-torso=nips-catch-seed1",
        "a2c_fast-learning_rate=0.001-torso=nature-catch-seed1",
    ]
    plan = sweep_plan.plan(FILES[:1], ("catch",), (1,), tmp_path, tuple(words[-3::2]))
    assert [member.name for member in plan] == names
    found = [(x.config.optimizer.learning_rate, x.config.network.torso) for x in plan]
    assert found == [(3e-4, "nips"), (3e-4, "nature"), (1e-3, "nips"), (1e-3, "nature")]
    for member in plan:
        leave(member)
    labels = [name.removesuffix("-catch-seed1") for name in names]
    assert [group.label for group in group_runs([x.run_dir for x in plan])] == labels
    for number, member in enumerate(plan):
        games = np.full(10, float(number))
        evaluation_record.write(
            member.run_dir,
            evaluation_record.summarize("catch", "noop", 400, scores=games, lengths=games),
        )
    with pytest.raises(UserError, match=f"of 4 configurations \\({'; '.join(labels)}\\)"):
        comparison.compare([member.run_dir for member in plan])
    row = sweep.describe(plan[0], "done")
    assert row["settings"] == {"optimizer.learning_rate": 3e-4, "network.torso": "nips"}


def test_a_key_of_one_value_is_in_no_name():
    words = ("env.frame_height=44", "optimizer.learning_rate=1e-3,3e-3", "num_envs=16")
    low, high = sweep_plan.plan(FILES[:1], ("catch",), (1,), Path("s"), words)
    assert low.name == "a2c_fast-learning_rate=0.001-catch-seed1"
    assert high.name == "a2c_fast-learning_rate=0.003-catch-seed1"
    assert low.config.env.frame_height == high.config.env.frame_height == 44
    assert dict(low.settings) == {
        "env.frame_height": 44, "optimizer.learning_rate": 1e-3, "num_envs": 16,
    }  # fmt: skip
    (one,) = sweep_plan.plan(FILES[:1], ("catch",), (1,), Path("s"), words[:1])
    assert (one.name, one.recipe.name) == ("a2c_fast-catch-seed1", "a2c_fast.toml")
    assert "with env.frame_height = 44" in one.recipe_text()


def test_a_sweep_of_the_former_names_goes_on(tmp_path):
    """Older versions name keys of one value too, and have written fewer keys into the recipe."""
    words = ("env.frame_height=44", "num_envs=16,32")
    former = tmp_path / "a2c_fast-frame_height=44-num_envs=32-pong-seed2"
    former.mkdir()
    found = sweep_plan.plan(FILES[:1], ("catch", "pong"), (1, 2), tmp_path, words)
    assert [member.label for member in found[:2]] == [
        "a2c_fast-frame_height=44-num_envs=16", "a2c_fast-frame_height=44-num_envs=32",
    ]  # fmt: skip
    assert found[-1].run_dir == former
    recipe = found[-1].recipe
    text = found[-1].recipe_text()
    recipe.write_text(text.replace("difficulty = -1\n", ""))
    members.copy_recipes(found)
    assert recipe.read_text() == text
    # A key that gets one value only keeps the name, too.
    (one,) = sweep_plan.plan(FILES[:1], ("pong",), (2,), tmp_path, (words[0], "num_envs=32"))
    assert one.run_dir == former


def test_the_report_is_written_before_anything_is_printed(tmp_path, monkeypatch):
    def broken(rows):
        raise BrokenPipeError

    written = []
    monkeypatch.setattr(sweep, "run", lambda *_: [])
    monkeypatch.setattr(sweep, "report", lambda _, root: written.append(root))
    monkeypatch.setattr("jaxrl.cli.sweep._print", broken)
    with pytest.raises(BrokenPipeError):
        cli_sweep._train([], tmp_path, [])
    assert written == [tmp_path]


def test_names_of_values_are_short_and_safe(tmp_path):
    settings = {"log.interval": 100, "checkpoint.interval": 10**6, "optimizer.eps": 1e-5}
    settings |= {"network.dueling": True, "env.engine": "a/b c", "agent.gamma": 0.1 + 0.2}
    assert variations.label(settings) == (
        "log.interval=100-checkpoint.interval=1000000-eps=1e-05-dueling=true-engine=a_b_c-"
        "gamma=0.30000000000000004"
    )
    long = Path(shutil.copy(FILES[0], tmp_path / f"{'x' * (sweep_plan.LONGEST_NAME - 12)}.toml"))
    (member,) = sweep_plan.plan((long,), ("catch",), (1,), Path("s"))
    assert len(member.name) == sweep_plan.LONGEST_NAME
    with pytest.raises(UserError, match="vary fewer keys"):
        sweep_plan.plan((long,), ("catch",), (1,), Path("s"), ("num_envs=16,32",))


def test_a_member_trains_from_its_values_as_a_whole_recipe(tmp_path):
    root = tmp_path / "s"
    root.mkdir()
    plan = sweep_plan.plan(FILES[:1], ("catch", "pong"), (7,), root, ("num_envs=16,3.2e1",))
    members.copy_recipes(plan)
    assert sorted(path.name for path in root.iterdir()) == [
        "a2c_fast-num_envs=16.toml", "a2c_fast-num_envs=32.toml",
    ]  # fmt: skip
    member = plan[1]
    text = member.recipe.read_text()
    assert text.startswith(f"# {FILES[0]} with num_envs = 32\nalgorithm = ")
    assert "\ngame = " not in text
    words = runner.command(member)[3:]
    assert words[:3] == ["train", "--config", str(member.recipe)]
    assert parse(Train, "train", words[1:]).settings == member.config
    assert member.config.optimizer.recipe_envs == 16  # of the file, as `train --num-envs 32` has it
    members.copy_recipes(plan)
    member.recipe.write_text("num_envs = 3")
    with pytest.raises(UserError, match="choose another --root"):
        members.copy_recipes(plan)


# --- how far --------------------------------------------------------------------------------------


def test_states(tmp_path):
    (member,) = planned(tmp_path, games=("catch",), total_steps=399)
    assert member.total_steps == 400  # 16 environments, 5 steps: 80 an update
    assert members.state(member) == "new"
    run_dir = leave(member)
    assert members.state(member) == "done"
    asked = dataclasses.replace(member, config=member.config.replaced(evaluation={"episodes": 2}))
    assert members.state(asked) == "begun"
    games = np.asarray([1, -1, 1])
    evaluation_record.write(
        run_dir, evaluation_record.summarize("catch", "noop", 400, scores=games, lengths=games)
    )
    assert members.state(asked) == "done"
    checkpoint_files.directory(run_dir).joinpath("320").mkdir(parents=True)
    assert members.state(member) == "begun"  # its last line was written, its checkpoint was not
    checkpoint_files.directory(run_dir).joinpath("400").mkdir()
    assert members.state(member) == "done"
    (run_dir / layout.LEARNING_CURVE).unlink()
    assert members.state(member) == "begun"


def test_a_run_whose_metrics_stop_early_or_cannot_be_read_has_begun(tmp_path):
    first, second = planned(tmp_path)
    leave(first, step=320)
    assert members.state(first) == "begun"
    (leave(second) / layout.METRICS).write_text("[]\n")
    assert members.state(second) == "begun"


def test_another_configuration_is_refused_by_the_keys_that_differ(tmp_path):
    (member,) = planned(tmp_path, games=("catch",))
    run_dir = leave(member)
    members.check_directory(member)
    changed = member.config.replaced(
        total_steps=800,
        parallel={"num_devices": 3},
        optimizer=dataclasses.replace(member.config.optimizer, learning_rate=0.5),
    )
    with pytest.raises(UserError) as told:
        members.check_directory(dataclasses.replace(member, config=changed))
    assert "(total_steps = 400 there and 800 here; optimizer.learning_rate = " in str(told.value)
    assert "num_devices" not in str(told.value)
    (run_dir / "config.toml").unlink()
    with pytest.raises(UserError, match="it holds no run"):
        members.check_directory(member)


def test_the_time_limit_that_training_wrote_down_is_no_difference(tmp_path):
    (member,) = planned(tmp_path, games=("catch",))
    assert member.config.env.max_episode_steps == 0
    leave(dataclasses.replace(member, config=member.config.with_time_limit()))
    members.check_directory(member)
    asked = member.config.replaced(env={"max_episode_steps": 99})
    with pytest.raises(UserError, match="max_episode_steps = 27000 there and 99 here"):
        members.check_directory(dataclasses.replace(member, config=asked))


def test_the_number_of_learners_that_training_wrote_down_is_no_difference(tmp_path):
    (member,) = planned(tmp_path, games=("catch",), files=(recipe_file("a3c"),))
    asked = member.config.replaced(parallel={"num_learners": 0})
    began = asked.replaced(parallel={"num_learners": 2})
    leave(dataclasses.replace(member, config=began))
    members.check_directory(dataclasses.replace(member, config=asked))
    with pytest.raises(UserError, match="num_learners = 2 there and 4 here"):
        members.check_directory(
            dataclasses.replace(member, config=asked.replaced(parallel={"num_learners": 4}))
        )


def test_time_left_is_told_by_the_pace_of_each_configuration():
    def row(config, status, step, seconds):
        return {"config": config, "status": status, "step": step, "total_steps": 100,
                "wall_seconds": seconds}  # fmt: skip

    assert sweep.seconds_left([row("a", "new", 0, None)]) is None
    assert sweep.seconds_left([row("a", "done", 100, 30)]) == 0
    rows = [
        row("a", "done", 100, 30),  # 0.3 s a step
        row("a", "failed", 0, None),
        row("a", "begun", 50, 15),  # 50 to go: 15 s
        row("b", "done", 100, 155),
        row("c", "new", 0, None),  # 200 s for 250 steps of others: 80 s
    ]
    assert sweep.seconds_left(rows) == pytest.approx(15 + 80)


def test_what_a_damaged_run_says_does_not_spoil_the_summary(tmp_path):
    first, second = planned(tmp_path)
    leave(first, return_mean=float("nan"), wall_seconds=10**400)
    leave(second, step=float("inf"), wall_seconds="long")
    (second.run_dir / layout.EVALUATION).write_text('{"scores": [')
    rows = [sweep.describe(member, "failed", 1) for member in (first, second)]
    sweep.write(tmp_path, rows)
    assert json.loads((tmp_path / layout.SWEEP).read_text()) == rows
    assert [row["wall_seconds"] for row in rows] == [None, None]
    assert [row["step"] for row in rows] == [400, 0]
    assert rows[1]["evaluation_mean"] is None


# --- training them, by a stand-in -----------------------------------------------------------------


def test_a_failing_member_does_not_stop_the_others(tmp_path, fake, capsys):
    statuses, ran = fake
    plan = planned(tmp_path, games=("pong", "catch", "breakout"))
    names = [member.name for member in plan]
    statuses[names[1]] = [3]
    rows, said = run(plan, tmp_path, capsys)
    assert ran == names
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert [row["exit_status"] for row in rows] == [0, 3, 0]
    assert [row["step"] for row in rows] == [400, 0, 400]
    assert [row["return_mean"] for row in rows] == [0.5, None, 0.5]
    # No cursor is moved by what a member said.
    assert f"[2/3] {names[1]}: failed after " in said
    assert f"with status 3 (its last [2Jwords): see {plan[1].log}; 1 more, about 0:00:02" in said
    assert f"[3/3] {names[2]}: done in " in said
    assert plan[1].log.read_text().count("trained\n") == 1
    statuses[names[1]] = [0]
    rows, said = run(plan, tmp_path, capsys)
    assert ran == [*names, names[1]]  # what is done is left out
    assert [row["status"] for row in rows] == ["done", "done", "done"]
    assert "2 of 3 done already" in said
    assert f"[2/3] {names[1]}: goes on" in said


@pytest.mark.parametrize(
    ("found", "attempts", "status"),
    [([75, 75, 0], 3, "done"), ([75], 3, "failed"), ([74, 0], 1, "failed")],
)
def test_lost_emulators_are_tried_again_twice(found, attempts, status, tmp_path, fake, capsys):
    statuses, ran = fake
    plan = planned(tmp_path, games=("catch",))
    statuses[plan[0].name] = found
    rows, _ = run(plan, tmp_path, capsys)
    assert len(ran) == attempts
    assert rows[0]["status"] == status
    assert plan[0].log.read_text().count("$ ") == attempts


def test_a_member_that_is_killed_has_the_status_that_a_shell_gives(tmp_path, monkeypatch, capsys):
    kill = "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(runner, "command", lambda _: [sys.executable, "-c", kill])
    rows, _ = run(planned(tmp_path, games=("catch",)), tmp_path, capsys)
    assert rows[0]["exit_status"] == 137


def test_the_command_of_a_member(tmp_path):
    (member,) = planned(tmp_path / "s", games=("catch",), seeds=(7,))
    words = " ".join(runner.command(member)[1:])
    assert words.startswith(f"-m jaxrl train --config {tmp_path}/s/a2c_fast.toml --game catch ")
    assert f" --seed 7 --total-steps 400 --run-dir {member.run_dir} " in words
    leave(member)
    assert f"-m jaxrl resume {member.run_dir} " in " ".join(runner.command(member))
    parallel = {"num_devices": 2}
    [on_two] = sweep_plan.plan(FILES[:1], ("catch",), (7,), tmp_path / "s", parallel=parallel)
    assert " --num-devices 2 --num-processes 1" in " ".join(runner.command(on_two))


def test_members_begin_with_the_configuration_as_the_sweep_began(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("num_envs = 4")
    (member,) = sweep_plan.plan((file,), ("catch",), (1,), tmp_path / "s")
    (tmp_path / "s").mkdir()
    members.copy_recipes([member])
    file.write_text("num_envs = 8")
    assert member.recipe.read_text() == "num_envs = 4"


def test_only_one_sweep_at_a_time(tmp_path):
    with (
        hold_directory(tmp_path / "s", "--root"),
        pytest.raises(UserError, match="choose another --root"),
    ):
        hold_directory(tmp_path / "s", "--root").__enter__()
    with hold_directory(tmp_path / "s", "--root"):
        pass


def test_the_command_says_how_it_ended(tmp_path, fake, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "report", lambda plan, root: root / "report.html")
    file = tmp_path / "mine.toml"
    file.write_text("num_envs = 4\n[evaluation]\nepisodes = 0")
    words = ["--games", "pong", "catch", "--seeds", "1", "--configs", str(file), "--root"]
    words += [str(tmp_path / "s"), "--total-steps", "400"]
    assert main.run("sweep", [*words, "--dry-run"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == ["1", "new", "mine-pong-seed1", "2", "new", "mine-catch-seed1"]
    assert not (tmp_path / "s").exists()
    fake[0]["mine-pong-seed1"] = [1]
    assert main.run("sweep", words) == 1
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["mine-pong-seed1", "failed", "(1)", "0", "-", "-", "-"] in table
    assert ["mine-catch-seed1", "done", "400", "0.5", "-", "-"] in table
    assert table[-1] == [str(tmp_path / "s/report.html")]
    assert main.run("sweep", [*words, "--dry-run"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == ["1", "begun", "mine-pong-seed1", "2", "done", "mine-catch-seed1"]
    with pytest.raises(UserError, match="total_steps = 400 there and 800 here"):
        main.run("sweep", [*words[:-1], "800", "--dry-run"])
    fake[0]["mine-pong-seed1"] = [0]
    assert main.run("sweep", words) == 0


# --- SLURM ----------------------------------------------------------------------------------------


@pytest.fixture
def submitit(monkeypatch):
    """Imported so that it leaves the log alone: else absl's handler closes pytest's stderr."""
    with monkeypatch.context() as changed:
        changed.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")
        return pytest.importorskip("submitit")


def test_without_submitit_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[slurm\]'"):
        slurm.submit(planned(tmp_path), tmp_path, slurm.Slurm())


def test_what_slurm_is_asked_for(tmp_path, monkeypatch, capsys, submitit):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, does in (("srun", "true"), ("sbatch", f"cp $1 {tmp_path}/job.sh; echo job 12")):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    words = f"--games pong catch --seeds 1 2 --configs {FILES[0]} --slurm --slurm-partition fast "
    words += "--slurm-time 90 --slurm-gpus-per-node 2 --slurm-cpus-per-task 6 "
    words += "--slurm-array-parallelism 3 --set num_envs=4,8"
    assert main.run("sweep", [*words.split(), "--root", str(tmp_path / "s")]) == 0
    assert "8 of 8 submitted as job 12" in capsys.readouterr().out
    asked = (tmp_path / "job.sh").read_text()
    for option in (
        "array=0-7%3", "partition=fast", "time=90", "gpus-per-node=2", "cpus-per-task=6", "requeue",
        "signal=USR2@180",
    ):  # fmt: skip
        assert f"#SBATCH --{option}\n" in asked
    assert len(list((tmp_path / "s/slurm").glob("*submitted.pkl"))) == 8
    assert (tmp_path / "s/a2c_fast-num_envs=8.toml").is_file()  # which its jobs train from
    assert not list((tmp_path / "s").glob("*seed*"))  # nothing but the jobs makes run directories


# --- real runs ------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A configuration that trains in a second, when it is compiled."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "tiny.toml"
    text = FILES[0].read_text().replace("num_envs = 16", "num_envs = 4")
    small = "[env]\nframe_height = 44\nframe_width = 44\n[parallel]\nnum_devices = 1\n"
    sections = f"{small}[evaluation]\nepisodes = 2\n[log]\ninterval = 200\n"
    file.write_text(f"{text}\n{sections}")
    return file


def begin(*arguments):
    """The command in a process and a process group of its own, as a shell begins it."""
    code = "import sys; from jaxrl.cli.main import run; sys.exit(run('sweep', sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip


def until(condition, process=None, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.rotating(4, group="sweep")
def test_ctrl_c_saves_the_member_and_the_same_command_goes_on(tiny, tmp_path):
    root = tmp_path / "s"
    words = ["--games", "catch", "--seeds", "1", "2", "--configs", tiny, "--root", root]
    words += ["--total-steps", "8000"]
    first, second = sweep_plan.plan((tiny,), ("catch",), (1, 2), root, total_steps=8_000)
    process = begin(*words)
    until(lambda: (first.run_dir / layout.METRICS).exists(), process)
    until(lambda: metrics.read(first.run_dir), process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the group
    status, errors = finish(process)
    assert status == 130
    assert f"go on with: jaxrl sweep --games catch --seeds 1 2 --configs {tiny}" in errors
    said = first.log.read_text()
    assert "and saved; go on with" in said
    assert "stopped at once" not in said
    saved = checkpoint_files.steps(first.run_dir)[-1]
    assert 0 < saved < 8_000
    rows = json.loads((root / layout.SWEEP).read_text())
    assert [row["status"] for row in rows] == ["stopped", "new"]
    assert rows[0]["exit_status"] == 130

    status, errors = finish(begin(*words))
    assert status == 0, errors
    assert f"resumed at step {saved:,}" in first.log.read_text()
    for member in (first, second):
        assert members.state(member) == "done"
        assert check_metrics(member.run_dir)[-1]["step"] == 8_000
    rows = json.loads((root / layout.SWEEP).read_text())
    assert [row["status"] for row in rows] == ["done", "done"]
    assert rows[1]["evaluation_mean"] == evaluation_record.read(second.run_dir).mean
    assert sorted(path.name for path in root.glob("tiny-*")) == [
        "tiny-catch-seed1", "tiny-catch-seed1.log", "tiny-catch-seed2", "tiny-catch-seed2.log",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_sweep_that_is_killed_takes_its_member_along(tiny, tmp_path):
    root = tmp_path / "s"
    words = ["--games", "catch", "--seeds", "1", "--configs", tiny, "--root", root]
    (member,) = sweep_plan.plan((tiny,), ("catch",), (1,), root, total_steps=3_000_000)
    process = begin(*words, "--total-steps", "3e6")
    until(lambda: (member.run_dir / layout.METRICS).exists(), process)
    until(lambda: metrics.read(member.run_dir), process)
    process.kill()
    process.wait()
    until(lambda: not is_locked(member.run_dir), seconds=60)
    assert "and saved; go on with" in member.log.read_text()
    assert checkpoint_files.steps(member.run_dir)


@pytest.mark.slow
@pytest.mark.rotating(4, group="sweep")
def test_jobs_train_and_a_preempted_one_goes_on(tiny, tmp_path, submitit):
    root = tmp_path / "s"
    root.mkdir()
    plan = sweep_plan.plan((tiny,), ("catch",), (1, 2), root, total_steps=8_000)
    members.copy_recipes(plan)
    jobs = slurm.submit(plan, root, slurm.Slurm(time=60), cluster="local")
    first = plan[0]
    until(lambda: (first.run_dir / layout.METRICS).exists())
    until(lambda: metrics.read(first.run_dir))
    trainer = psutil.Process(int((first.run_dir / "lock").read_text().split()[1]))
    for process in (trainer, trainer.parent()):  # as SLURM: to all processes of the job
        process.send_signal(signal.SIGUSR2)
    for job in jobs:
        job.wait()
    assert "preempted" in jobs[0].paths.stderr.read_text()
    assert "and saved; go on with" in first.log.read_text()
    assert "resumed at step" in first.log.read_text()
    assert [members.state(member) for member in plan] == ["done", "done"]
    for member in plan:
        check_metrics(member.run_dir)
