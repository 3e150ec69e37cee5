"""A policy as one file: whole, safe to read, and taken wherever a run is."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import jaxrl
from jaxrl.analysis.groups import distinct_names
from jaxrl.analysis.policy_card import card
from jaxrl.analysis.report import reader
from jaxrl.cli.main import main
from jaxrl.cli.policies import _evaluate_again
from jaxrl.config.diff import flat
from jaxrl.config.toml import load_recipe
from jaxrl.errors import DamagedError, UserError
from jaxrl.evaluation import evaluate
from jaxrl.evaluation.evaluate import load_actor
from jaxrl.evaluation.policy import load_policy
from jaxrl.policies import policies
from jaxrl.runs import evaluation_record, layout, metrics, policy_file
from jaxrl.runs.directory import load_config
from jaxrl.runs.paths import expand, is_policy, run_dir_of
from jaxrl.types import ActorState
from tests.runs.test_files import growing_to


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A run with two evaluations, and its policy."""
    run_dir = shutil.copytree(trained, tmp_path_factory.mktemp("runs") / "x")
    for protocol, mean in (("noop", 0.5), ("sticky", -1.0)):
        scores = np.full(3, mean)
        evaluation_record.write(
            run_dir,
            evaluation_record.summarize("catch", protocol, 400, scores, np.full(3, 6)),
        )
    assert main(["export", str(run_dir), str(run_dir.parent / "catch.safetensors")]) == 0
    return run_dir, run_dir.parent / "catch.safetensors"


def rewritten(path, target, **changes):
    """A copy with other texts or arrays, and without a checksum as older files."""
    with safe_open(path, framework="numpy") as file:
        texts = file.metadata()
    texts.pop(policy_file.CHECKSUM)
    table = load_file(path)
    for name, value in changes.items():
        part = texts if isinstance(value, str) else table
        part.pop(name) if value is None else part.update({name: value})
    save_file(table, target, texts)
    return target


