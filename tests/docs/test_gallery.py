"""docs/gallery.md shows the policies of the package, which come from recorded runs."""

import json
import shutil
from pathlib import Path

import pytest

from jaxrl.errors import UserError
from jaxrl.policies import policies
from jaxrl.runs import evaluation_record, layout
from jaxrl.runs.directory import load_config
from jaxrl.runs.files import read_object
from jaxrl.runs.paths import run_dir_of
from tools import gallery, score_tables
from tools.pages import marked_section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / gallery.PAGE).read_text(encoding="utf-8")


def test_the_page_shows_the_scores_of_the_package():
    assert marked_section(PAGE, "policies", gallery.table()) == PAGE
    for name in policies():
        assert (ROOT / gallery.FILMS / f"{name}.gif").is_file()
        assert f"jaxrl play {name} " in policies()[name].with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(policies()))
def test_a_policy_comes_from_a_recorded_run_and_is_small(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert policies()[name].stat().st_size < gallery.MOST_BYTES
    run_dir = run_dir_of(Path(name))
    provenance = read_object(run_dir / layout.PROVENANCE)
    words = provenance["command"].split()
    recorded = Path(words[words.index("--run-dir") + 1]).name
    run = gallery.recorded(recorded, provenance["started"])
    assert read_object(run / layout.PROVENANCE) == provenance
    last = json.loads((run / layout.METRICS).read_text("utf-8").splitlines()[-1])
    results = evaluation_record.read_all(run_dir)
    assert results.keys() == evaluation_record.PROTOCOLS.keys()
    for result in results.values():
        assert (result.step, result.episodes) == (last["step"], gallery.EPISODES)


@pytest.mark.parametrize("page", ["docs/reference/api.md", "notebooks/using_a_policy.ipynb"])
def test_the_examples_with_pongs_policy_name_the_frames_that_it_sees(page):
    env = load_config(run_dir_of(Path("pong"))).env
    shape = f"uint8[{env.frame_height}, {env.frame_width}, {env.stack}]"
    assert f"{shape}, the oldest f" in (ROOT / page).read_text("utf-8")


def test_the_policies_of_trials_are_those_that_the_page_names():
    trial = score_tables.trial_of(ROOT / score_tables.TRIALS, score_tables.TRIED)
    noop = {row[0]: row[-1] for row in trial["rows"] if row[-1] != ""}
    rows = {
        "seaquest": "Seaquest, the same with 4 epochs and an entropy bonus that falls to 0",
        "space_invaders": "Space Invaders, ppo_fast with the NIPS network, 10,000,000 steps",
    }
    runs = {path.name.split("-")[1]: path for path in (ROOT / gallery.RUNS / "policies").iterdir()}
    assert runs.keys() - rows.keys() == {"boxing", "ms_pacman"}
    for game, row in rows.items():
        assert round(read_object(runs[game] / layout.EVALUATION)["mean"], 1) == noop[row]
    v_trace = "Seaquest, vtrace_fast"  # all else on Seaquest is of PPO
    for game, others in (("Space Invaders", noop), ("Seaquest", noop.keys() - {v_trace})):
        best = max((row for row in others if row.startswith(game)), key=noop.__getitem__)
        assert best in rows.values()
    said = (
        "Those are, by the noop games, the best run on Space Invaders, and on Seaquest the best "
        f"of PPO; V-trace's, with {noop[v_trace]:,.0f} points, was not kept."
    )
    assert noop[v_trace] > noop[rows["seaquest"]]
    assert said in " ".join(PAGE.split())


@pytest.mark.slow
@pytest.mark.rotating(4, group="examples")
def test_the_policy_of_a_recorded_run_is_packaged_and_filmed(trained, tmp_path, monkeypatch):
    run_dir = shutil.copytree(trained, tmp_path / "runs/a2c_fast-catch-seed1")
    monkeypatch.chdir(tmp_path)
    for name, place in (("PACKAGE", "policies"), ("FILMS", "films"), ("RUNS", "recorded")):
        (tmp_path / place).mkdir()
        monkeypatch.setattr(gallery, name, Path(place))
    with pytest.raises(UserError, match=r"'a2c_fast-catch-seed1' of .* is not in recorded"):
        gallery.package(run_dir)
    kept = json.loads((run_dir / layout.PROVENANCE).read_text("utf-8")) | {"command": "jaxrl x"}
    (tmp_path / "recorded/group" / run_dir.name).mkdir(parents=True)
    evidence = tmp_path / "recorded/group" / run_dir.name / layout.PROVENANCE
    evidence.write_text(json.dumps(kept), "utf-8")
    monkeypatch.setattr(gallery, "EPISODES", 2)
    before = sorted(run_dir.rglob("*"))
    assert gallery.package(run_dir) == "catch"
    assert sorted(run_dir.rglob("*")) == before
    packaged = run_dir_of(Path("policies/catch.safetensors"))
    assert read_object(packaged / layout.PROVENANCE)["command"] == "jaxrl x"
    results = evaluation_record.read_all(packaged)
    assert {name: result.episodes for name, result in results.items()} == {"noop": 2, "sticky": 2}
    assert "jaxrl play catch " in Path("policies/catch.md").read_text("utf-8")
    monkeypatch.setattr(gallery, "FROM_STEP", {"policies/catch.safetensors": 0})
    Path("films/policies").mkdir()
    gallery.film("policies/catch.safetensors")
    assert list(Path("films").rglob("*.gif"))
