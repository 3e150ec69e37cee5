import json

import imageio.v2 as imageio
import jax
import pytest

from jaxrl.cli.main import main
from jaxrl.config.toml import load as load_config
from jaxrl.errors import UserError
from jaxrl.experiments import bench, tune
from jaxrl.runtime import cpus
from jaxrl.training.display import Display
from tests.conftest import catch_config

SMALL = ["--num-envs", "4", "--parallel.num-devices", "1", "--seconds", "0.1", "--repeats", "1",
         "--network.torso", "nips"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.rotating(4, group="bench")
def test_bench_measures_every_load_on_atari(capsys):
    assert main(["bench", "--game", "pong", *SMALL, "--json"]) == 0
    rates = json.loads(capsys.readouterr().out)
    assert rates["num_envs"] == 4
    for load in ("loop", "emulation", "inference", "training"):
        assert rates[load]["steps_per_second"] > 0
        assert (rates[load]["compile_seconds"] > 0) == (load != "loop")
    assert rates["bottleneck"] in rates["time_shares"]
    assert sum(rates["time_shares"].values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.rotating(4, group="bench")
def test_bench_prints_a_table_writes_a_trace_and_needs_no_emulator(tmp_path, capsys):
    assert main(["bench", "--game", "catch", *SMALL, "--profile", str(tmp_path)]) == 0
    assert list(tmp_path.rglob("*.xplane.pb"))
    said = capsys.readouterr()
    words = [line.split()[0] for line in said.out.splitlines()]
    assert [word for word in words if word != "0%:"] == [
        "load", "emulation", "inference", "training", "a", "for",
    ]  # fmt: skip
    # Off a terminal too it says what it does, before the figures are there.
    assert "training: starting and compiling" in said.err


def test_the_bottleneck_is_what_takes_longest():
    def rates(**steps_per_second):
        return {kind: bench.Rate(rate, rate, rate, 1, 0) for kind, rate in steps_per_second.items()}

    # 1 ms a step for the emulators, 1 more for choosing, 2 more for learning.
    slow = rates(emulation=1000, inference=500, training=250)
    shares = bench.time_shares(slow)
    assert list(shares.values()) == pytest.approx([0.25, 0.25, 0.5])
    assert bench.bottleneck(slow) == "learning"
    # All hidden, and faster than emulation by chance.
    assert bench.bottleneck(rates(emulation=1000, inference=1010, training=990)) == "emulators"


def test_a_sweep_draws_both_pictures(tmp_path, capsys, monkeypatch):
    def measure(config, *_):
        return dict.fromkeys(bench.LOADS, bench.Rate(config.num_envs * 10.0, 1.0, 1.0, 1.0, 1.0))

    monkeypatch.setattr(bench, "measure", measure)
    target = tmp_path / "sweep.png"
    arguments = [
        "bench",
        "--game",
        "catch",
        *SMALL[2:],
        "--parallel.groups",
        "2",
        "--sweep",
        "4",
        "8",
    ]
    assert main([*arguments, "--output", str(target), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["num_envs"] for one in found] == [4, 8]
    assert [one["training"]["steps_per_second"] for one in found] == [40, 80]
    assert imageio.imread(target).shape[1] > 1000


def test_a_sweep_that_runs_out_of_memory_draws_what_it_measured(tmp_path, capsys, monkeypatch):
    message = "RESOURCE_EXHAUSTED: Out of memory\n  on several lines"

    def make_load(plan, kind):
        if plan.config.num_envs == 8:
            raise jax.errors.JaxRuntimeError(message)
        return bench.Load(lambda steps: None, plan.config.num_envs, 1, lambda: None, 1.0)

    monkeypatch.setattr(bench, "make_load", make_load)
    monkeypatch.setattr(bench, "take_turns", lambda loads, *_: {kind: [10.0] for kind in loads})
    target = tmp_path / "sweep.png"
    arguments = ["bench", "--game", "catch", *SMALL[2:], "--output", str(target)]
    alone = [*arguments, "--num-envs", "8"]
    assert main(alone) == 2
    assert capsys.readouterr().err == "jaxrl: num_envs = 8: does not fit into memory\n"
    assert main([*arguments, "--sweep", "4", "8", "16"]) == 0
    said = capsys.readouterr()
    assert [line for line in said.out.splitlines() if "environments" in line] == ["4 environments"]
    assert "num_envs = 8: does not fit into memory" in said.err
    assert target.exists()
    target.unlink()
    assert main([*arguments, "--sweep", "8"]) == 2
    assert not target.exists()
    message = "INTERNAL: another error"
    with pytest.raises(jax.errors.JaxRuntimeError, match="another error"):
        main(alone)


def test_ctrl_c_keeps_what_a_sweep_has_measured(tmp_path, capsys, monkeypatch):
    def measure(config, *_):
        if config.num_envs == 8:
            raise KeyboardInterrupt
        return dict.fromkeys(bench.LOADS, bench.Rate(10.0, 1.0, 1.0, 1.0, 1.0))

    monkeypatch.setattr(bench, "measure", measure)
    target = tmp_path / "sweep.png"
    arguments = ["bench", "--game", "catch", *SMALL[2:], "--output", str(target), "--json"]
    assert main([*arguments, "--sweep", "4", "8"]) == 130
    said = capsys.readouterr()
    assert [one["num_envs"] for one in json.loads(said.out)] == [4]
    assert "jaxrl: stopped" in said.err
    assert target.exists()
    assert main([*arguments, "--sweep", "8"]) == 130


def test_ctrl_c_keeps_what_tune_has_found(tmp_path, capsys, monkeypatch):
    def search(config, knobs, seconds, repeats, tell, display):
        tell(tune.Trial("num_envs", 8, 1.0, 1.0))
        if repeats > 1:
            tell(tune.Trial("groups", 2, 150.0, 1.5, accepted=True))
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "search", search)
    target = tmp_path / "tuned.toml"
    arguments = ["tune", "--game", "catch", *SMALL, "--output", str(target)]
    assert main(arguments) == 130  # one turn each: nothing is kept
    assert not target.exists()
    assert main([*arguments, "--repeats", "2"]) == 130
    assert load_config(target).parallel.groups == 2
    text, said = target.read_text(), capsys.readouterr().out.splitlines()
    assert "# stopped before all was tried" in text
    assert said[:-1] == [
        "num_envs = 4: stays, nothing was 3 % faster: 8 came nearest with 1.00 times its speed",
        "groups = 2: kept, 1.50 times as fast as 1",
        "num_threads = 0: stays, nothing else was tried",
        "micro_batch = 0: stays, nothing else was tried",
    ]
    assert said[-1].startswith("train with it")
    assert text.splitlines()[1:5] == [f"# {line}" for line in said[:-1]]


def test_tune_says_for_each_knob_what_it_kept_and_why():
    config = catch_config(num_envs=8)
    trials = [
        tune.Trial("num_envs", 16, 1.0, 1.5, accepted=True),
        tune.Trial("num_envs", 32, 1.0, 1.2, accepted=True),
        tune.Trial("num_envs", 64, 1.0, 0.9),
        tune.Trial("groups", 2, 1.0, 1.5),
        tune.Trial("num_threads", 4, 1.0, 0.8),
        tune.Trial("num_threads", 2, 1.0, 1.02),
        tune.Trial("micro_batch", 10, refused="does not fit into memory"),
    ]
    assert tune.summarize(config, list(tune.KNOBS), trials) == [
        "num_envs = 32: kept, 1.80 times as fast as 8",
        "groups = 1: stays, 2 was 1.50 times as fast, but not in every turn",
        "num_threads = 0: stays, nothing was 3 % faster: 2 came nearest with 1.02 times its speed",
        "micro_batch = 0: stays, nothing else can train",
    ]


@pytest.mark.parametrize("option", [["tune", "--knobs"], ["bench", "--sweep"]])
def test_nothing_to_try_is_a_users_mistake(tmp_path, capsys, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    command, flag = option
    assert main([command, "--game", "catch", *SMALL, flag]) == 2
    assert f"{flag} needs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_candidates_fit_the_rows_of_a_gradient_and_the_cores_of_a_device(monkeypatch):
    monkeypatch.setattr(cpus, "count", lambda: 8)
    config = catch_config("vtrace_cpu", num_envs=40, agent={"window": 7, "num_minibatches": 5})
    # 8 windows of 8 rows: 16 and 64 rows are 2 and 8 windows.
    assert tune._candidates(config, "micro_batch", 1) == [0, 2, 8]
    assert tune._candidates(config, "num_threads", 1) == [0, 4, 16]
    assert tune._candidates(config, "num_threads", 2) == [0, 2, 8]
    a2c = catch_config(num_envs=8)  # 40 rows
    assert tune._candidates(a2c, "micro_batch", 1) == [0, 10, 40]


@pytest.mark.slow
@pytest.mark.rotating(4, group="bench")
def test_tune_writes_a_configuration_that_trains(tmp_path, capsys):
    target = tmp_path / "tuned.toml"
    arguments = ["tune", "--game", "catch", *SMALL, "--output", str(target)]
    assert main([*arguments, "--knobs", "groups"]) == 0
    said = capsys.readouterr()
    tried = [line.split(":")[0] for line in said.err.splitlines()]
    assert tried == ["start", "groups = 2"]
    assert f"jaxrl train --config {target}" in said.out
    found = load_config(target)
    kept = [line for line in said.err.splitlines() if line.endswith("kept")]
    assert all(line.split(":")[0] in target.read_text() for line in kept)
    assert found.parallel.groups == 1 + len(kept)
    short = ["--total-steps", "100", "--evaluation.episodes", "0"]
    run = ["--run-dir", str(tmp_path / "run")]
    assert main(["train", "--config", str(target), *short, *run]) == 0
    assert main([*arguments, "--knobs", "groups"]) == 2  # it exists


def test_tune_keeps_what_is_faster_and_nothing_else(monkeypatch):
    """With rates that are made up: two groups double them, more environments change nothing."""
    closed = []

    def make_load(plan, kind):
        assert kind == "training"
        rate = 200.0 if plan.config.parallel.groups == 2 else 100.0
        return bench.Load(
            lambda _: None, plan.config.num_envs, 1, lambda: closed.append(rate), rate
        )

    def take_turns(loads, seconds, repeats):
        return {name: [load.compile_seconds] * repeats for name, load in loads.items()}

    monkeypatch.setattr(bench, "make_load", make_load)
    monkeypatch.setattr(bench, "take_turns", take_turns)
    trials = []
    config = catch_config(num_envs=8)
    found = tune.search(config, list(tune.KNOBS), 1.0, 3, trials.append, Display())
    assert found == config.replaced(parallel={"groups": 2})
    assert [t.value for t in trials if t.knob == "num_envs"] == [16, 4]
    assert [(t.knob, t.ratio) for t in trials if t.accepted] == [("groups", 2.0)]
    assert len(closed) == len(trials) + 1

    # A median that is better by chance: in one of the turns it was slower.
    def unsteady(loads, seconds, repeats):
        return {"best": [100.0, 100.0, 100.0], "new": [150.0, 150.0, 90.0]}

    with monkeypatch.context() as patch:
        patch.setattr(bench, "take_turns", unsteady)
        assert tune.search(config, ["groups"], 1.0, 3, trials.append, Display()) == config
        assert (trials[-1].ratio, trials[-1].accepted) == (1.5, False)

    # Environments grow as long as they help; what cannot train is passed over.
    def limited(plan, kind):
        if plan.config.num_envs > 32:
            raise UserError("too many")
        return bench.Load(lambda _: None, 8, 1, lambda: None, float(plan.config.num_envs))

    monkeypatch.setattr(bench, "make_load", limited)
    trials.clear()
    assert tune.search(config, ["num_envs"], 1.0, 3, trials.append, Display()).num_envs == 32
    assert [(t.value, t.accepted) for t in trials] == [(16, True), (32, True), (64, False)]
    assert trials[-1].refused == "too many"

    # Memory that runs out is passed over too; another error is not hidden.
    for message, expected in (("RESOURCE_EXHAUSTED: 9 GB", None), ("INTERNAL: lost", "INTERNAL")):

        def fail(*_, message=message):
            raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr(bench, "take_turns", fail)
        trials.clear()
        if expected:
            with pytest.raises(jax.errors.JaxRuntimeError, match=expected):
                tune.search(config, ["groups"], 1.0, 3, trials.append, Display())
        else:
            assert tune.search(config, ["groups"], 1.0, 3, trials.append, Display()) == config
            assert [t.refused for t in trials] == ["does not fit into memory"]


@pytest.mark.slow
@pytest.mark.rotating(4, group="bench")
def test_fewer_loads_are_measured_alone(tmp_path, capsys):
    arguments = ["bench", "--game", "catch", *SMALL, "--loads", "emulation"]
    assert main([*arguments, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"num_envs", "emulation"}
    assert main(arguments) == 0
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["load", "emulation"]
    assert main([*arguments[:-1], "loop"]) == 2  # of which Catch has none
    assert main([*arguments, "--profile", str(tmp_path)]) == 2
    assert "--profile traces training" in capsys.readouterr().err
