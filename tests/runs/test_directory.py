"""The command from end to end on Catch: train, resume, evaluate, play, plot, and what is left."""

import contextlib
import dataclasses
import itertools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import imageio.v2 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.analysis import curves
from jaxrl.analysis.tables import load_table
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.config.toml import load, to_toml
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate
from jaxrl.evaluation.video import record
from jaxrl.program.program import make_program
from jaxrl.runs import checkpoint, checkpoint_files, directory, metrics
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import recipe_file
from tests.survival import check_metrics, without_times

ON_CATCH = [
    "--game", "catch", "--parallel.num-devices", "1", "--env.frame-height", "44",
    "--env.frame-width", "44",
]  # fmt: skip
FAST = ["--config", str(recipe_file("a2c_fast")), *ON_CATCH]
SMALL = ["--num-envs", "4", "--log.interval", "200", "--evaluation.episodes", "3"]
SHORT = [*FAST, *SMALL]
KEYS = {
    "step", "frames", "seconds", "steps_per_second", "updates", "episodes", "return_mean",
    "return_min", "return_max", "length_mean",
}  # fmt: skip


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    arguments = ["train", *SHORT, "--total-steps", "2e3", "--checkpoint.interval", "800"]
    assert main([*arguments, "--checkpoint.keep", "2", "--run-dir", str(path)]) == 0
    return path


def test_a_run_leaves_what_the_design_says(run_dir):
    names = {p.name for p in run_dir.iterdir()}
    assert names >= {
        "config.toml", "metrics.jsonl", "checkpoints", "learning_curve.png", "evaluation.json",
        "provenance.json",
    }  # fmt: skip
    assert any(name.startswith("events.out.tfevents") for name in names)
    provenance = json.loads((run_dir / "provenance.json").read_text())
    assert provenance["packages"]["jax"] == jax.__version__
    assert provenance["devices"]
    assert provenance["command"]
    # The session began with the run directory, not once its program was compiled.
    began = datetime.fromisoformat(provenance["started"]).timestamp()
    since = began - (run_dir / "config.toml").stat().st_mtime
    assert -1 < since < metrics.read(run_dir)[0]["compile_seconds"]
    assert load(run_dir / "config.toml").run_dir == str(run_dir)


def test_metrics_have_the_contracts_keys(run_dir):
    rows = metrics.read(run_dir)
    assert [row["step"] for row in rows] == list(range(200, 2001, 200))
    for row in rows:
        assert row.keys() >= KEYS
        assert row["frames"] == 4 * row["step"]
        assert {"loss/policy", "policy/entropy", "value/target"} <= row.keys()
    assert [("compile_seconds" in row) for row in rows] == [True] + [False] * 9
    assert all(a["seconds"] < b["seconds"] for a, b in itertools.pairwise(rows))
    assert rows[-1]["return_mean"] is not None


def test_tensorboard_says_the_same(run_dir):
    check_metrics(run_dir)


@pytest.mark.slow
def test_a_run_that_ended_before_its_first_step_makes_room(tmp_path, capsys):
    """A crash while compiling left the files, and the same command is repeated."""
    run_dir = tmp_path / "x"
    train = ["train", *SHORT, "--total-steps", "200", "--evaluation.episodes", "0"]
    run_dir.mkdir()
    (run_dir / "checkpoints" / "200.orbax-checkpoint-tmp").mkdir(parents=True)
    for name in ("config.toml", "lock", "metrics.jsonl", "events.out.tfevents.1"):
        (run_dir / name).touch()
    (run_dir / "provenance.json").write_text("{}")
    assert directory.never_trained(run_dir)
    for name, text in (("mine.txt", ""), ("metrics.jsonl", "{}\n")):
        before = (run_dir / name).read_text() if (run_dir / name).exists() else None
        (run_dir / name).write_text(text)
        assert not directory.never_trained(run_dir)
        assert main([*train, "--run-dir", str(run_dir)]) == 2
        assert "exists: choose another --run-dir" in capsys.readouterr().err
        (run_dir / name).unlink() if before is None else (run_dir / name).write_text(before)
    assert main([*train, "--run-dir", str(run_dir)]) == 0
    assert "ended before its first step; this one takes its place" in capsys.readouterr().err
    assert [row["step"] for row in metrics.read(run_dir)] == [200]
    assert len(list(run_dir.glob("events.out.tfevents*"))) == 1
    assert "resumed" not in json.loads((run_dir / "provenance.json").read_text())
    assert not directory.never_trained(run_dir)