def test_the_file_gives_the_policy_back(exported):
    run_dir, path = exported
    config, actor, step = load_actor(run_dir, None)
    policy = load_policy(path)
    assert (policy.step, policy.config) == (step, config.replaced(run_dir=""))
    for a, b in zip(jax.tree.leaves(actor), jax.tree.leaves(policy.actor), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert path.stat().st_mode & 0o777 == 0o644


def test_commands_of_a_card_can_be_repeated(run_dir):
    text = card(run_dir, "pol [2].safetensors", 400, [])
    assert "jaxrl play 'pol [2].safetensors' " in text
    assert 'load_policy("pol [2].safetensors")' in text


@pytest.mark.parametrize("size", [100, 20_000])  # the card does not fit, or the policy
def test_without_room_there_is_neither_policy_nor_card(size, exported, tmp_path, capsys):
    run_dir, _ = exported
    with growing_to(size):
        assert main(["export", str(run_dir), str(tmp_path / "y.safetensors")]) == 74
    assert capsys.readouterr().err.endswith("File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_the_file_holds_what_is_known_of_the_run(exported):
    run_dir, path = exported
    unpacked = run_dir_of(path)
    assert unpacked == run_dir_of(path)  # once
    for protocol in ("noop", "sticky"):
        result = evaluation_record.read(unpacked, protocol)
        assert result == evaluation_record.read(run_dir, protocol)
    assert evaluation_record.read(unpacked).protocol == "noop"  # as in training
    for name in (layout.METRICS, layout.PROVENANCE):
        lines = [(folder / name).read_text() for folder in (run_dir, unpacked)]
        assert json.loads(lines[0].splitlines()[0] if name == layout.METRICS else lines[0]) == (
            json.loads(lines[1].splitlines()[0] if name == layout.METRICS else lines[1])
        )
    assert (run_dir / layout.METRICS).read_text().count("\n") == 2
    assert (unpacked / layout.METRICS).read_text().count("\n") == 2


def test_evaluations_of_other_steps_are_left_out(exported, tmp_path, capsys):
    run_dir = shutil.copytree(exported[0], tmp_path / "x")
    scores = np.ones(3)
    evaluation_record.write(
        run_dir, evaluation_record.summarize("catch", "noop", 200, scores, np.full(3, 6))
    )
    shutil.rmtree(run_dir / layout.EVALUATIONS / "sticky.json", ignore_errors=True)
    (run_dir / layout.EVALUATIONS / "sticky.json").unlink()
    assert main(["export", str(run_dir), str(tmp_path / "y.safetensors")]) == 0
    assert "no evaluation is of step 400" in capsys.readouterr().err
    assert evaluation_record.read_all(run_dir_of(tmp_path / "y.safetensors")) == {}
    assert "It has not been evaluated." in (tmp_path / "y.md").read_text()


def test_long_logs_are_thinned_but_for_lines_that_say_more(exported, tmp_path, monkeypatch):
    """Every fourth of 11 lines, the last, a resume's, the one before it, and an evaluation's."""
    monkeypatch.setattr(policy_file, "MOST_LINES", 3)
    run_dir = shutil.copytree(exported[0], tmp_path / "x")
    _, actor, step = load_actor(run_dir, None)
    more = {0: {"compile_seconds": 1.0}, 6: {"compile_seconds": 1.0}, 7: {"evaluation/mean": 0.5}}
    rows = [
        {"step": 40 * n, "frames": 160 * n, "seconds": n, "episodes": n} | more.get(n, {})
        for n in range(11)
    ]
    (run_dir / layout.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    policy_file.write(tmp_path / "x.safetensors", run_dir, actor, step, {})
    thinned = metrics.read(run_dir_of(tmp_path / "x.safetensors"))
    assert [row["seconds"] for row in thinned] == [0, 4, 5, 6, 7, 8, 10]


def test_the_card_says_what_the_policy_is(exported):
    run_dir, path = exported
    card = path.with_suffix(".md").read_text()
    assert "trained on catch with a2c for 400 agent steps" in card
    assert "| noop | 3 | 0.5 | 0.0 | 0.5 | - |" in card
    assert "| sticky | 3 | -1.0 |" in card
    assert "jaxrl play catch.safetensors" in card
    settings = flat(load_config(run_dir).__dict__)
    assert f"num_envs = {settings['num_envs']}" in card
    assert str(run_dir) not in card


def test_a_policy_of_half_the_size_has_the_scores_of_its_rounded_parameters(exported, tmp_path):
    run_dir, path = exported
    target = tmp_path / "half.safetensors"
    assert main(["export", str(run_dir), str(target), "--half"]) == 0
    whole, half = load_policy(path), load_policy(target)
    for a, b in zip(
        jax.tree.leaves(whole.actor.params), jax.tree.leaves(half.actor.params), strict=True
    ):
        assert b.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(a).astype(np.float16), b)
    sizes = [sum(x.nbytes for x in load_file(file).values()) for file in (path, target)]
    assert sizes[1] < 0.52 * sizes[0]
    for protocol in ("noop", "sticky"):
        found = evaluation_record.read(run_dir_of(target), protocol)
        assert found == half.evaluate(protocol, episodes=3)
        assert f"| {protocol} | 3 | {found.mean:.1f} |" in target.with_suffix(".md").read_text()
    assert "Its parameters are float16" in target.with_suffix(".md").read_text()
    assert "float16" not in path.with_suffix(".md").read_text()
    assert evaluation_record.read(run_dir, "noop").scores == [0.5] * 3  # which no game has


def test_a_value_based_policy_of_half_the_size_keeps_its_epsilon(exported, tmp_path, monkeypatch):
    played = []
    monkeypatch.setattr(evaluate, "evaluate", lambda config, *_, **__: played.append(config))
    policy = load_policy(exported[1])
    config = load_recipe(Path("dqn_fast")).replaced(game="catch")
    for epsilon in (0.125, None):
        result = evaluation_record.summarize(
            "catch", "noop", 400, np.zeros(3), np.full(3, 6), epsilon
        )
        _evaluate_again(dataclasses.replace(policy, config=config), result)
    usual = config.agent.evaluation_epsilon
    assert [config.agent.evaluation_epsilon for config in played] == [0.125, usual]
    assert usual != 0.125


def test_parameters_that_float16_cannot_hold_are_refused():
    actor = ActorState({"w": np.float32([1, 7e4])}, {"mean": np.float32([7e4])}, np.int32(0))
    with pytest.raises(UserError, match="larger than 65,504"):
        policy_file.halved(actor)
    kept = policy_file.halved(actor._replace(params={"w": np.float32([1])}))
    assert kept.statistics["mean"].dtype == np.float32


def test_nothing_is_overwritten(exported, capsys):
    run_dir, path = exported
    before = path.read_bytes()
    assert main(["export", str(run_dir), str(path)]) == 2
    assert "exists: choose another name" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert main(["export", str(run_dir), str(path.with_suffix(".pt"))]) == 2
    assert "the name must end in .safetensors" in capsys.readouterr().err


@pytest.mark.slow
def test_commands_take_the_file_like_a_run(exported, tmp_path, capsys, monkeypatch):
    run_dir, path = exported
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(path), "--recorded", "--protocol", "sticky", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == -1.0
    assert main(["evaluate", str(path), "--episodes", "2"]) == 0
    assert "2 games: mean" in capsys.readouterr().out
    assert evaluation_record.read(run_dir_of(path)).episodes == 3  # those it came with
    assert main(["play", str(path), "--max-seconds", "1"]) == 0
    assert "catch.mp4: catch after 400 steps" in capsys.readouterr().out
    assert (tmp_path / "catch.mp4").stat().st_size > 1000
    assert main(["report", str(path), str(run_dir)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "has no line yet" not in page
    assert main(["plot", str(path), "-o", "x.png"]) == 0
    capsys.readouterr()
    assert main(["plot", str(path)]) == 0
    assert capsys.readouterr().out == "catch.png\n"  # here: the file's directory is temporary
    assert (tmp_path / "catch.png").stat().st_size > 1000
    assert main(["play", str(path), "--checkpoint", "300"]) == 2
    assert "the file holds the policy of step 400" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "jaxrl policy 9"}, "its format is 'jaxrl policy 9', not 'jaxrl policy 1'"),
        ({"step": "many"}, "is not a policy of this jaxrl"),
        ({"config.toml": "game = 'pogn'\n"}, "does not fit its configuration|unknown game"),
        ({"config.toml": "]"}, "is not valid TOML"),
        ({"updates": None}, "it has no 'updates'"),
        ({"updates": np.zeros(3, np.int32)}, r"'updates' has shape \(3,\), not \(\)"),
        ({"updates": np.zeros((), np.float32)}, "'updates' is float32, not int32"),
    ],
)  # fmt: skip
def test_other_files_are_refused(exported, tmp_path, changes, message):
    path = rewritten(exported[1], tmp_path / "x.safetensors", **changes)
    with pytest.raises(UserError, match=message):
        load_policy(path)


