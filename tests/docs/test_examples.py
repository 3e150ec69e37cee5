"""The studies in docs/examples: policy lag, what drawing by priority costs, another trainer."""

import dataclasses
import importlib.util
import json
import signal
import sys
import time
import types
from pathlib import Path

import gymnasium
import jax
import matplotlib.image
import numpy as np
import pytest

import jaxrl
from jaxrl.agents import make_agent
from jaxrl.atari.games import full_actions, minimal_actions
from jaxrl.cli import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation.policy import Policy
from jaxrl.runs import layout
from jaxrl.runs.directory import load_config
from jaxrl.types import AXIS
from tests.conftest import recipe_file

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def study():
    return load("policy_lag")


@pytest.mark.slow
@pytest.mark.rotating(4, group="examples")
def test_runs_that_are_missing_are_trained_and_all_are_drawn(study, tmp_path, monkeypatch, capsys):
    ran = []

    def run(command, check):
        assert not check
        ran.append(command)  # the first three words are python -m jaxrl
        few = ["--parallel.num-devices", "1"] if command[3] == "train" else []
        return types.SimpleNamespace(returncode=main.main([*command[3:], *few]))

    monkeypatch.setattr(study, "subprocess", types.SimpleNamespace(run=run))
    options = {
        "config": recipe_file("a2c_fast"),
        "total_steps": 1600,
        "lags": (0, 2),
        "root": tmp_path / "lag",
        "options": ("parallel.order=overlapped", "num-envs=8"),
    }
    study.main(**options, seeds=(1,))
    assert len(ran) == 2
    for lag in (0, 2):
        config = load_config(tmp_path / "lag" / f"catch-lag{lag}-seed1")
        assert (config.parallel.lag, config.parallel.order, config.game) == (
            lag,
            "overlapped",
            "catch",
        )
    assert (tmp_path / "lag" / "policy_lag_catch.json").is_file()
    picture = tmp_path / "lag" / "policy_lag_catch.png"
    assert matplotlib.image.imread(picture).shape[2] >= 3
    assert str(picture) in capsys.readouterr().out
    study.main(**options, seeds=(1,))
    assert len(ran) == 2
    stopped = tmp_path / "lag" / "catch-lag2-seed1"
    (stopped / layout.LEARNING_CURVE).unlink()
    study.main(**options, seeds=(1,))
    assert ran[2][3:] == ["resume", str(stopped)]
    with pytest.raises(SystemExit, match="differ in total_steps: take another --root"):
        study.main(**options | {"total_steps": 3200}, seeds=(1,))
    fails = types.SimpleNamespace(run=lambda *_, **__: types.SimpleNamespace(returncode=2))
    monkeypatch.setattr(study, "subprocess", fails)
    with pytest.raises(SystemExit, match="stopped with status 2; the same command goes on"):
        study.main(**options, seeds=(2,))


def test_the_score_is_of_the_share_that_is_asked_for(study, tmp_path):
    lines = [(100, None), (200, -1.0), (300, 1.0), (400, 3.0)]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(
            f'{{"step": {step}, "frames": 1, "seconds": 1, "return_mean": '
            f"{'null' if value is None else value}}}\n"
            for step, value in lines
        )
    )
    run = study.read(tmp_path)
    assert study.score(run, 1.0) == 1.0
    assert study.score(run, 0.5) == 2.0


def test_a_study_is_drawn_again_from_its_scores(study, tmp_path, capsys):
    lags = {lag: [study.Returns([100, 200], [0.0, 1.0 - lag])] * 2 for lag in (0, 2)}
    scores = study.scores_of(lags)
    assert scores["mean of whole training"] == {0: [0.5, 0.5], 2: [-0.5, -0.5]}
    study.write("catch", scores, tmp_path / "policy_lag_catch.json")
    assert study.recorded(tmp_path / "policy_lag_catch.json") == ("catch", scores)
    study.main(recorded_file=tmp_path / "policy_lag_catch.json")
    assert capsys.readouterr().out == f"{tmp_path / 'policy_lag_catch.png'}\n"
    assert matplotlib.image.imread(tmp_path / "policy_lag_catch.png").shape[2] >= 3
    curves, drawn = study.draw("catch", scores, lags).axes
    assert curves.get_title(loc="left") == "catch"
    assert drawn.get_ylabel().endswith("a dot for each seed")