def test_a_configuration_alone_is_not_taken_over(tmp_path):
    """Somebody wrote it: a run has its lock first."""
    (tmp_path / "config.toml").touch()
    assert not directory.never_trained(tmp_path)


def test_starts_within_one_second_have_directories_of_their_own(tmp_path, monkeypatch):
    """Several processes claim the same name, each while the others do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(directory.time, "strftime", lambda *_: "20261126-120000")
    config = Config(game="catch", seed=3)
    with contextlib.ExitStack() as locks, ThreadPoolExecutor() as pool:
        futures = [pool.submit(directory.create_run, config, locks) for _ in range(4)]
        run_dirs = [future.result() for future in futures]
    first = "runs/catch-a2c-seed3-20261126-120000"
    assert sorted(map(str, run_dirs)) == [first, *(f"{first}-{n}" for n in (2, 3, 4))]
    for run_dir in run_dirs:
        assert directory.load_config(run_dir) == config.replaced(run_dir=str(run_dir))
    seeds = [str(directory.new_run_dir(config, (4, 2))) for _ in range(2)]
    assert seeds == [f"runs/catch-a2c-seeds4-2-20261126-120000{n}" for n in ("", "-2")]


def test_where_no_directory_can_be_made_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for blocks in (lambda path: path.touch(), lambda path: path.symlink_to("nowhere/at/all")):
        (tmp_path / "runs").unlink(missing_ok=True)
        blocks(tmp_path / "runs")
        with pytest.raises(UserError, match=r"^cannot make the run directory 'runs/catch-a2c-seed"):
            directory.new_run_dir(Config(game="catch"))


def test_a_folder_stands_for_the_runs_in_it(run_dir, tmp_path, capsys):
    for place in ("a", "b", "sweep/c"):
        shutil.copytree(run_dir, tmp_path / "runs" / place)
    (tmp_path / "runs" / "notes").mkdir()
    assert main(["evaluate", str(tmp_path / "runs"), "--recorded", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["evaluations"]) == 3
    assert main(["plot", str(tmp_path / "runs"), "-o", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert main(["plot", str(tmp_path / "runs" / "notes")]) == 2
    assert "is no run directory" in capsys.readouterr().err


def test_goodput_is_training_over_all(run_dir):
    rows = metrics.read(run_dir)
    for row in rows:
        assert row["goodput"] == pytest.approx(row["seconds"] / row["wall_seconds"], abs=1e-3)
        assert row["memory_gb"] > 0.1
    assert 0 < rows[0]["goodput"] < rows[-1]["goodput"] < 1  # compilation weighs less and less
    # Starting, compiling and saving are not training.
    beside = rows[-1]["wall_seconds"] - rows[-1]["seconds"]
    assert beside > rows[0]["compile_seconds"] + rows[-1]["checkpoint_seconds"]


def test_checkpoints_are_the_newest_and_the_best(run_dir):
    steps = [int(p.name) for p in (run_dir / "checkpoints").iterdir()]
    assert 2000 in steps
    assert 2 <= len(steps) <= 3


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_evaluate_prints_and_writes_the_scores(run_dir, capsys):
    arguments = ["evaluate", str(run_dir), "--episodes", "5", "--protocol", "sticky", "--json"]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((run_dir / "evaluation.json").read_text())
    assert printed["protocol"] == "sticky"
    assert len(printed["scores"]) == printed["episodes"] == 5
    assert set(printed["scores"]) <= {-1.0, 1.0}
    assert printed["lengths"] == [6] * 5
    assert printed["mean"] == pytest.approx(np.mean(printed["scores"]))
    assert printed["step"] == 2000
    assert main(["evaluate", str(run_dir), "--episodes", "2"]) == 0
    assert (
        "after 2,000 steps, protocol noop (nothing is pressed at the start"
        in capsys.readouterr().out
    )
    assert main(["evaluate", str(run_dir), "--epsilon", "0.1"]) == 2
    assert "epsilon: a2c draws its actions from its policy" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:os.fork")  # reading the video back starts a decoder
def test_play_records_a_video(run_dir, capsys):
    assert main(["play", str(run_dir)]) == 0
    assert "score" in capsys.readouterr().out
    video = imageio.mimread(run_dir / "video.mp4", memtest=False)
    assert len(video) == 6 + 2  # a game of Catch, slowed, and a second to read the result
    assert np.asarray(video[0]).std() > 1


@pytest.mark.filterwarnings("ignore:os.fork")
def test_play_begins_at_a_step_of_the_game(run_dir, capsys):
    assert main(["play", str(run_dir), "--from-step", "4", "--max-seconds", "1"]) == 0
    assert "6 agent steps, shown from step 4\n" in capsys.readouterr().out
    assert len(imageio.mimread(run_dir / "video.mp4", memtest=False)) == 2 + 6  # 6 in a second
    assert main(["play", str(run_dir), "--from-step", "6"]) == 2
    assert "the game ended at agent step 6; take an earlier one" in capsys.readouterr().err
    assert main(["play", str(run_dir), "--from-step", "-1"]) == 2
    assert "from_step = -1: must be at least 0" in capsys.readouterr().err


def test_play_records_a_gif(run_dir, tmp_path, capsys):
    assert main(["play", str(run_dir), "--output", str(tmp_path / "game.gif")]) == 0
    pictures = imageio.mimread(tmp_path / "game.gif")
    assert 2 <= len(pictures) <= 6 + 2  # what repeats is one picture that stays
    assert pictures[0].shape[:2] == (9 * 44 + 28, 9 * 44)
    assert main(["play", str(run_dir), "--output", str(tmp_path / "game.avi")]) == 2
    assert "must end in .mp4 or .gif" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:os.fork")  # by the reader of films
def test_a_game_that_is_cut_is_said_to_be(run_dir, tmp_path):
    config, actor, _ = evaluate.load_actor(run_dir, None)
    _, length, over = record(config, actor, "noop", tmp_path / "cut.mp4", 0, 0.2)
    assert (length, over) == (3, False)
    assert len(imageio.mimread(tmp_path / "cut.mp4", memtest=False)) == 3  # no longer than said
    _, length, over = record(config, actor, "noop", tmp_path / "cut.mp4", 0, 0.2, from_step=2)
    assert (length, over) == (5, False)  # the length counts from there


@pytest.mark.slow
def test_plot_draws_one_and_several_runs(run_dir, tmp_path, capsys):
    assert main(["plot", str(run_dir)]) == 0
    target = tmp_path / "two.png"
    assert main(["plot", str(run_dir), str(run_dir), "--output", str(target)]) == 2
    assert "'x' is given twice" in capsys.readouterr().err
    other = shutil.copytree(run_dir, tmp_path / "y")
    assert main(["plot", str(run_dir), str(other), "-o", str(target)]) == 0
    assert imageio.imread(target).shape[2] >= 3
    frames, returns = curves.curve(run_dir)
    assert len(frames) == len(returns) > 0


def test_games_are_listed(capsys):
    assert main(["games"]) == 0
    table = capsys.readouterr().out
    assert "pong" in table
    assert "14.6" in table
    assert main(["games", "--names"]) == 0
    assert "catch" in capsys.readouterr().out.split()


def test_a_run_writes_down_its_time_limit(trained):
    assert load(trained / "config.toml").env.max_episode_steps == 27_000  # 108,000 frames


def test_a_resume_that_fits_no_number_of_devices_says_why(run_dir, capsys):
    arguments = ["resume", str(run_dir), "--num-devices", "2"]
    assert main([*arguments, "--override", "total_steps=10_000_000_000_000"]) == 2
    assert "environments play at most" in capsys.readouterr().err
    assert main(["resume", str(run_dir), "--num-devices", "3"]) == 2
    assert "num_devices = 3: this run divides among 1, 2, 4" in capsys.readouterr().err


def state_of(path, num_devices=1):
    config = load(path / "config.toml")
    engine = make_engine(config, config.num_envs // num_devices, num_devices)
    plan = resolve(config, num_devices)
    agent = make_agent(plan, engine.spec)
    program = make_program(plan, agent, (engine,), make_mesh(num_devices))
    checkpoints = checkpoint.Checkpoints(path, config, engine.state_format)
    template = program.init()
    if engine.save is not None:
        (games,) = template.games
        template = template._replace(games=(games._replace(env=jnp.asarray(engine.save())),))
    restored = checkpoints.restore(template, checkpoint_files.steps(path)[-1])
    checkpoints.close()
    engine.close()
    return restored.state, restored.description.progress


REPLAYS = [
    "--agent.rollout-length", "2", "--agent.batch-size", "32", "--agent.learning-starts", "300",
    "--agent.replay-capacity", "640", "--agent.target-update-interval", "160",
    "--agent.epsilon-decay-steps", "1500",
]  # fmt: skip
PRIORITIZING = ("qr_dqn_fast", "btr_fast", "btr", "rainbow_fast")
REPLAYING = ("c51_fast", *PRIORITIZING)
RECIPES = {
    "a2c_fast": [],
    "ppo_pong": ["--agent.rollout-length", "20"],
    "vtrace_cpu": ["--agent.num-minibatches", "2", "--agent.window", "5", "--network.hidden-norm"],
    "c51_fast": REPLAYS,
    "qr_dqn_fast": REPLAYS,
    "btr_fast": [*REPLAYS, "--network.noisy"],
    "btr": [*REPLAYS, "--network.max-pool", "3", "--network.units", "32", "--checkpoint.keep", "3"],
    "rainbow_fast": REPLAYS,
    "pqn_fast": ["--agent.rollout-length", "5", "--agent.num-minibatches", "1",
                 "--agent.value-loss", "two_hot"],
    "pqn_hadamax": ["--agent.rollout-length", "5", "--agent.num-minibatches", "1",
                    "--agent.value-loss", "hl_gauss", "--network.dueling",
                    "--network.torso", "gamma_hadamax", "--network.units", "64",
                    "--network.simplicial-groups", "8"],
    "ppo_lstm": ["--agent.rollout-length", "5", "--agent.num-minibatches", "2",
                 "--network.core", "gru", "--network.core-units", "8"],
    "vtrace_lstm_cpu": ["--agent.num-minibatches", "2", "--agent.burn-in", "3",
                        "--network.core-units", "8"],
    "nstep_q_fast": ["--agent.target", "sarsa", "--agent.target-update-interval", "160",
                     "--agent.no-epsilon-spread", "--parallel.lag", "2"],
}  # fmt: skip


def recipe_arguments(name):
    return ["--config", str(recipe_file(name)), *ON_CATCH, *SMALL, *RECIPES[name]]


ALWAYS = (pytest.mark.slow, pytest.mark.rotating(1))
RESUMED = (pytest.mark.slow, pytest.mark.rotating(5, group="resumed"))


@pytest.mark.parametrize(
    ("recipe", "order"),
    [
        pytest.param("a2c_fast", "strict", marks=ALWAYS),
        pytest.param("vtrace_cpu", "overlapped", marks=RESUMED),
        pytest.param("rainbow_fast", "overlapped", marks=RESUMED),
        pytest.param("ppo_pong", "overlapped", marks=RESUMED),
        pytest.param("c51_fast", "overlapped", marks=RESUMED),
        pytest.param("qr_dqn_fast", "overlapped", marks=RESUMED),
        pytest.param("btr_fast", "overlapped", marks=RESUMED),
        pytest.param("btr", "strict", marks=RESUMED),
        pytest.param("nstep_q_fast", "strict", marks=RESUMED),
        pytest.param("pqn_fast", "overlapped", marks=RESUMED),
        pytest.param("pqn_hadamax", "strict", marks=RESUMED),
        pytest.param("ppo_lstm", "strict", marks=RESUMED),
        pytest.param("vtrace_lstm_cpu", "overlapped", marks=RESUMED),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, recipe, order):
    """Parameters, optimizer, schedules, replay, priorities, lag and keys, bit for bit."""
    arguments = ["train", *recipe_arguments(recipe), "--parallel.order", order,
                 "--checkpoint.interval", "400",
                 "--total-steps", "1200", "--evaluation.episodes", "0"]  # fmt: skip
    assert main([*arguments, "--run-dir", str(tmp_path / "cut")]) == 0
    shutil.copytree(tmp_path / "cut", tmp_path / "whole")
    # As a kill -9 after step 800 and some lines would leave it.
    for path in (tmp_path / "cut" / "checkpoints").iterdir():
        if int(path.name) > 900:
            shutil.rmtree(path)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99')
    lines = [len(metrics.read(tmp_path / name)) for name in ("whole", "cut")]
    assert lines[0] == lines[1]  # the torn line is left out
    assert main(["resume", str(tmp_path / "cut")]) == 0
    provenance = json.loads((tmp_path / "cut" / "provenance.json").read_text())
    assert len(provenance["resumed"]) == 1
    metadata = (tmp_path / "cut" / "checkpoints" / "1200" / "local" / "_METADATA").read_text()
    assert ("memory.ring.frame" in metadata) == (
        recipe in (*REPLAYING, "vtrace_cpu", "vtrace_lstm_cpu")
    )
    assert ("memory.priorities" in metadata) == (recipe in PRIORITIZING)
    (whole, end), (cut, same_end) = state_of(tmp_path / "whole"), state_of(tmp_path / "cut")
    assert (end.step, end.updates) == (same_end.step, same_end.updates)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)
    assert without_times(tmp_path / "whole") == without_times(tmp_path / "cut")


@pytest.mark.slow
def test_without_the_replay_a_checkpoint_is_small_and_a_resumed_run_fills_it_anew(tmp_path, capsys):
    path = tmp_path / "x"
    arguments = ["train", *recipe_arguments("c51_fast"), "--checkpoint.no-memory",
                 "--total-steps", "1200", "--checkpoint.interval", "400",
                 "--evaluation.episodes", "0"]  # fmt: skip
    assert main([*arguments, "--run-dir", str(path)]) == 0
    (newest,) = [p for p in (path / "checkpoints").iterdir() if int(p.name) == 1200]
    assert "memory" not in (newest / "local" / "_METADATA").read_text()
    shutil.rmtree(newest)
    assert main(["resume", str(path)]) == 0
    rows = {row["step"]: row for row in metrics.read(path)}
    assert rows[1000]["loss/cross_entropy"] is None  # 200 of the 300 steps to learn from
    assert rows[1200]["loss/cross_entropy"] > 0
    assert rows[1000]["replay/transitions"] < rows[800]["replay/transitions"]
    capsys.readouterr()
    for arguments, epsilon in ((["--epsilon", "0.5"], 0.5), ([], 0.001)):
        assert main(["evaluate", str(path), "--episodes", "2", "--json", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["epsilon"] == epsilon


@pytest.mark.slow
def test_envpool_resumes_with_new_games_and_everything_else_as_it_was(tmp_path, capsys):
    path = tmp_path / "x"
    arguments = ["train", "--config", str(recipe_file("vtrace_cpu")), "--game", "pong",
                 "--env.engine", "envpool",
                 "--num-envs", "4", "--parallel.groups", "2", "--parallel.num-devices", "1",
                 "--agent.window", "3",
                 "--agent.num-minibatches", "2", "--env.random-start-steps", "3",
                 "--evaluation.episodes", "0"]  # fmt: skip
    small = ["--log.interval", "20", "--checkpoint.interval", "20", "--total-steps", "60"]
    assert main([*arguments, *small, "--run-dir", str(path)]) == 0
    shutil.rmtree(path / "checkpoints" / "60")
    assert main(["resume", str(path)]) == 0
    assert [row["step"] for row in metrics.read(path)] == [20, 40, 60]
    assert [row["updates"] for row in metrics.read(path)] == [5, 10, 15]
    assert metrics.read(path)[-1]["loss/gradient_norm"] > 0
    capsys.readouterr()
    assert main(["resume", str(path)]) == 0
    assert "training had ended already" in capsys.readouterr().err
    assert main(["evaluate", str(path), "--checkpoint", "40", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_a_snapshot_survives_the_donation_of_its_buffers(tmp_path):
    config = load(recipe_file("a2c_fast"))
    config = config.__class__(**(vars(config) | {"game": "catch", "num_envs": 4}))
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.init()
    # np.array copies; what device_get gives may share the device's memory
    before = jax.tree.map(np.array, state.agent.actor.params)
    checkpoints = checkpoint.Checkpoints(tmp_path, config)
    checkpoints.save(state, checkpoint_files.Progress(0, 0, 0.0, 0), None)
    program.run(state, np.int32(20))  # overwrites in place while Orbax writes
    checkpoints.close()
    restored = checkpoint.Checkpoints(tmp_path, config).restore(program.init(), 0).state
    for a, b in zip(
        jax.tree.leaves(before), jax.tree.leaves(restored.agent.actor.params), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def write_run(path, config, *lines):
    """A run directory of lines that have what is said, and steps and half minutes from 1 on."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(to_toml(dataclasses.replace(config, run_dir=str(path))))
    rows = [
        {"step": n, "frames": 4 * n, "seconds": 30.0 * n, "return_mean": None} | line
        for n, line in enumerate(lines, start=1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_table_has_every_line_of_every_run(tmp_path):
    quick = OptimizerConfig(learning_rate=1e-3)
    one = write_run(tmp_path / "one", Config(), {"return_mean": 5.0}, {"loss/policy": -0.5})
    two = write_run(tmp_path / "two", Config(seed=2, optimizer=quick), {"episodes": 7})
    table = load_table([one, two])
    assert list(table.columns) == [
        "run", "game", "algorithm", "seed", "optimizer.learning_rate", "step", "frames", "seconds",
        "minutes", "return_mean", "loss/policy", "episodes",
    ]  # fmt: skip
    assert table["run"].tolist() == ["one", "one", "two"]
    assert table["seed"].tolist() == [1, 1, 2]
    assert table["optimizer.learning_rate"].tolist() == [7e-4, 7e-4, 1e-3]
    assert table["step"].tolist() == [1, 2, 1]
    assert table["minutes"].tolist() == [0.5, 1.0, 0.5]
    assert table["return_mean"].isna().tolist() == [False, True, True]
    assert table["loss/policy"].tolist()[1] == -0.5
    assert table["episodes"].isna().tolist() == [True, True, False]


def test_settings_that_only_some_runs_have_do_not_differ(tmp_path):
    one = write_run(tmp_path / "x-a2c", load(recipe_file("a2c_fast")), {})
    two = write_run(tmp_path / "x-c51", load(recipe_file("c51_fast")), {})
    columns = load_table([one, two]).columns
    assert "agent.rollout_length" in columns  # 5 and 4
    assert "agent.gamma" not in columns  # 0.99 in both
    assert "agent.v_min" not in columns  # C51 has it alone


def test_directories_of_one_name_are_told_apart_by_their_parents(tmp_path):
    three = [write_run(tmp_path / name, Config(), {}) for name in ("a/x", "b/x", "b/y")]
    assert load_table(three)["run"].tolist() == ["a/x", "b/x", "y"]
    with pytest.raises(UserError, match="'x' is given twice"):
        load_table([three[0], three[0]])


def test_a_table_holds_numbers_and_nothing_a_line_may_claim(tmp_path):
    line = {"run": "other", "minutes": 9, "text": "<b>", "list": [1], "huge": 10**400, "flag": True}
    row = load_table([write_run(tmp_path / "x", Config(), line)]).iloc[0]
    assert (row["run"], row["minutes"]) == ("x", 0.5)
    assert row[["text", "list", "huge", "flag"]].isna().all()


def test_a_table_of_nothing_and_of_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="at least one"):
        load_table([])
    with pytest.raises(UserError, match="is no run directory"):
        load_table([tmp_path])
    empty = write_run(tmp_path / "x", Config())
    assert load_table([empty]).empty
    (empty / "metrics.jsonl").write_text("nonsense\n")
    with pytest.raises(UserError, match="line 1"):
        load_table([empty])