def test_a_file_that_was_replaced_is_read_evaluate_again(exported, tmp_path):
    """In one process, as a notebook: the new policy, not the first that had this name."""
    path = rewritten(exported[1], tmp_path / "x.safetensors")
    first = run_dir_of(path)
    assert load_policy(path).step == 400
    rewritten(exported[1], path, step="500")
    assert load_policy(path).step == 500
    assert run_dir_of(path) != first


def test_damaged_files_are_refused_in_one_line(exported, tmp_path, capsys):
    whole = exported[1].read_bytes()
    path = tmp_path / "x.safetensors"
    for damaged in (whole[:1000], b"", b"\xff" * 64, whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert main(["play", str(path)]) == 65
        assert re.fullmatch("jaxrl: the policy .* is damaged .*\n", capsys.readouterr().err)
    path.unlink()
    assert main(["play", str(path)]) == 2
    assert "it is not a file" in capsys.readouterr().err


def test_a_file_that_has_changed_since_it_was_written_is_refused(exported, tmp_path):
    """A flipped bit of a parameter, and an edited text."""
    path = tmp_path / "x.safetensors"
    whole = exported[1].read_bytes()
    for changed in (whole[:-1] + bytes([whole[-1] ^ 1]), whole.replace(b'"episodes', b'"epizodes')):
        assert changed != whole
        path.write_bytes(changed)
        with pytest.raises(DamagedError, match=r"is damaged .it is not what was written"):
            load_policy(path)
    with safe_open(exported[1], framework="numpy") as file:
        texts = file.metadata()
    save_file(load_file(exported[1]), path, texts)
    assert load_policy(path).step == 400
    save_file(load_file(exported[1]), path, texts | {policy_file.CHECKSUM: "0"})
    with pytest.raises(DamagedError):
        load_policy(path)


def test_policies_that_come_with_jaxrl_have_checksums():
    for path in policies().values():
        with safe_open(path, framework="numpy") as file:
            assert file.metadata()[policy_file.CHECKSUM] == policy_file.checksum(
                load_file(path), file.metadata()
            )


def test_texts_of_other_names_lead_nowhere(exported, tmp_path):
    path = rewritten(exported[1], tmp_path / "x.safetensors", **{"../../evil": "?", "lock": "?"})
    unpacked = run_dir_of(path)
    names = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*")}
    assert names <= {*policy_file.TEXTS, layout.EVALUATIONS, layout.POLICY}
    assert not list(unpacked.parent.parent.glob("**/evil"))


def test_an_export_into_the_run_leaves_its_checkpoints_in_charge(trained, tmp_path):
    """Not that file, which further training does not change: `policy.safetensors` above all."""
    run_dir = shutil.copytree(trained, tmp_path / "x")
    for name in ("policy.safetensors", "x.safetensors"):
        assert main(["export", str(run_dir), str(run_dir / name)]) == 0
    assert not is_policy(run_dir)
    shutil.rmtree(run_dir / layout.CHECKPOINTS / "400")
    with pytest.raises(UserError, match="x' has no checkpoint yet"):
        load_policy(run_dir)
    assert load_policy(run_dir / "policy.safetensors").step == 400


def test_a_policy_is_called_as_the_user_named_it(exported, tmp_path, monkeypatch, capsys):
    """Not by the temporary directory into which its file is unpacked."""
    run_dir, path = exported
    monkeypatch.chdir(tmp_path)
    shutil.copy(path, "x.safetensors")
    (tmp_path / "a").mkdir()
    shutil.copy(path, "a/x.safetensors")
    assert main(["compare", "x.safetensors", "a/x.safetensors"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("x.safetensors against a/x.safetensors\n")
    assert "jaxrl-" not in output
    assert main(["compare", "x.safetensors", str(run_dir), "--protocol", "noop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["x.safetensors", str(run_dir)]
    arguments = ["evaluate", "x.safetensors", "a/x.safetensors", "--recorded", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)["evaluations"]
    assert [entry["run"] for entry in result] == ["x.safetensors", "a/x.safetensors"]
    assert distinct_names([run_dir_of(Path(word)) for word in arguments[1:3]]) == [
        f"{tmp_path.name}/x.safetensors",
        "a/x.safetensors",
    ]
    unknown = {"config.toml": "algorithm = 'absent'\n"}
    rewritten(path, tmp_path / "x.safetensors", **unknown)
    refused = "'x.safetensors/config.toml': algorithm = 'absent': jaxrl has none of this name"
    for command in ("play", "evaluate"):
        assert main([command, "x.safetensors"]) == 2
        assert capsys.readouterr().err.startswith(f"jaxrl: {refused}")
    with pytest.raises(UserError, match=f"^{refused}"):
        load_policy("x.safetensors")
    (other,) = reader.read([run_dir_of(Path("x.safetensors"))])
    assert not any(str(run_dir_of(Path("x.safetensors"))) in entry for entry in other.warnings)
    rewritten(path, tmp_path / "y.safetensors", updates=None)
    with pytest.raises(UserError, match=r"^'y\.safetensors' does not fit its configuration"):
        load_policy("y.safetensors")
    rewritten(path, tmp_path / "z.safetensors", **{"metrics.jsonl": "1\n"})
    with pytest.raises(UserError, match=r"'z\.safetensors/metrics\.jsonl'"):
        jaxrl.load_runs("z.safetensors")


def test_a_policy_stands_among_runs(exported):
    run_dir, path = exported
    assert expand([path, run_dir]) == (run_dir_of(path), run_dir)
