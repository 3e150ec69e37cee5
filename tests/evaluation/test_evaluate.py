"""Which games an evaluation counts, and which rows of them; where its scores go."""

import contextlib
import errno
import io
import json
import os
import shutil
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.errors import StorageError, UserError
from jaxrl.evaluation import evaluate
from jaxrl.program import episode_statistics, rollout
from jaxrl.runs import evaluation_record, layout
from jaxrl.training import finish
from jaxrl.types import ActorState, Agent, EnvEngine, EnvSpec, TimeStep

# Rows of three environments. The first loses a life, is reset within its game, ends it and plays
# another; the second is cut by the time limit; the game of the third ends within the reset after a
# lost life, so that this row begins another.
SCORE = np.array([[1, 5, 7], [2, 6, 2], [0, 0, 0], [4, 9, 5], [0, 0, 0], [8, 3, 1]], np.float32)
TERMINATED = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]], bool)
TRUNCATED = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], bool)
GAME_OVER = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]], bool)
RESET = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]], bool)
ENVS = 3


def row(t):
    frame = jnp.zeros((ENVS, 4, 4), jnp.uint8)
    rows = np.sign(SCORE), SCORE, TERMINATED, TRUNCATED, GAME_OVER, RESET
    return TimeStep(frame, *(jnp.asarray(x)[t] for x in rows))


def scripted():
    """An engine that plays these rows; its state is the number of the next one."""
    spec = EnvSpec(ENVS, 3, ("LEFT", "NOOP", "RIGHT"), "catch", (4, 4))
    return EnvEngine(
        spec, init=None, send=lambda t, action: t, recv=lambda t: (t + 1, row(t)), close=None,
        state_format="", env_ids=np.arange(ENVS)[None], render=None, check=None,
    )  # fmt: skip


def test_the_first_whole_game_of_every_environment_counts():
    agent = Agent(
        None, lambda actor, observation, key: (jnp.zeros(ENVS, jnp.int32), ()), None, None, 1
    )
    keys = jax.random.split(jax.random.key(0), ENVS)
    state = rollout.start(0, row(2), keys, episode_statistics.init(ENVS, 1, counted=True), None)
    zeros = jnp.zeros(ENVS)
    games = evaluate._FirstGames(state, zeros.astype(bool), zeros, zeros.astype(jnp.int32))
    finished = []
    for _ in range(len(SCORE)):
        games = evaluate._step(agent, scripted(), ActorState((), (), jnp.int32(0)), games)
        finished.append(games.finished.tolist())
    # A lost life ends nothing. Scores are unclipped, lengths are without the rows of resets.
    assert games.score.tolist() == [1 + 2 + 4, 5 + 6, 7 + 2]
    assert games.length.tolist() == [3, 2, 2]
    assert np.argmax(finished, axis=0).tolist() == [3, 1, 2]
    assert np.all(finished[3:])


@pytest.fixture
def scores(monkeypatch, capsys):
    """What the command plays: two games at once, and what the command printed before them."""
    warnings = []

    def play(run_dir, _):
        warnings.append(capsys.readouterr().err)
        return evaluation_record.summarize("catch", "noop", 400, np.array([1.0, -1.0]), np.ones(2))

    monkeypatch.setattr("jaxrl.cli.evaluate._played", play)
    return warnings


def file_for_a_folder(run_dir, _):
    (run_dir / layout.EVALUATIONS).write_text("")
    return "Not a directory"


