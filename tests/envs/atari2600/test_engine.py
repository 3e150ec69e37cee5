"""The engine against EnvPool's, row by row; what must not change a game changes none."""

import collections
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.atari.games import atari_games, minimal_actions
from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.envs import check_engine, make_engine, make_engines
from jaxrl.envs.atari2600 import engine as atari2600
from jaxrl.envs.atari2600 import library
from jaxrl.envs.base import WHOLE, EnvGroup
from jaxrl.envs.envpool.engine import make_pool
from jaxrl.errors import EngineError, UserError
from jaxrl.runtime.mesh import SHARDED, make_mesh, map_over_devices, put
from jaxrl.types import AXIS
from tests.conftest import chosen, planned

BASE = Config().replaced(
    game="space_invaders",
    env={
        "engine": "atari2600",
        "random_start_steps": 0,
        "num_threads": 1,
        "max_episode_steps": 150,
    },
)
# One no-op or FIRE at the start, so that nothing is drawn by chance, and starts as ALE's own.
LIKE_ENVPOOL = {"noop_max": 1, "exact_resets": True}


def actions_for(config, steps, num_envs):
    count = 18 if config.env.full_action_space else len(minimal_actions(config.game))
    return np.random.default_rng(0).integers(0, count, (steps, num_envs))


def play(config, actions, group=WHOLE):
    """First rows, rows stacked along time, and the color picture at the end."""
    engine = make_engine(config, actions.shape[1], group=group)
    state, first = engine.init(config.seed)

    @jax.jit
    def run(state, actions):
        return jax.lax.scan(lambda s, a: engine.recv(engine.send(s, a)), state, actions)

    _, rows = jax.device_get(run(state, jnp.asarray(actions, jnp.int32)))
    engine.check()
    picture = engine.render()
    engine.close()
    return first, rows, picture


def assert_equals_envpool(config, steps, num_envs=2):
    ours = config.replaced(env=LIKE_ENVPOOL)
    actions = actions_for(ours, steps, num_envs)
    expected = play(ours.replaced(env={"engine": "envpool"}), actions)
    got = play(ours, actions)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    return got[1]


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "game",
    ["breakout", *(pytest.param(g, marks=pytest.mark.slow) for g in ("space_invaders", "qbert"))],
)
def test_rows_equal_envpools(game):
    rows = assert_equals_envpool(BASE.replaced(game=game), 400)
    assert (rows.terminated | rows.truncated).any()
    assert rows.game_over.any()
    assert rows.reset.any()


@pytest.mark.slow
@pytest.mark.rotating(12)
@pytest.mark.parametrize("game", atari_games())
def test_rows_of_every_game_equal_envpools_for_long(game):
    assert_equals_envpool(BASE.replaced(game=game, env={"max_episode_steps": 300}), 700)


LONG = [
    pytest.param(settings, marks=pytest.mark.slow)
    for settings in (
        {"frame_height": 104, "frame_width": 80},
        {"frame_height": 105, "frame_width": 80},
        {"frame_height": 42, "frame_width": 44},
        {"frame_height": 50, "frame_width": 97},
        {"max_episode_steps": 7},
        {"frame_skip": 1},
        {"frame_skip": 5},
    )
]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"episodic_life": False}, marks=pytest.mark.slow),
        pytest.param({"reward_clip": False}, marks=pytest.mark.slow),
        {"fire_reset": False},
        {"full_action_space": True},
        {"frame_height": 60, "frame_width": 60},
        {"frame_skip": 2, "max_episode_steps": 30},
        *LONG,
    ],
    ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()),
)
def test_settings_mean_what_they_mean_to_envpool(settings):
    assert_equals_envpool(BASE.replaced(game="seaquest", env=settings), 120)


