"""Evaluations during training: they change nothing of it, and say which checkpoint is best."""

import itertools
import json
import shutil
import signal
import time
from types import SimpleNamespace

import pytest

from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.evaluation import evaluate
from jaxrl.runs import checkpoint_files, evaluation_record, layout, metrics
from jaxrl.training.evaluator import Evaluator
from tests.survival import FAST, TIMING, check_metrics, tensorboard, without_times

SHORT = [*FAST, "--num-envs", "4", "--log.interval", "200", "--total-steps", "800",
         "--checkpoint.interval", "800", "--checkpoint.keep", "1"]  # fmt: skip
DURING = ["--evaluation.interval", "300", "--evaluation.episodes", "4"]
MEANS = {400: 3.0, 600: 5.0, 800: 4.0}  # steps of lines of the log at or after 300, 600 and ...
EVALUATED = {"evaluation/mean", "evaluation/median", "evaluation/std", "evaluation/episodes"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training without evaluations and with them; their means are made up."""
    home = tmp_path_factory.mktemp("runs")
    evaluations = []
    play = evaluate.evaluate

    def made_up(config, actor, protocol, num_episodes, seed=0, step=None, give_up=None, **more):
        result = play(config, actor, protocol, num_episodes, seed, step, give_up, **more)
        evaluations.append((step, seed))
        mean = MEANS.get(step, 0.0) if give_up else result.mean
        return evaluation_record.Evaluation(**{**vars(result), "mean": mean})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "evaluate", made_up)
        without = ["--evaluation.episodes", "0"]
        assert main(["train", *SHORT, *without, "--run-dir", str(home / "without")]) == 0
        assert main(["train", *SHORT, *DURING, "--run-dir", str(home / "with")]) == 0
    return home / "without", home / "with", evaluations


@pytest.mark.slow
@pytest.mark.rotating(5, group="evaluator")
def test_training_is_the_same_with_evaluations(runs):
    without, during, _ = runs
    rows = [{k: v for k, v in row.items() if k not in EVALUATED} for row in without_times(during)]
    assert rows == without_times(without)
    assert "evaluation/seconds" in TIMING


@pytest.mark.slow
def test_the_lines_of_evaluated_steps_have_the_scores(runs):
    _, during, evaluations = runs
    rows = metrics.read(during)
    assert {row["step"] for row in rows if row.keys() >= EVALUATED} == {400, 600}
    assert [row["evaluation/mean"] for row in rows if "evaluation/mean" in row] == [3.0, 5.0]
    assert rows[1]["evaluation/episodes"] == 4
    assert [step for step, _ in evaluations] == [400, 600, 800]
    seeds = [seed for _, seed in evaluations]
    assert len(set(seeds)) == 3  # each plays other games
    assert seeds[-1] == 0  # that at the end
    check_metrics(during)
    tags = {tag for _, values in tensorboard(during) for tag in values}
    assert tags >= EVALUATED


@pytest.mark.slow
def test_time_of_evaluations_is_no_time_of_training(runs):
    rows = metrics.read(runs[1])
    for before, row in itertools.pairwise(rows):
        waited = row.get("evaluation/seconds", 0.0)
        wall = row["wall_seconds"] - before["wall_seconds"]
        assert row["seconds"] - before["seconds"] <= wall - waited + 0.5


@pytest.mark.slow
def test_the_best_checkpoint_is_that_of_the_best_evaluation(runs):
    _, during, _ = runs
    assert checkpoint_files.steps(during) == [600, 800]
    assert checkpoint_files.best(during) == 600
    ranked = json.loads((during / "checkpoints/600/metrics/metrics").read_text())
    assert ranked == {"return_mean": 5.0, "evaluated": 1.0}
    assert main(["evaluate", str(during), "--checkpoint", "best", "--episodes", "2"]) == 0
    assert evaluation_record.read(during).step == 600


@pytest.mark.slow
@pytest.mark.rotating(5, group="evaluator")
def test_a_resumed_run_knows_the_best_before(runs, tmp_path, capsys):
    run_dir = shutil.copytree(runs[1], tmp_path / "x")
    more = ["--override", "total_steps=1200"]  # Catch pays at most 1
    assert main(["resume", str(run_dir), *more]) == 0
    assert "step 1,000: evaluated 4 games" in capsys.readouterr().err
    assert checkpoint_files.best(run_dir) == 600
    assert 1000 not in checkpoint_files.steps(run_dir)  # that of a lower mean is not saved
    rows = metrics.read(run_dir)
    steps = [row["step"] for row in rows if "evaluation/mean" in row]
    assert steps == [400, 600, 1000, 1200]


@pytest.fixture
def stop_in(monkeypatch, tmp_path):
    """Trains until a signal comes during the evaluation of a step; returns the run's directory."""
    run_dir = tmp_path / "x"
    play = evaluate.evaluate

    def train(stopped):
        def made_up(config, actor, protocol, num_episodes, seed=0, step=None, give_up=None, **more):
            if step == stopped and not (tmp_path / "stopped").exists():
                (tmp_path / "stopped").touch()
                signal.raise_signal(signal.SIGUSR1)
                while not give_up():
                    time.sleep(0.01)
            result = play(config, actor, protocol, num_episodes, seed, step, give_up, **more)
            mean = MEANS.get(step, 0.0) if give_up else result.mean
            return evaluation_record.Evaluation(**{**vars(result), "mean": mean})

        monkeypatch.setattr(evaluate, "evaluate", made_up)
        status = main(["train", *SHORT, *DURING, "--run-dir", str(run_dir)])
        assert status == 128 + signal.SIGUSR1
        assert [row["step"] for row in metrics.read(run_dir)] == list(range(200, stopped, 200))
        assert checkpoint_files.steps(run_dir)[-1] == stopped
        return run_dir

    return train


@pytest.mark.slow
@pytest.mark.rotating(5, group="evaluator")
@pytest.mark.parametrize("stopped", [400, 600])
def test_a_run_that_is_stopped_in_an_evaluation_ends_as_one_that_is_not(runs, stop_in, stopped):
    """Its line is owed: the resumed session evaluates the same policy, and writes the same line."""
    run_dir = stop_in(stopped)
    assert main(["resume", str(run_dir)]) == 0
    assert without_times(run_dir) == without_times(runs[1])
    check_metrics(run_dir)
    # The checkpoint of 600 was written before its evaluation ended.
    assert checkpoint_files.best(run_dir) == (600 if stopped == 400 else 400)


@pytest.mark.slow
@pytest.mark.rotating(5, group="evaluator")
def test_an_owed_line_that_was_written_before_a_kill_counts_once(runs, stop_in):
    """The checkpoint still has the sums of its updates."""
    run_dir = stop_in(400)
    with (run_dir / layout.METRICS).open("a") as log:
        log.write(json.dumps(metrics.read(runs[1])[1]) + "\n")
    assert main(["resume", str(run_dir)]) == 0
    assert without_times(run_dir) == without_times(runs[1])


@pytest.mark.slow
@pytest.mark.rotating(5, group="evaluator")
def test_an_owed_line_is_written_also_where_evaluations_end(runs, stop_in):
    run_dir = stop_in(400)
    override = ["--override", "evaluation.interval=0", "evaluation.episodes=0"]
    assert main(["resume", str(run_dir), *override]) == 0
    assert without_times(run_dir) == without_times(runs[0])


def test_a_run_that_is_stopped_between_lines_evaluates_at_the_next_one(tmp_path, monkeypatch):
    """The interval of 500 has passed at the checkpoint of 560; it counts at the line of 600."""
    rows = [{"step": step, "frames": 4 * step, "seconds": 1.0} for step in (200, 400)]
    tmp_path.joinpath(layout.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = Config().replaced(evaluation={"interval": 500})
    evaluator = Evaluator(SimpleNamespace(config=config, run_dir=tmp_path), step=560)
    monkeypatch.setattr(evaluator, "_evaluate", lambda actor, step: {"evaluation/mean": 2.0})
    assert evaluator.evaluate_if_due(None, 600)["evaluation/mean"] == 2.0
    assert evaluator.is_best
    assert evaluator.evaluate_if_due(None, 800) == {}  # the next is due at 1,000


@pytest.mark.slow
def test_a_signal_ends_an_evaluation(runs):
    config, actor, _ = evaluate.load_actor(runs[0], None)
    with pytest.raises(evaluate.GaveUpError):
        evaluate.evaluate(config, actor, "noop", 2, give_up=lambda: True)


@pytest.mark.slow
def test_an_evaluation_shows_how_many_games_have_ended(runs):
    config, actor, _ = evaluate.load_actor(runs[0], None)
    ended = []
    evaluate.evaluate(config, actor, "noop", 2, show=ended.append)
    assert ended[-1] == 2


def test_an_interval_without_games_is_refused(capsys, tmp_path):
    words = ["--evaluation.interval", "100", "--evaluation.episodes", "0"]
    assert main(["train", *FAST, *words, "--run-dir", str(tmp_path / "x")]) == 2
    assert "evaluation.episodes = 0 leaves evaluations out" in capsys.readouterr().err
    assert not (tmp_path / "x" / layout.CONFIG).exists()
