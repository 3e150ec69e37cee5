"""The directory of several seeds: what may be there, and where its runs go on."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.runs import checkpoint_files, layout, population
from jaxrl.runs.directory import load_config
from jaxrl.training import resume_point


def test_members_differ_in_seed_and_directory(tmp_path):
    config = Config(game="catch", total_steps=99)
    first, second = population.configs_of(config, (4, 2), tmp_path / "x")
    assert (first.seed, first.run_dir) == (4, str(tmp_path / "x" / "seed4"))
    base = config.with_time_limit()
    assert second == base.replaced(seed=2, run_dir=str(tmp_path / "x" / "seed2"))


@pytest.mark.parametrize(
    ("seeds", "changes", "words"),
    [
        ((3,), {}, "--seeds 3: must be two or more: one seed is --seed"),
        ((1, 2, 1), {}, "--seeds: 1 is there twice"),
        ((1, -2), {}, "--seeds: -2 must be at least 0"),
        ((1, 2**31), {}, "below 2147483648"),
        ((1, 2), {"seed": 3}, "seed = 3: --seeds names the seeds"),
        ((1, 2), {"parallel": {"sync_every": 2}}, "parallel.sync_every: the runs of --seeds"),
        ((1, 2), {"parallel": {"groups": 2}}, "parallel.groups: the runs of --seeds"),
    ],
)
def test_what_is_no_population_is_refused(seeds, changes, words):
    with pytest.raises(UserError) as refused:
        population.configs_of(Config().replaced(**changes), seeds, Path("x"))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_several_processes_are_refused():
    population.check_processes(1)
    with pytest.raises(UserError, match="--seeds: 2 processes train together"):
        population.check_processes(2)


def make(root, seeds=(1, 2)):
    """The directory of a population that has not trained, no longer locked."""
    configs = population.configs_of(Config(game="catch"), seeds, root)
    with contextlib.ExitStack() as locks:
        population.create(root, configs, locks)
    return configs


def test_a_population_lists_its_seeds(tmp_path):
    root = tmp_path / "x"
    configs = make(root)
    assert json.loads((root / layout.POPULATION).read_text()) == {"seeds": [1, 2]}
    assert population.run_dirs(root) == (root / "seed1", root / "seed2")
    assert [load_config(run_dir) for run_dir in population.run_dirs(root)] == list(configs)
    assert population.run_dirs(root / "seed2") == (root / "seed2",)
    with pytest.raises(UserError, match="holds the runs of several seeds: name one of them"):
        load_config(root)


def test_one_that_never_trained_is_taken_over(tmp_path):
    make(tmp_path / "x")
    (tmp_path / "x" / ".0123456789abcdef.tmp").touch()  # of a kill within a write
    make(tmp_path / "x")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.toml", "x' exists: choose another --run-dir"),
        ("seed3/config.toml", "x' exists: choose another --run-dir"),
        ("seed2/checkpoints/400/x", "seed2' exists: choose another --run-dir"),
    ],
)
def test_nothing_is_overwritten(tmp_path, name, words):
    path = tmp_path / "x" / name
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UserError, match=words):
        make(tmp_path / "x")


def test_one_that_trained_is_to_be_resumed(tmp_path):
    make(tmp_path / "x")
    (tmp_path / "x" / "seed2" / "checkpoints" / "400").mkdir(parents=True)
    with pytest.raises(UserError, match=r"or `jaxrl resume .*x`"):
        make(tmp_path / "x")


def test_a_list_without_seeds_says_so(tmp_path):
    (tmp_path / layout.POPULATION).write_text("{}")
    with pytest.raises(UserError, match="json': it has no 'seeds'"):
        population.run_dirs(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"seeds": 3}', '{"seeds": ["../y"]}', '{"seeds": []}'])
def test_a_damaged_list_is_named(tmp_path, text):
    (tmp_path / layout.POPULATION).write_text(text)
    with pytest.raises(UserError, match=r"cannot read .*population\.json"):
        population.run_dirs(tmp_path)


# --- where they go on ----------------------------------------------------------------------------


def common(monkeypatch, good, damaged=None, members=None):
    """Where runs go on from that have these checkpoints, saved by as many runs together."""
    names = [Path(f"seed{number}") for number in range(len(good))]
    damaged = damaged or [{} for _ in good]
    surveys = [checkpoint_files.Survey(*survey) for survey in zip(good, damaged, strict=True)]
    described = SimpleNamespace(members=members or len(good))
    monkeypatch.setattr(checkpoint_files, "describe", lambda run_dir, step: described)
    return resume_point._common(names, surveys)


@pytest.mark.parametrize(
    ("good", "step"),
    [
        ([[200, 400]], 400),
        ([[]], None),
        ([[200, 400], [200, 400]], 400),
        ([[200, 400, 600], [200, 400]], 400),  # killed while the others saved 600
        ([[], []], None),
        ([[200], []], None),  # killed during the first
    ],
)
def test_all_go_on_from_the_newest_that_all_have(good, step, monkeypatch):
    assert common(monkeypatch, good) == step


def test_steps_that_are_damaged_in_one_member_are_left_by_all(monkeypatch):
    damaged = [{}, {400: "cut", 600: "cut"}]
    assert common(monkeypatch, [[200, 400, 600], [200]], damaged) == 200


@pytest.mark.parametrize("good", [[[600, 800], [200, 400]], [[200, 400, 600], [200]]])
def test_members_without_a_common_step_are_resumed_alone(good, monkeypatch):
    with pytest.raises(UserError, match=r"seed1: 200.*resume each by its own directory"):
        common(monkeypatch, good)


@pytest.mark.parametrize("good", [[[200, 400], [200]], [[200], []]])
def test_a_member_that_trained_alone_loses_nothing(good, monkeypatch):
    with pytest.raises(UserError, match="'seed0' has trained alone, to step"):
        common(monkeypatch, good, members=1)


def test_members_of_other_settings_do_not_go_on_together():
    configs = population.configs_of(Config(), (1, 2), Path("x"))
    population.check_alike(configs)
    other = configs[1].replaced(optimizer={"learning_rate": 1e-4})
    with pytest.raises(UserError, match=r"differ in optimizer\.learning_rate: resume each by"):
        population.check_alike((configs[0], other))


def test_a_member_that_is_ahead_goes_back(tmp_path, capsys):
    for step in ("200", "400", "600"):
        (tmp_path / "checkpoints" / step).mkdir(parents=True)
    checkpoint_files.drop_newer(tmp_path, 400)
    assert checkpoint_files.steps(tmp_path) == [200, 400]
    assert "is ahead with checkpoint 600: it goes back to 400" in capsys.readouterr().err
    checkpoint_files.drop_newer(tmp_path, 400)
    assert capsys.readouterr().err == ""