@pytest.mark.parametrize(
    ("game", "frame_skip", "steps"),
    [("tic_tac_toe_3d", 1, 100), ("tic_tac_toe_3d", 2, 100), ("video_checkers", 1, 235)],
)
def test_frames_that_are_cut_short_are_seen_as_envpool_sees_them(game, frame_skip, steps):
    """Below them stand lines of the frame before the last, of an earlier step of one frame."""
    assert_equals_envpool(BASE.replaced(game=game, env={"frame_skip": frame_skip}), steps)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 27_000),
        ({"frame_skip": 1}, 108_000),
        ({"frame_skip": 255}, 423),
        ({"frame_skip": 2, "max_episode_steps": 27_000}, 27_000),  # as an older run has it
    ],
)
def test_a_game_lasts_for_108000_frames_where_no_limit_is_set(settings, limit):
    config = Config(game="pong").replaced(env=settings)
    assert library.rules(config.env, (0,), False).max_steps == limit
    pool = make_pool(config.game, config.env, 1, 0)
    assert pool.config["max_episode_steps"] == limit
    pool.close()


def test_frames_larger_than_the_screen_are_refused(capsys):
    arguments = ["--game", "pong", "--env.engine", "atari2600", "--env.frame-height", "212"]
    assert main(["train", "--config", "vtrace_cpu", *arguments]) == 2
    assert "210 x 160" in capsys.readouterr().err


def test_frames_that_go_on_are_seen_as_envpool_sees_them_whatever_a_step_is():
    """Qbert begins a picture in one frame and ends it in the next."""
    assert_equals_envpool(BASE.replaced(game="qbert", env={"frame_skip": 1}), 150)


@pytest.mark.parametrize(("game", "mode", "difficulty"), [("freeway", 3, 1), ("pong", 1, -1)])
def test_games_of_other_modes_are_envpools(game, mode, difficulty):
    assert_equals_envpool(
        BASE.replaced(game=game, env={"mode": mode, "difficulty": difficulty}), 150
    )


@pytest.mark.parametrize("changes", [{"mode": 9}, {"difficulty": 4}])
def test_a_mode_that_the_game_does_not_have_is_refused(changes):
    config = BASE.replaced(game="pong", env=changes)
    ((name, value),) = changes.items()
    with pytest.raises(UserError, match=rf"env.{name} = {value}: pong has 0.* and \d; -1 is"):
        check_engine(config.game, chosen(config))


def test_the_kernels_of_gpus_have_no_modes(monkeypatch):
    """They would play the default game without a word."""
    monkeypatch.setattr(atari2600, "plays_on_gpu", lambda env: True)
    for changes in ({"mode": 1}, {"difficulty": 1}):
        env = BASE.replaced(game="pong", env=changes).env
        with pytest.raises(UserError, match="the GPU plays every game by its defaults yet"):
            atari2600.check_game("pong", env)


def test_games_in_color_are_envpools(capsys):
    config = BASE.replaced(game="pong", env={"grayscale": False})
    with pytest.raises(UserError, match=r"env.grayscale = false: .* --env.engine envpool"):
        check_engine(config.game, chosen(config))
    asked = config.replaced(env={"engine": "auto"})
    atari2600._say_envpool.cache_clear()
    assert [chosen(asked).engine, chosen(asked).engine] == ["envpool", "envpool"]
    said = capsys.readouterr().err
    assert said == "EnvPool plays, which is slower: it has env.grayscale = false\n"


# --- chance --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_games_start_with_one_to_thirty_noops():
    """The first row of Enduro, whose cars move in every frame, tells how many there were."""
    config = BASE.replaced(game="enduro", env={"exact_resets": True})
    first, _, _ = play(config, actions_for(config, 1, 200))
    kinds = collections.Counter(frame.tobytes() for frame in first.frame)
    assert 20 < len(kinds) <= 30


@pytest.mark.slow
def test_sticky_actions_repeat_a_quarter_of_the_frames():
    """In Breakout the paddle's way tells how many frames heard LEFT after many of RIGHT."""
    config = BASE.replaced(game="breakout", env=LIKE_ENVPOOL | {"max_episode_steps": 27_000})
    meanings = minimal_actions("breakout")
    right, left = meanings.index("RIGHT"), meanings.index("LEFT")
    way = np.array([[right]] * 40 + [[left]] * 2)
    envs = np.repeat(way, 400, axis=1)
    sure = play(config, way)[1].frame[-1, 0]
    sticky = play(config.replaced(env={"repeat_action_probability": 0.25}), envs)[1].frame[-1]
    # Of the eight frames each is swallowed while the first LEFT has not been heard: with p = 0.25
    # three in four games look as without stickiness or are one frame behind.
    late = np.mean([(frame != sure).any() for frame in sticky])
    assert 0.15 < late < 0.95
    assert len({frame.tobytes() for frame in sticky}) >= 3


