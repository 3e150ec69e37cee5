"""`jaxrl evaluate` of several runs, `jaxrl compare`: from evaluations that are there."""

import dataclasses
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import jaxrl
from jaxrl.analysis.groups import runs_by_configuration
from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, evaluation_record, layout
from jaxrl.runs.checkpoint_files import lacks_checkpoints
from jaxrl.runs.directory import write_config
from jaxrl.runs.evaluation_record import Conditions
from jaxrl.runs.paths import expand
from tests.conftest import recipe_file

# Scores of Pong at which a run is at 0, 1 and 2 humans: -20.7 is random play, 14.6 a human.
RANDOM, HUMAN, TWICE = -20.7, 14.6, 49.9


def evaluated(
    place: Path, recipe: str, game: str, seed: int, mean: float, protocol: str = "noop", **keys
) -> Path:
    """A run directory with a configuration and an evaluation of three games."""
    place.mkdir()
    loaded = load(recipe_file(recipe))
    config = loaded.replaced(game=game, seed=seed, run_dir=str(place), **keys)
    write_config(place, config)
    played = np.array([mean - 1, mean, mean + 1])
    evaluation_record.write(
        place, evaluation_record.summarize(game, protocol, 1000, played, np.array([9, 9, 9]))
    )
    return place


@pytest.fixture
def four(tmp_path):
    """Two configurations of two seeds each."""
    means = {"a2c_fast": (RANDOM, HUMAN), "vtrace_cpu": (HUMAN, TWICE)}
    return [
        evaluated(tmp_path / f"{recipe}-{seed}", recipe, "pong", seed, mean)
        for recipe, seeds in means.items()
        for seed, mean in enumerate(seeds)
    ]