def test_every_lag_is_visible_where_curves_are_equal(study):
    lags = {lag: [study.Returns([100, 200], [0.0, -1.0])] for lag in (0, 1, 2, 4, 8, 16)}
    axes = matplotlib.figure.Figure().subplots()
    study.draw_curves(axes, lags)
    solid, dashed = axes.get_lines()[::2], axes.get_lines()[1::2]
    assert {line.get_linestyle() for line in solid} == {"-"}
    assert {line.get_linestyle() for line in dashed} == {"--"}
    assert len({line.get_color() for line in axes.get_lines()}) == 6


@pytest.mark.slow
def test_every_way_of_drawing_is_timed(capsys):
    load("priority_cost").main(capacity=600, num_envs=2, batch_sizes=(4,), turns=1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"4 of 600 transitions, {name}" for name in ("uniform", "blocks", "tree", "cumulative")
    ]


@pytest.mark.parametrize("name", ["cumulative", "tree"])
@pytest.mark.slow
def test_what_is_timed_draws_by_priority(name):
    made = load("priority_cost").ways(num_envs=2, rows=300, batch_size=20_000)
    step, state = made[name]
    power = made["blocks"][1].priorities.power.reshape(-1)
    device = jax.vmap(lambda key: step(state, key)[1], axis_name=AXIS, axis_size=1)
    drawn = np.asarray(device(jax.random.key(0)[None])[0])
    leaf = drawn % (1 << (power.size - 1).bit_length()) if name == "tree" else drawn
    counts = np.bincount(leaf, minlength=power.size)[: power.size]
    expected = np.asarray(power / power.sum()) * len(drawn)
    assert (counts[expected == 0] == 0).all()
    assert np.corrcoef(counts, expected)[0, 1] > 0.8


def test_another_trainer_learns_the_same_from_our_games_as_from_ales(capsys):
    pytest.importorskip("stable_baselines3")
    example = load("ppo_stable_baselines3")
    for env in ("ours", "ale"):
        example.main(env, "pong", num_envs=2, steps=256, random=True)
        example.main(env, "pong", num_envs=2, steps=512)
    lines = capsys.readouterr().out.splitlines()
    speeds = [line.split(": ")[0] for line in lines if "steps per second" in line]
    assert speeds == ["ours", "ours", "ale", "ale"]
    one, other = (line for line in lines if line.startswith("parameters: "))
    assert one == other


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_policy_that_remembers_plays(monkeypatch):
    example = load("play_policy")
    frames = {"frame_height": 36, "frame_width": 36}
    network = {"core": "lstm", "core_units": 8, "torso": "nips"}
    config = Config(game="pong").replaced(env=frames, network=network)
    agent = make_agent(resolve(config), make_engine(config, 1).spec)
    policy = Policy(config, agent.init(jax.random.key(0)).actor, 0)
    states = []
    monkeypatch.setattr(example.jaxrl, "load_policy", lambda _: policy)
    made = Policy.new_state
    monkeypatch.setattr(
        Policy, "new_state", lambda *given: states.append(made(*given)) or states[0]
    )
    example.play("x", num_games=2, max_steps=4)
    assert not states[0].steps.fresh.any()
    assert (np.abs(states[0].steps.core) > 0).all()


