"""A run of Atari that is resumed plays on the games that it has played."""

import json
import shutil

import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.runs import metrics
from jaxrl.runs.checkpoint_files import describe
from jaxrl.training import resume_point
from tests.conftest import recipe_file
from tests.survival import without_times

RUN = [
    "--num-envs", "4", "--env.random-start-steps", "50", "--env.engine", "atari2600",
    "--evaluation.episodes", "0", "--log.interval", "200", "--checkpoint.interval", "200",
    "--total-steps", "600",
]  # fmt: skip
WINDOWS = ["--agent.window", "3", "--agent.num-minibatches", "2"]
FLICKER = ["--env.flicker", "0.5"]


def train(path, recipe, game, devices, *more):
    config = ["--config", str(recipe_file(recipe)), "--game", game]
    arguments = ["train", *config, *RUN, "--parallel.num-devices", str(devices), *more]
    assert main([*arguments, "--run-dir", str(path)]) == 0


def cut(path, copy):
    """A copy as a kill after the first checkpoint would leave it."""
    shutil.copytree(path, copy)
    for step in ("400", "600"):
        shutil.rmtree(copy / "checkpoints" / step)
    return copy


def assert_continues(moved, whole):
    """Checks that the ten updates after a move are those of the run that stayed.

    Another number of devices adds gradients up in another order. Later rows carry what the
    optimizer has made of that rounding (a thousandth in the next ten updates): there only the
    games are counted.
    """
    moved, whole = without_times(moved), without_times(whole)
    assert [row["step"] for row in moved] == [row["step"] for row in whole] == [200, 400, 600]
    for name, value in whole[1].items():
        # That of a critic that explains nothing yet is 1 less a ratio near 1, with its rounding.
        atol = 1e-6 if name == "value/explained_variance" else 0
        np.testing.assert_allclose(
            moved[1][name] or 0, value or 0, rtol=1e-5, atol=atol, err_msg=name
        )
    assert moved[2]["episodes"] == whole[2]["episodes"]


@pytest.mark.parametrize(
    ("recipe", "game", "devices", "more"),
    [
        ("a2c_fast", "breakout", 1, ()),
        pytest.param("a2c_fast", "catch", 1,
                     ("--env.engine", "auto", "--env.stack", "2", *FLICKER),
                     marks=pytest.mark.slow),
        pytest.param("vtrace_cpu", "pong", 1,
                     (*WINDOWS, "--parallel.groups", "2", "--parallel.order", "overlapped"),
                     marks=pytest.mark.slow),
        pytest.param("vtrace_cpu", "montezuma_revenge", 2, WINDOWS, marks=pytest.mark.slow),
    ],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.rotating(5, group="resumed")
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, capsys, recipe, game, devices, more):
    train(tmp_path / "whole", recipe, game, devices, *more)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    capsys.readouterr()
    assert main(["resume", str(resumed)]) == 0
    output = capsys.readouterr().err
    assert "resumed at step 200" in output
    assert "new games" not in output
    assert without_times(resumed) == without_times(tmp_path / "whole")
    assert [row["new_games"] for row in metrics.read(resumed)] == [1, 0, 0]
    engine = "catch" if game == "catch" else "atari2600"
    assert json.loads((resumed / "provenance.json").read_text())["engine"] == engine


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
def test_games_and_blank_frames_move_with_their_environments_to_another_number_of_devices(
    tmp_path, capsys
):
    more = ("--parallel.order", "overlapped", *FLICKER)
    train(tmp_path / "whole", "a2c_fast", "breakout", 2, *more)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    assert main(["resume", str(resumed), "--num-devices", "1"]) == 0
    assert "parameters, optimizer and games continue exactly" in capsys.readouterr().err
    assert_continues(resumed, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
def test_games_without_blank_frames_begin_again(tmp_path, capsys):
    train(tmp_path / "whole", "a2c_fast", "catch", 1, "--env.engine", "auto", *FLICKER)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    capsys.readouterr()
    assert main(["resume", str(resumed), "--override", "env.flicker=0"]) == 0
    output = capsys.readouterr().err
    assert "games of 'catch 1 flicker 1', and 'catch 1' plays: new games begin" in output


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
def test_another_engine_starts_new_games(tmp_path, capsys):
    train(tmp_path / "whole", "a2c_fast", "breakout", 1)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    capsys.readouterr()
    assert main(["resume", str(resumed), "--override", "env.engine=envpool"]) == 0
    assert "emulators cannot be saved: new games begin" in capsys.readouterr().err
    shutil.rmtree(resumed / "checkpoints" / "600")
    assert main(["resume", str(resumed), "--override", "env.engine=atari2600"]) == 0
    output = capsys.readouterr().err
    assert "the checkpoint holds no games of this emulator: new games begin" in output
    assert [row["new_games"] for row in metrics.read(resumed) if "new_games" in row] == [1, 1, 1]


def test_games_of_another_version_are_named():
    output = resume_point._why_new_games("atari2600 1", "atari2600 2")
    assert output.endswith(" games of 'atari2600 1', and 'atari2600 2' plays: new games begin")


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
def test_games_that_ended_before_new_ones_began_never_count_for_the_best_checkpoint(tmp_path):
    catch = ("--env.engine", "auto", "--parallel.order", "overlapped")
    train(tmp_path / "whole", "a2c_fast", "catch", 1, *catch)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    before = describe(resumed, 200).progress.episodes
    assert before > 0
    assert main(["resume", str(resumed), "--override", "parallel.order=strict"]) == 0
    assert describe(resumed, 600).progress.ended_before == before
    assert main(["resume", str(resumed), "--override", "total_steps=800"]) == 0
    assert describe(resumed, 800).progress.ended_before == before


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
@pytest.mark.parametrize("devices", [1, 2])
def test_a_step_under_way_is_not_taken_over_by_another_order(tmp_path, capsys, devices):
    train(tmp_path / "whole", "a2c_fast", "breakout", 1, "--parallel.order", "overlapped")
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    capsys.readouterr()
    arguments = ["--override", "parallel.order=strict", "--num-devices", str(devices)]
    assert main(["resume", str(resumed), *arguments]) == 0
    assert "new games begin" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.rotating(6, group="atari resume")
def test_games_of_catch_move_to_another_number_of_devices(tmp_path, capsys):
    catch = ("--env.engine", "auto")
    train(tmp_path / "whole", "a2c_fast", "catch", 2, *catch)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    assert main(["resume", str(resumed), "--num-devices", "1"]) == 0
    assert "parameters, optimizer and games continue exactly" in capsys.readouterr().err
    assert_continues(resumed, tmp_path / "whole")