def test_several_runs_are_aggregated_by_configuration(four, capsys, tmp_path):
    assert main(["evaluate", *map(str, four), "--recorded", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["protocol"] == "noop"
    assert [e["run"] for e in result["evaluations"]] == [str(run) for run in four]
    a2c, vtrace = result["aggregates"]["a2c"], result["aggregates"]["vtrace"]
    assert (a2c["games"], a2c["seeds"]) == (["pong"], {"pong": 2})
    np.testing.assert_allclose([a2c["mean"]["value"], vtrace["mean"]["value"]], [0.5, 1.5])
    np.testing.assert_allclose([a2c["mean"]["low"], a2c["mean"]["high"]], [0, 1], atol=1e-9)
    np.testing.assert_allclose(a2c["optimality_gap"]["value"], 0.5)
    assert "a2c: intervals of fewer than 5 seeds are too narrow" in result["warnings"]
    picture = tmp_path / "picture.png"
    assert main(["evaluate", *map(str, four), "--recorded", "--output", str(picture)]) == 0
    output = capsys.readouterr().out
    assert "protocol noop (up to 30 no-ops at the start, no sticky actions)" in output
    assert "0.50 [0.00, 1.00]" in output
    assert output.count("mean 14.6") == 2
    assert main(["evaluate", str(four[0]), "--recorded", "--protocol", "sticky"]) == 2
    assert "was evaluated by protocol noop: run `jaxrl evaluate" in capsys.readouterr().err
    image = matplotlib.image.imread(picture)
    assert image.std() > 0.05


def test_a_sweep_stands_for_its_runs_and_logs_beside_them_for_nothing(tmp_path, capsys):
    root = tmp_path / "sweep"
    root.mkdir()
    (root / "sweep.json").write_text("[]")
    for command in (["compare"], ["plot", "-o", str(tmp_path / "x.png")], ["report"]):
        assert main([*command, str(root)]) == 2
        assert "has no run yet: wait for its first member" in capsys.readouterr().err
    (root / "a2c_fast.toml").write_text("")
    members = [evaluated(root / f"a2c_fast-pong-seed{n}", "a2c_fast", "pong", n, n) for n in (1, 2)]
    logs = [member.with_name(f"{member.name}.log") for member in members]
    for log in logs:
        log.write_text("trained")
    for words in ([root], [*members, *logs]):
        assert main(["compare", *map(str, words)]) == 0
        assert f"{members[0]} against {members[1]}" in capsys.readouterr().out
        assert main(["evaluate", *map(str, words), "--recorded"]) == 0
        assert f"{members[1]}: pong" in capsys.readouterr().out
    assert main(["compare", *map(str, logs)]) == 2
    assert "compare needs at least two run directories" in capsys.readouterr().err


@pytest.mark.slow
def test_the_young_runs_of_a_folder_are_left_out_and_named(tmp_path, capsys):
    """A member that compiles has a configuration, and neither a line nor a checkpoint."""
    old, young = (
        evaluated(tmp_path / f"a2c-pong-seed{n}", "a2c_fast", "pong", n, n) for n in (1, 2)
    )
    picture = ["-o", str(tmp_path / "x.png")]
    assert main(["plot", str(tmp_path), *picture]) == 2
    assert f"is ready; '{old.name}': no metrics.jsonl yet" in capsys.readouterr().err
    line = {"step": 1, "frames": 4, "seconds": 1.0, "return_mean": 2.0}
    (old / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    for command in (["plot", *picture], ["report", "-o", str(tmp_path / "x.html")]):
        assert main([*command, str(tmp_path)]) == 0
        assert capsys.readouterr().err.startswith(
            f"jaxrl: left out '{young.name}': no metrics.jsonl yet\n"
        )
        assert main([*command, str(young)]) == 2  # where it is named itself
        assert "is no run directory: it has no metrics.jsonl" in capsys.readouterr().err
    assert list(jaxrl.load_runs(tmp_path)["run"]) == [old.name]
    (old / "checkpoints" / "1").mkdir(parents=True)
    (young / "checkpoints").mkdir()
    assert expand([tmp_path], lacks_checkpoints) == (old,)
    with pytest.raises(UserError, match=f"'{young}' has no checkpoint yet"):
        checkpoint_files.newest_good(young, None)


def test_a_single_recorded_evaluation_is_printed_again(four, capsys):
    assert main(["evaluate", str(four[0]), "--recorded"]) == 0
    assert capsys.readouterr().out.startswith("pong after 1,000 steps, protocol noop")
    assert main(["evaluate", str(four[0]), "--recorded", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == RANDOM


def test_games_without_a_human_score_are_left_out_and_named(tmp_path, capsys):
    catch = evaluated(tmp_path / "catch", "a2c_fast", "catch", 1, 0.5)
    pong = evaluated(tmp_path / "pong", "a2c_fast", "pong", 1, HUMAN)
    assert main(["evaluate", str(catch), str(pong), "--recorded", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["aggregates"]["a2c"]["games"] == ["pong"]
    assert result["aggregates"]["a2c"]["mean"] == {"value": 1.0, "low": None, "high": None}
    assert any("no human score is published of catch" in w for w in result["warnings"])
    other = evaluated(tmp_path / "other", "a2c_fast", "catch", 2, 0.5)
    assert main(["evaluate", str(catch), str(other), "--recorded"]) == 0
    assert "nothing to aggregate" in capsys.readouterr().out


def test_scores_of_two_protocols_are_not_mixed(tmp_path, capsys):
    noop = evaluated(tmp_path / "a", "a2c_fast", "pong", 1, HUMAN)
    sticky = evaluated(tmp_path / "b", "a2c_fast", "pong", 2, HUMAN, protocol="sticky")
    assert main(["compare", str(noop), str(sticky)]) == 2
    assert "different protocols cannot be compared" in capsys.readouterr().err
    assert main(["evaluate", "--recorded", str(noop), str(sticky)]) == 2
    assert "different protocols cannot be compared" in capsys.readouterr().err
    assert main(["evaluate", "--recorded", "--protocol", "noop", str(noop), str(sticky)]) == 2
    assert "was evaluated by protocol sticky" in capsys.readouterr().err
    sticks = dataclasses.replace(evaluation_record.read(noop), protocol="sticky")
    evaluation_record.write(noop, sticks)  # beside the first
    assert evaluation_record.read(noop) == sticks
    assert evaluation_record.read(noop, "noop").protocol == "noop"
    assert list(evaluation_record.read_all(noop)) == ["noop", "sticky"]
    assert list(evaluation_record.read_all(sticky)) == ["sticky"]
    assert main(["compare", str(noop), str(sticky), "--protocol", "sticky"]) == 0


def test_two_runs_are_compared_game_by_game(tmp_path, capsys):
    low = evaluated(tmp_path / "low", "a2c_fast", "pong", 1, 0.0)
    high = evaluated(tmp_path / "high", "a2c_fast", "pong", 2, 10.0)
    assert main(["compare", str(low), str(high), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["difference"]["value"] == -10
    # Welch: s² = 1 and n = 3 on both sides, so 4 degrees of freedom: 2.776 · √(2/3) = 2.27
    np.testing.assert_allclose(result["difference"]["high"], -10 + 2.267, atol=1e-3)
    assert result["probability_of_improvement"]["value"] == 0
    assert result["better"] == str(high)
    near = evaluated(tmp_path / "near", "a2c_fast", "pong", 3, 0.5)
    assert main(["compare", str(low), str(near)]) == 0
    output = capsys.readouterr().out
    assert "mean 0.00 against 0.50 points: difference -0.50 [" in output
    # -1 and 0 and 1 against -0.5, 0.5, 1.5: 0 > -0.5, 1 > -0.5, 1 > 0.5 of nine pairs
    assert "scores higher with probability 0.33" in output
    assert "which is better is unknown: the 95 % interval" in output
    assert "other seeds may turn out otherwise" in output
    assert "fewer than 10 games prove little" in output


def test_different_epsilons_are_named(four, tmp_path, capsys):
    for run_dir, epsilon in zip(four, (0.05, 0.001, 0.05, None), strict=True):
        result = dataclasses.replace(evaluation_record.read(run_dir), epsilon=epsilon)
        evaluation_record.write(run_dir, result)
    note = "evaluated with different epsilons, 0.001 to 0.05"
    for given, named in ((four[:2], True), (four, True), (four[::2], False), (four[2:], False)):
        assert main(["compare", *map(str, given)]) == 0
        assert (note in capsys.readouterr().out) == named
    assert main(["evaluate", *map(str, four), "--recorded", "--json"]) == 0
    assert note in json.loads(capsys.readouterr().out)["warnings"]


def test_few_equal_scores_say_nothing_about_chance(tmp_path, capsys):
    """Four games that all ended 21 say less than thirty that did."""
    made = [evaluated(tmp_path / str(n), "a2c_fast", "pong", n, 0.0) for n in (1, 2)]
    for number, better in ((4, None), (30, str(made[1]))):
        for run_dir, score in zip(made, (-21.0, 21.0), strict=True):
            played = np.full(number, score)
            evaluation_record.write(
                run_dir, evaluation_record.summarize("pong", "noop", 1, played, played.astype(int))
            )
        assert main(["compare", *map(str, made), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["better"] == better
        assert main(["compare", *map(str, made)]) == 0
        output = capsys.readouterr().out
        # Neither the difference nor the probability has an interval of four.
        assert output.count("[") == (0 if number == 4 else 2)


def test_conditions_are_worded_alike_everywhere(tmp_path, capsys):
    catch = [evaluated(tmp_path / f"catch-{n}", "a2c_fast", "catch", n, 0.5) for n in (1, 2)]
    pong = [evaluated(tmp_path / f"pong-{n}", "a2c_fast", "pong", n, 0.5) for n in (1, 2)]
    fire = Conditions((0, 29), True, 0, True, 0.0, False, 27_000)
    lives = "0 to 29 no-ops and FIRE at the start and after every lost life, no sticky actions"
    for run_dir in pong:
        result = dataclasses.replace(evaluation_record.read(run_dir), conditions=fire)
        evaluation_record.write(run_dir, result)
    nothing = "nothing is pressed at the start, no sticky actions"
    for runs, words in ((catch, nothing), (pong, lives)):
        for command in (["compare"], ["evaluate", "--recorded"]):
            assert main([*command, *map(str, runs)]) == 0
            assert f"protocol noop ({words})" in " ".join(capsys.readouterr().out.split())
    # Where they differ, the protocol's words hold for all.
    older = evaluated(tmp_path / "pong-3", "a2c_fast", "pong", 3, 0.5)
    assert main(["compare", str(pong[0]), str(older)]) == 0
    assert "protocol noop (up to 30 no-ops at the start, " in capsys.readouterr().out


def test_an_evaluation_of_a_later_policy_is_kept(tmp_path, capsys, monkeypatch):
    """A run may end, and be evaluated, while somebody evaluates an earlier checkpoint of it."""
    run_dir = evaluated(tmp_path / "x", "a2c_fast", "pong", 1, 0.0)  # of step 1000
    played = np.zeros(2)

    def play(step):
        result = evaluation_record.summarize("pong", "noop", step, played, np.ones(2, int))
        monkeypatch.setattr(
            "jaxrl.evaluation.evaluate.load_actor", lambda *_: (Config(), None, step)
        )
        monkeypatch.setattr("jaxrl.evaluation.evaluate.evaluate", lambda *_: result)

    play(500)
    assert main(["evaluate", str(run_dir)]) == 0
    assert "of step 500, is not saved: evaluations/noop.json is of the newer step 1,000" in (
        capsys.readouterr().err
    )
    assert evaluation_record.read(run_dir).step == 1000
    assert main(["evaluate", str(run_dir), "--checkpoint", "500"]) == 0
    assert "evaluations/noop.json had 3 games, and has 2 now" in capsys.readouterr().err
    assert evaluation_record.read(run_dir).step == 500
    play(2000)
    assert main(["evaluate", str(run_dir)]) == 0
    assert capsys.readouterr().err == ""
    assert evaluation_record.read(run_dir).step == 2000


def test_configurations_are_compared_seed_by_seed(four, capsys, tmp_path):
    assert main(["compare", *map(str, four), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["names"] == ["a2c", "vtrace"]
    np.testing.assert_allclose(result["means"], [(RANDOM + HUMAN) / 2, (HUMAN + TWICE) / 2])
    # -20.7 < both; 14.6 = 14.6, 14.6 < 49.9
    assert result["probability_of_improvement"]["value"] == 0.5 / 4
    assert result["better"] is None
    third = evaluated(tmp_path / "third", "ppo_pong", "pong", 1, HUMAN)
    assert main(["compare", *map(str, four), str(third)]) == 2
    assert "5 runs of 3 configurations (a2c; vtrace; ppo)" in capsys.readouterr().err


def test_several_games_are_compared_by_normalized_scores(tmp_path, capsys):
    """A point of Pong is worth more than one of Breakout; a game of only one is left out."""
    given = [
        ("a2c_fast", "pong", HUMAN), ("a2c_fast", "breakout", 1.7), ("a2c_fast", "boxing", 5.0),
        ("vtrace_cpu", "pong", RANDOM), ("vtrace_cpu", "breakout", 30.5),
    ]  # fmt: skip
    made = [
        evaluated(tmp_path / f"{recipe}-{game}", recipe, game, 1, mean)
        for recipe, game, mean in given
    ]
    assert main(["compare", *map(str, made), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["games"], result["unit"]) == (["breakout", "pong"], "human-normalized")
    np.testing.assert_allclose(result["means"], [0.5, 0.5])
    assert "left out, because only one has played them: boxing" in result["notes"]
    assert main(["compare", *map(str, made)]) == 0
    assert "the scores are too few for an interval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "{a}"], "compare needs at least two"),
        (["compare"], "compare needs at least two"),
        (["evaluate"], "evaluate needs at least one run directory"),
        (["compare", "{a}", "{a}"], "is given twice"),
        (["compare", "{a}", "{none}"], "is no run directory"),
        (["compare", "{a}", "{b}"], "give runs of one game"),
        (["evaluate", "{a}", "--recorded", "--output", "x.jpg"], "must end in .png"),
        (["evaluate", "{bare}", "--recorded"], "has no evaluation.json: run `jaxrl evaluate"),
    ],
)
def test_mistakes(arguments, message, tmp_path, capsys):
    places = {
        "a": evaluated(tmp_path / "a", "a2c_fast", "pong", 1, 0.0),
        "b": evaluated(tmp_path / "b", "a2c_fast", "boxing", 1, 0.0),
        "bare": evaluated(tmp_path / "bare", "a2c_fast", "boxing", 1, 0.0),
        "none": tmp_path / "none",
    }
    (places["bare"] / layout.EVALUATION).unlink()
    assert main([argument.format(**places) for argument in arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


def test_configurations_of_one_algorithm_are_named_by_what_differs(tmp_path):
    first = evaluated(tmp_path / "a", "a2c_fast", "pong", 1, 0.0, num_envs=16)
    same = evaluated(tmp_path / "b", "a2c_fast", "boxing", 2, 0.0, num_envs=16)
    other = evaluated(tmp_path / "c", "a2c_fast", "pong", 1, 0.0, num_envs=32)
    groups = runs_by_configuration([first, same, other])
    assert list(groups) == ["a2c (num_envs 16)", "a2c (num_envs 32)"]
    assert groups["a2c (num_envs 16)"] == [first, same]


def test_configurations_are_named_as_their_directories_are(tmp_path):
    swept = evaluated(tmp_path / "fast-pong-seed1", "a2c_fast", "pong", 1, 0.0)
    trained = evaluated(tmp_path / "boxing-cpu-seed2", "vtrace_cpu", "boxing", 2, 0.0)
    assert list(runs_by_configuration([swept, trained])) == ["fast", "cpu"]