@pytest.mark.slow
def test_a_sticky_action_is_heard_at_once_with_its_probability():
    """Held still, then RIGHT for one step: heard in its first frame, it looks as without chance."""
    settings = LIKE_ENVPOOL | {"fire_reset": False, "max_episode_steps": 27_000}
    config = BASE.replaced(game="breakout", env=settings)
    games, meanings = 500, minimal_actions("breakout")
    way = np.array([[meanings.index("NOOP")]] * 3 + [[meanings.index("RIGHT")]])
    sure = play(config, way)[1].frame[-1, 0]
    for probability in (0.25, 0.6):
        sticky = config.replaced(env={"repeat_action_probability": probability})
        frames = play(sticky, np.repeat(way, games, axis=1))[1].frame[-1]
        heard = np.mean([(frame == sure).all() for frame in frames])
        deviation = (probability * (1 - probability) / games) ** 0.5
        assert abs(heard - (1 - probability)) < 4 * deviation


def test_random_starts_put_games_out_of_step_and_are_quick():
    config = BASE.replaced(game="pong", env={"random_start_steps": 500})
    engine = make_engine(config, 256)
    _, first = engine.init(1)
    engine.close()
    assert len({frame.tobytes() for frame in first.frame}) > 200


def test_same_seed_same_games_other_seed_other_games():
    config = BASE.replaced(env={"random_start_steps": 100, "noop_max": 30})
    actions = actions_for(config, 60, 4)
    one, again, other = (play(config.replaced(seed=seed), actions) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert (one[1].frame != other[1].frame).any()


# --- what changes no game ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "exact"),
    [
        ("qbert", False),
        pytest.param("space_invaders", True, marks=pytest.mark.slow),
        pytest.param("space_invaders", False, marks=pytest.mark.slow),
        pytest.param("alien", False, marks=pytest.mark.slow),
    ],
)
def test_threads_and_interface_change_nothing(game, exact):
    """Nor do the pictures that a thread has drawn for other environments."""
    settings = {"random_start_steps": 60, "exact_resets": exact, "max_episode_steps": 40}
    config = BASE.replaced(game=game, env=settings)
    actions = actions_for(config, 100, 7)
    expected = play(config, actions)
    for change in ({"num_threads": 2}, {"interface": "callback"}):
        got = play(config.replaced(env=change), actions)
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_the_division_into_groups_changes_nothing():
    config = BASE.replaced(env={"random_start_steps": 60})
    actions = actions_for(config, 80, 8)
    _, whole, _ = play(config, actions)
    halves = [
        play(config, actions[:, index * 4 : index * 4 + 4], EnvGroup(index, 2))[1]
        for index in (0, 1)
    ]
    joined = jax.tree.map(lambda *rows: np.concatenate(rows, axis=1), *halves)
    jax.tree.map(np.testing.assert_array_equal, joined, whole)


def test_two_devices_step_two_engines():
    config = BASE.replaced(env={"random_start_steps": 30})
    actions = actions_for(config, 40, 4)
    _, whole, _ = play(config, actions)
    mesh = make_mesh(2)
    engine = make_engine(config, 2, 2)
    env, _ = engine.init(config.seed)
    env = put(mesh, env, SHARDED)

    def program(env, actions):
        return jax.lax.scan(lambda s, a: engine.recv(engine.send(s, a)), env, actions)

    by_time = jax.sharding.PartitionSpec(None, AXIS)
    mapped = map_over_devices(program, mesh, (SHARDED, by_time), (SHARDED, by_time))
    _, rows = jax.device_get(jax.jit(mapped)(env, jnp.asarray(actions, jnp.int32)))
    engine.close()
    jax.tree.map(np.testing.assert_array_equal, rows, whole)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("order", "groups"),
    [
        ("overlapped", 2),
        pytest.param("overlapped", 1, marks=slow),
        pytest.param("strict", 1, marks=slow),
        pytest.param("strict", 2, marks=slow),
    ],
)
@pytest.mark.slow
@pytest.mark.rotating(2)
def test_trains_in_both_orders_and_groups(order, groups, tmp_path):
    arguments = ["--game", "pong", "--env.engine", "atari2600", "--num-envs", "8"]
    arguments += ["--parallel.order", order, "--parallel.groups", str(groups)]
    arguments += ["--total-steps", "400", "--log.interval", "200", "--evaluation.episodes", "0"]
    arguments += ["--network.torso", "nips", "--env.random-start-steps", "20"]
    run = str(tmp_path / "run")
    assert main(["train", "--config", "a2c_fast", *arguments, "--run-dir", run]) == 0