def permission(_, monkeypatch):
    def refuse(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    monkeypatch.setattr("pathlib.Path.mkdir", lambda *_, **__: refuse())
    return "Permission denied"


@pytest.mark.parametrize("block", [file_for_a_folder, permission])
@pytest.mark.parametrize("as_json", [False, True])
def test_scores_of_a_run_that_may_not_be_written_are_printed(
    run_dir, scores, capsys, monkeypatch, block, as_json
):
    command = ["evaluate", str(run_dir), "--protocol", "noop", *["--json"] * as_json]
    with monkeypatch.context() as patch:
        reason = block(run_dir, patch)
        assert main(command) == StorageError.status
    assert scores[0].startswith(f"warning: '{run_dir}' cannot be written ({reason}): its scores")
    assert scores[0].count("\n") == 1
    printed, errors = capsys.readouterr()
    assert json.loads(printed)["scores"] == [1, -1] if as_json else "2 games: mean 0.0" in printed
    assert errors.startswith(f"jaxrl: the evaluation of '{run_dir}' cannot be saved: ")
    assert errors.count("\n") == 1


def test_scores_go_elsewhere(run_dir, scores, tmp_path, capsys):
    file_for_a_folder(run_dir, None)
    assert main(["evaluate", str(run_dir), "-o", str(tmp_path / "s.json")]) == 0
    assert scores == [""]
    assert json.loads((tmp_path / "s.json").read_text())["scores"] == [1, -1]
    assert capsys.readouterr().out.endswith(f"2 games: mean 0.0 (standard deviation 1.0), "
                                            f"median 0.0\n{tmp_path / 's.json'}\n")  # fmt: skip
    assert not (run_dir / layout.EVALUATION).exists()
    shutil.copytree(run_dir, tmp_path / "y")
    both = ["evaluate", str(run_dir), str(tmp_path / "y"), "--json"]
    assert main([*both, "--output", str(tmp_path / "s.json")]) == 0
    table = json.loads((tmp_path / "s.json").read_text())
    assert table == json.loads(capsys.readouterr().out)
    assert [entry["run"] for entry in table["evaluations"]] == both[1:3]
    assert not (tmp_path / "y" / layout.EVALUATION).exists()


def test_a_disk_that_fills_up_meanwhile_costs_no_scores(run_dir, scores, capsys):
    (run_dir / layout.EVALUATION).mkdir()  # no file can take its place
    assert main(["evaluate", str(run_dir), "--json"]) == StorageError.status
    assert scores == [""]
    assert json.loads(capsys.readouterr().out)["mean"] == 0


class Refusing(io.StringIO):
    """A stream that takes nothing: its reader has gone, or its disk is full."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, _):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "status"), [(errno.EPIPE, 1), (errno.ENOSPC, StorageError.status)]
)
def test_scores_that_cannot_be_printed_are_saved(run_dir, scores, monkeypatch, number, status):
    for arguments in ([], ["--output", str(run_dir.parent / "s.json")]):
        monkeypatch.setattr(sys, "stdout", Refusing(number))
        monkeypatch.setattr(sys, "stderr", io.StringIO())  # main closes it
        assert main(["evaluate", str(run_dir), *arguments]) == status
    assert evaluation_record.read(run_dir).scores == [1, -1]
    target = run_dir.parent / "s.json"
    assert json.loads(target.read_text())["scores"] == [1, -1]
    other = shutil.copytree(run_dir, run_dir.parent / "y")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    command = ["evaluate", str(run_dir), str(other), "--recorded", "--output", str(target)]
    assert main(command) == status
    assert len(json.loads(target.read_text())["evaluations"]) == 2


def test_a_file_of_scores_holds_those_of_every_run_so_far(run_dir, tmp_path, monkeypatch, capsys):
    target, played = tmp_path / "s.json", []

    def play(run_dir, _):
        played.append(json.loads(target.read_text())["evaluations"] if target.exists() else None)
        if len(played) == 3:
            raise KeyboardInterrupt
        return evaluation_record.summarize("catch", "noop", 400, np.ones(2), np.ones(2))

    monkeypatch.setattr("jaxrl.cli.evaluate._played", play)
    runs = [str(run_dir), *(str(shutil.copytree(run_dir, tmp_path / name)) for name in "yz")]
    assert main(["evaluate", *runs, "--output", str(target)]) == 130
    assert played[0] is None
    for entries, expected in zip(played[1:], (runs[:1], runs[:2]), strict=True):
        assert [entry["run"] for entry in entries] == expected
        assert all(entry["scores"] == [1, 1] for entry in entries)


def test_a_file_of_scores_that_cannot_be_written_costs_no_games(
    run_dir, scores, tmp_path, monkeypatch, capsys
):
    shutil.copytree(run_dir, tmp_path / "y")
    command = ["evaluate", str(run_dir), str(tmp_path / "y"), "--output", str(tmp_path / "s.json")]

    def refuse(path, target):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    assert main(command) == UserError.status
    assert len(scores) == 2
    assert "2 games: mean 0.0" in capsys.readouterr().out


def test_the_scores_at_the_end_of_training_are_saved_first(run_dir, monkeypatch):
    class Silent:
        def busy(self, _, announced):
            return contextlib.nullcontext()

        def say(self, _):
            raise BrokenPipeError

    result = evaluation_record.summarize("catch", "noop", 400, np.array([2.0]), np.ones(1))
    monkeypatch.setattr("jaxrl.evaluation.evaluate.evaluate", lambda *_, **__: result)
    session = types.SimpleNamespace(
        config=Config(game="catch"), run_dir=run_dir, display=Silent(), name=""
    )
    with pytest.raises(BrokenPipeError):
        finish.finish(session, jnp.zeros(1), 400)
    assert evaluation_record.read(run_dir) == result