@pytest.mark.parametrize(
    ("env", "fires"),
    [
        ({}, True),
        ({"episodic_life": False}, False),
        ({"fire_reset": False}, False),
        ({"full_action_space": True, "frame_height": 104, "frame_width": 80}, False),
        ({"frame_skip": 2, "stack": 1}, True),
    ],
)
def test_a_policy_plays_the_game_that_it_was_trained_on(monkeypatch, env, fires):
    """A life is lost in the second step, so FIRE is pressed in the third."""
    example = load("play_policy")
    config = Config(game="breakout").replaced(env=env)
    actions = (full_actions if config.env.full_action_space else minimal_actions)("breakout")
    shape, stack = (config.env.frame_height, config.env.frame_width), config.env.stack

    def act(frames, seed, state):
        assert frames.shape == (1, *shape, stack)
        return np.zeros(1, int)

    policy = types.SimpleNamespace(config=config, action_names=actions, act=act, remembers=False)
    monkeypatch.setattr(example.jaxrl, "load_policy", lambda _: policy)
    monkeypatch.setattr(example, "MOST_FRAMES", 4 * config.env.frame_skip)
    sent = []

    def step(real, action):
        sent.append(int(action[0]))
        observation, reward, terminated, truncated, info = real_step(real, action)
        lives = np.array([5 if len(sent) < 2 else 4], np.int32)
        return observation, reward, terminated, truncated, info | {"lives": lives}

    real_step = example.VectorEnv.step
    monkeypatch.setattr(example.VectorEnv, "step", step)
    made = example.make_env(config, 1)
    assert made.single_observation_space.shape == (stack, *shape)
    assert made.options.frameskip == config.env.frame_skip
    assert made.single_action_space.n == len(actions)
    assert made.options.rules().fire_reset == (
        config.env.fire_reset and not config.env.full_action_space
    )
    made.close()
    example.play("breakout", num_games=1)
    assert sent == [0, 0, actions.index("FIRE") if fires else 0, 0]


@pytest.mark.parametrize("chosen", [{"mode": 4}, {"difficulty": 1}, {}])
def test_a_policy_plays_the_mode_that_it_learned(chosen):
    envs = load("play_policy").make_env(Config(game="breakout").replaced(env=chosen), 1)
    played = envs.options.mode, envs.options.difficulty
    assert played == (chosen.get("mode"), chosen.get("difficulty"))
    envs.close()


def test_a_policy_of_frames_in_color_is_not_shown_gray_ones():
    with pytest.raises(UserError, match=r"env.grayscale = false"):
        load("play_policy").make_env(Config(game="breakout").replaced(env={"grayscale": False}), 1)


def test_a_policy_plays_in_a_gymnasium_environment():
    example = load("play_policy")
    scores = example.play("pong", num_games=2, max_steps=40)
    assert scores.shape == (2,)
    assert (np.abs(scores) <= 1).all()  # 40 steps are less than two points