# --- mistakes ------------------------------------------------------------------------------------


def test_actions_are_checked():
    engine = make_engine(BASE, 2)
    env, _ = engine.init(1)
    with pytest.raises(AssertionError):
        engine.send(env, jnp.zeros(3, jnp.int32))
    with pytest.raises(TypeError, match="int32"):
        engine.send(env, jnp.zeros(2, jnp.float32))
    engine.close()
    wild, last = (play(BASE, np.full((30, 2), action))[1] for action in (10_000, 5))
    np.testing.assert_array_equal(wild.frame, last.frame)


@pytest.mark.parametrize("interface", ["xla", "callback"])
def test_stepping_before_init_or_after_close_is_refused(interface):
    engine = make_engine(BASE.replaced(env={"interface": interface}), 2)
    state, _ = engine.init(1)
    step = jax.jit(lambda state: engine.recv(engine.send(state, jnp.zeros(2, jnp.int32))))
    step(state)
    engine.close()
    with pytest.raises(RuntimeError, match="init"):
        engine.send(state, jnp.zeros(2, jnp.int32))
    if interface == "xla":
        with pytest.raises(Exception, match="closed"):
            jax.block_until_ready(step(state))
    else:  # the program ends, and the host is told
        jax.block_until_ready(step(state))
        with pytest.raises(EngineError, match="closed"):
            engine.check()


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_process_is_told_that_it_has_no_threads():
    engine = make_engine(BASE, 2)
    engine.init(1)
    if (child := os.fork()) == 0:
        signal.alarm(20)  # kills it where it waits for threads
        refused = 0
        for call in (
            lambda: engine.send.args[0].pools[0].send(np.zeros(2)),
            engine.render,
            engine.save,
        ):
            try:
                call()
            except EngineError as error:
                refused += "forked" in str(error)
        engine.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert engine.render().any()
    engine.close()


def test_a_game_that_is_not_known_is_refused():
    with pytest.raises(UserError, match="does not play lost_luggage_2 yet"):
        library.screen_shape("lost_luggage_2")


def test_every_game_is_known():
    assert {library.screen_shape(game)[0] for game in atari_games()} == {210, 214, 220, 230, 250}


def test_engines_of_a_plan_hold_its_games():
    config = BASE.replaced(num_envs=8, parallel={"groups": 2, "num_devices": 1})
    engines = make_engines(planned(config))
    assert [engine.spec.num_envs for engine in engines] == [4, 4]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([e.env_ids[0] for e in engines])), range(8)
    )


def test_envpool_is_what_it_is_compared_with():
    """Without the settings that both share, EnvPool would start its games by chance."""
    config = BASE.replaced(env=LIKE_ENVPOOL)
    pool = make_pool(config.game, config.env, 1, 1, num_threads=1)
    assert pool.config["noop_max"] == 1
    pool.close()


def cores_of_threads(num_threads):
    """Returns the cores of each thread that an engine starts and that keeps to one."""
    before = set(os.listdir("/proc/self/task"))
    engine = make_engine(BASE.replaced(env={"num_threads": num_threads}), 4)
    engine.init(1)
    started = set(os.listdir("/proc/self/task")) - before
    cores = [os.sched_getaffinity(int(thread)) for thread in started]
    engine.close()
    assert len(started) >= num_threads
    return sorted(min(allowed) for allowed in cores if len(allowed) == 1)


def test_as_many_threads_as_cores_keep_to_one_each():
    """Of more threads than cores none is bound: the system shares the cores among them."""
    cores = sorted(os.sched_getaffinity(0))
    assert cores_of_threads(len(cores)) == cores
    assert len(cores) == 1 or not cores_of_threads(len(cores) + 1)