@pytest.mark.slow
@pytest.mark.rotating(4, group="examples")
def test_seeds_at_once_are_timed_beside_one(capsys):
    load("population_speed").main(num_envs=2, seeds=(1, 2), seconds=0.01, turns=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["one seed", "2 at once", "ratio"]


def test_an_hour_of_each_library_is_read_from_what_it_writes(tmp_path, monkeypatch):
    hour = load("hour")
    monkeypatch.setattr(hour, "LAST", 2)
    assert hour.name_of("name_this_game") == "NameThisGame"
    monkeypatch.setenv(hour.START, "1000")
    header = '#{"t_start": 1010.0, "env_id": "x"}\nr,l,t\n'  # Monitor counts frames
    (tmp_path / "0.monitor.csv").write_text(f"{header}3.0,400,5.5\n5.0,800,45.0\n")
    (tmp_path / "1.monitor.csv").write_text(f"{header}4.0,80,26.0\n")
    games = list(hour.games_of_sb3(tmp_path))
    assert sorted(games) == [(15.5, 100, 3.0), (36.0, 20, 4.0), (55.0, 200, 5.0)]
    points = list(hour.curve(games, minutes=1.5))  # the last two games, from the second one on
    assert points == [(1.0, 320, 4.5), (1.5, 320, 4.5)]

    (tmp_path / "sf").mkdir()
    (tmp_path / "sf/7.csv").write_text("15.5,100,3.0\n55.0,200,5.0\n")
    (tmp_path / "sf/8.csv").write_text("36.0,20,4.0\n")
    assert sorted(hour.games_of_sample_factory(tmp_path / "sf")) == sorted(games)

    run_dir = tmp_path / "jaxrl/vtrace_fast-pong-seed1"
    run_dir.mkdir(parents=True)
    log = [(9, 500, 0, None), (18, 1000, 1, 4.0), (27, 2000, 2, 7.5), (29, 3000, 3, 8.0),
           (57, 4000, 5, 9.0), (95, 5000, 9, 10.0)]  # fmt: skip
    keys = "wall_seconds", "step", "episodes", "return_mean"
    lines = [json.dumps(dict(zip(keys, line, strict=True))) for line in log]
    (run_dir / "metrics.jsonl").write_text("\n".join(lines))
    # The session, from which the log counts its seconds, began two seconds after the script.
    (run_dir / "provenance.json").write_text('{"started": "1970-01-01T00:16:42+0000"}')
    points = list(hour.curve_of_jaxrl(tmp_path / "jaxrl", minutes=1.5))
    assert points == [(0.5, 2000, 7.5), (1.0, 4000, 9.0), (1.5, 4000, 9.0)]
    monkeypatch.setattr(hour, "LAST", 3)
    assert next(hour.curve_of_jaxrl(tmp_path / "jaxrl", minutes=1.5)) == (1.0, 4000, 9.0)


def leave_modules(members, monkeypatch):
    """Puts modules with these members, by name, in the place of libraries that are not there."""
    for name, of in members.items():
        module = types.ModuleType(name)
        vars(module).update(of)
        monkeypatch.setitem(sys.modules, name, module)


# Of the Atari games, rl-baselines3-zoo/hyperparams/ppo.yml and a2c.yml; lin_X falls from X to 0.
ZOO = {
    "ppo": {
        "n_envs": 8, "n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": 2.5e-4,
        "clip_range": 0.1, "vf_coef": 0.5, "ent_coef": 0.01,
    },
    "a2c": {
        "n_envs": 16, "ent_coef": 0.01, "vf_coef": 0.25,
        "policy_kwargs": {"optimizer_class": "RMSpropTFLike", "optimizer_kwargs": {"eps": 1e-5}},
    },
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ZOO)
@pytest.mark.parametrize("cores", [{0}, {0, 1}])
def test_stable_baselines3_has_the_settings_of_its_zoo(algorithm, cores, monkeypatch, tmp_path):
    hour, given, clock = load("hour"), {}, [0.0]

    class Model:
        def __init__(self, policy, env, **settings):
            given.update(settings, policy=policy, frames=env.frames)

        def learn(self, steps, callback):
            assert steps > 10**8
            clock[0] = 3599.0
            assert callback({}, {})
            clock[0] = 3601.0
            assert not callback({}, {})

    def games(name, **settings):
        given.update(settings, name=name)
        return types.SimpleNamespace(close=lambda: given.update(closed=True))

    def stack(env, frames):
        return types.SimpleNamespace(frames=frames)

    common = "stable_baselines3.common"
    members = {
        "ale_py": {},
        "stable_baselines3": {
            "PPO": Model if algorithm == "ppo" else None,
            "A2C": Model if algorithm == "a2c" else None,
        },
        f"{common}.env_util": {"make_atari_env": games},
        f"{common}.sb2_compat.rmsprop_tf_like": {"RMSpropTFLike": "RMSpropTFLike"},
        f"{common}.vec_env": {
            "DummyVecEnv": "one process", "SubprocVecEnv": "several", "VecFrameStack": stack,
        },
    }  # fmt: skip
    leave_modules(members, monkeypatch)
    monkeypatch.setattr(hour, "elapsed", lambda: clock[0])
    monkeypatch.setattr(hour.os, "sched_getaffinity", lambda _: cores)
    hour.train_sb3(algorithm, "name_this_game", tmp_path, 3, 60)
    assert given.pop("name") == "NameThisGameNoFrameskip-v4"
    assert given.pop("vec_env_cls") == ("one process" if len(cores) == 1 else "several")
    assert given.pop("monitor_dir") == str(tmp_path)
    assert given.pop("seed") == 3
    assert given.pop("closed")
    assert given.pop("frames") == 4
    assert given.pop("policy") == "CnnPolicy"
    del given["vec_env_kwargs"], given["device"]
    for key in {"learning_rate", "clip_range"} & given.keys():
        schedule = given[key]
        clock[0] = 0.0
        given[key] = schedule(1.0)
        for seconds, share in ((1800.0, 0.5), (3600.0, 0.0), (3700.0, 0.0)):
            clock[0] = seconds
            assert schedule(1.0) == share * given[key]
    assert given == ZOO[algorithm]


@pytest.mark.parametrize("library", ["jaxrl", "sample_factory"])
def test_an_hour_of_a_falling_learning_rate_needs_its_steps(library, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hour.py", library, "pong"])
    with pytest.raises(SystemExit):
        load("hour").main()
    assert "--steps is missing" in capsys.readouterr().err


def test_games_of_sample_factory_are_whole_ones(tmp_path, monkeypatch):
    """EnvPool ends an episode with each life; its `info` has whole games and unclipped rewards."""
    hour, steps = load("hour"), []

    def games(name, config, env_config):
        env = gymnasium.Env()
        env.step = lambda actions: steps.pop(0)
        return env

    utils = "sf_examples.envpool.atari.envpool_atari_utils"
    leave_modules({utils: {"make_atari_env": games}}, monkeypatch)
    monkeypatch.setenv(hour.START, "0")
    monkeypatch.setenv(hour.GAMES, str(tmp_path))
    env = hour.make_recorded("atari_x", types.SimpleNamespace(env_agents=3), None)
    assert env.num_agents == 3

    def step(reward, over, life_lost=(0, 0, 0), truncated=(0, 0, 0)):
        info = {"reward": np.array(reward, float), "terminated": np.array(over, bool)}
        ends = np.array(life_lost, bool), np.array(truncated, bool)
        steps.append((None, np.sign(reward), *ends, info))
        assert env.step(None)[-1] is info

    step([7, 1, 0], [0, 0, 0], life_lost=[1, 0, 0])
    step([4, 0, 0], [1, 0, 0], life_lost=[1, 0, 0])
    step([2, 5, 1], [1, 0, 0], truncated=[0, 0, 1])
    found = sorted(hour.games_of_sample_factory(tmp_path))
    assert [(game.steps, game.score) for game in found] == [(2, 11.0), (1, 2.0), (3, 1.0)]


def sample_factory(run_rl, monkeypatch):
    """Loads the example with a Sample Factory that calls `run_rl` to train Pong."""
    spec = types.SimpleNamespace(name="atari_pong", env_id="Pong-v5")
    members = {
        "sample_factory.algo.utils.misc": {
            "ExperimentStatus": types.SimpleNamespace(SUCCESS=0, INTERRUPTED=1)
        },
        "sample_factory.envs.env_utils": {"register_env": lambda name, make: None},
        "sample_factory.train": {"run_rl": run_rl},
        "sf_examples.envpool.atari.envpool_atari_utils": {"ENVPOOL_ATARI_ENVS": [spec]},
        "sf_examples.envpool.atari.train_envpool_atari": {"parse_atari_args": list},
    }
    leave_modules(members, monkeypatch)
    hour = load("hour")
    monkeypatch.setenv(hour.START, str(time.time()))
    return hour


@pytest.mark.parametrize("cores", [{0}, {0, 1}])
def test_sample_factory_trains_in_one_process_where_there_is_one_core(cores, monkeypatch, tmp_path):
    """With several the policy that acts is hundreds of updates old."""
    given = []
    hour = sample_factory(lambda arguments: given.extend(arguments) or 0, monkeypatch)
    monkeypatch.setattr(hour.os, "sched_getaffinity", lambda _: cores)
    hour.train_sample_factory("pong", tmp_path, 1, 5000, 60, ["--env_agents=4"])
    assert ("--serial_mode=True" in given) == (len(cores) == 1)
    assert ("--async_rl=False" in given) == (len(cores) == 1)
    assert ("--env_agents=8" in given) == (len(cores) == 1)
    steps = {"--train_for_env_steps=5000", "--summaries_use_frameskip=False"}  # agent steps
    assert {"--env=atari_pong", *steps} <= set(given)
    assert given[-1] == "--env_agents=4"  # the last one counts


def test_the_hour_of_sample_factory_ends_in_the_background_too(monkeypatch, tmp_path):
    """A shell's job in the background ignores the signal that ends it."""
    ended = []

    def run_rl(arguments):
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            ended.append(time.time())
        return 1  # interrupted

    hour, before = sample_factory(run_rl, monkeypatch), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hour.train_sample_factory("pong", tmp_path, 1, 5000, 0.02, [])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended


def test_every_action_is_tried_at_moments_of_a_game(monkeypatch, capsys):
    example = load("first_actions")
    monkeypatch.setattr(example, "HORIZON", 6)
    example.main("pong", games=1, moments=2, every=10)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith(": 2 moments")
    assert [line.split()[0] for line in lines] == [
        *("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")
    ]
    shares = [float(line.split()[1].rstrip("%")) for line in lines]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert all(" rewards   0.00 " in line for line in lines)
    with pytest.raises(SystemExit, match="no game of 'pong' lasts 100000 steps"):
        example.main("pong", games=0, every=100_000)


def test_a_game_that_ends_gives_fewer_moments_and_says_so(monkeypatch, capsys):
    example = load("first_actions")
    branches, play_on = example.branches, example.branches.play_on
    monkeypatch.setattr(example, "HORIZON", 2)
    policy = jaxrl.load_policy("pong")

    def ends_later(player, moment, steps):
        if moment.step > 5:
            raise branches.GameOverError("step 20: the game ended at agent step 15")
        return play_on(player, moment, steps)

    monkeypatch.setattr(branches, "play_on", ends_later)
    assert len(example.tried(policy, 0, moments=3, every=10)) == 1
    assert "game 0: step 20: the game ended at agent step 15" in capsys.readouterr().err

    def broken(*_, **__):
        raise UserError("something else")

    monkeypatch.setattr(branches, "try_actions", broken)
    with pytest.raises(UserError, match="something else"):
        example.tried(policy, 0, moments=3, every=10)


def test_units_that_no_state_turns_on_are_counted():
    example = load("dead_units")
    policy = jaxrl.load_policy("space_invaders")
    observations = example.states(policy, games=2, steps=20)
    assert observations.shape == (4, 60, 60, 4)
    before = example.dead_units(policy, observations)
    assert before["Conv_0"] == (0, 16)
    params = jax.tree.map(np.array, policy.actor.params)
    bias = params["Torso_0"]["Dense_0"]["Dense_0"]["bias"]
    bias[:] = np.where(np.arange(256) < 200, -1e4, 1e4)
    changed = dataclasses.replace(policy, actor=policy.actor._replace(params=params))
    assert example.dead_units(changed, observations)["Dense_0"] == (200, 256)


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("network", "layers"),
    [
        ({"hidden_norm": True}, {"Conv_0": 16, "Conv_1": 32, "HiddenNorm_0": 256}),
        ({"layer_norm": True}, {"LayerNorm_0": 16, "LayerNorm_1": 32, "LayerNorm_2": 256}),
        ({"torso": "impala"}, {"Dense_0": 256}),
    ],
)
def test_units_are_counted_where_they_are_rectified(network, layers):
    example = load("dead_units")
    frames = {"frame_height": 36, "frame_width": 36}
    config = Config(game="pong").replaced(env=frames, network={"torso": "nips"} | network)
    agent = make_agent(resolve(config), make_engine(config, 1).spec)
    actor = agent.init(jax.random.key(0)).actor
    params = jax.tree.map(np.array, actor.params)
    hidden = params["Torso_0"][list(layers)[-1]]
    hidden.get("Dense_0", hidden)["bias"][:] = np.where(np.arange(256) < 200, -1e4, 1e4)
    policy = Policy(config, actor._replace(params=params), 0)
    observations = np.random.default_rng(0).integers(0, 256, (4, 36, 36, 4)).astype(np.uint8)
    found = example.dead_units(policy, observations)
    assert {name: units for name, (_, units) in found.items()} == layers
    assert list(found.values())[-1] == (200, 256)
