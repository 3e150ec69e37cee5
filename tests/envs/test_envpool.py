"""Every trap of EnvPool, with a test that fails without its remedy."""

import dataclasses
import itertools
import os
import subprocess
import sys
import threading
from functools import partial
from types import SimpleNamespace

import envpool
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.envs.base import WHOLE, check_mode, cores_by_device, first_env_seed, on_cores
from jaxrl.envs.envpool import engine
from jaxrl.envs.envpool.engine import (
    EnvPoolState,
    make_pool,
    time_step,
)
from jaxrl.envs.pools import make_pools
from jaxrl.errors import UserError
from jaxrl.program import episode_statistics, rollout
from jaxrl.runtime import cpus
from jaxrl.runtime.mesh import SHARDED, make_mesh, map_over_devices, put
from jaxrl.types import AXIS, WINDOW, ActorState, Agent

BASE = Config().replaced(
    game="space_invaders", env={"engine": "envpool", "random_start_steps": 0, "num_threads": 1}
)


def scripted(actions):
    """An agent that plays actions[E, ...] by its own step counter, kept in `extras`."""

    def act(actor, observation, key):
        return actions[actor.updates], ()

    return Agent(init=None, act=act, update=None, predict=None, rollout_length=1)


def play(config, actions):
    """Engine rows and stacks, one per action[T, E], all stacked along time."""
    steps, num_envs = actions.shape
    engine = make_engine(config, num_envs)
    env, timestep = engine.init(config.seed)
    keys = jax.random.split(jax.random.key(0), num_envs)
    games = episode_statistics.init(num_envs, 1, counted=True)
    state = rollout.start(env, timestep, keys, games, None)
    agent = scripted(jnp.asarray(actions, jnp.int32))

    @jax.jit
    def run(state):
        def step(state, t):
            state, row = rollout.step(agent, engine, ActorState((), (), t), state)
            return state, (row, state.timestep, state.observation, state.episodes)

        return jax.lax.scan(step, state, jnp.arange(steps))[1]

    rows, timesteps, stacks, games = jax.device_get(run(state))
    engine.close()
    return rows, timesteps, stacks, games


def raw(config, actions, **options):
    """Plays the same actions in EnvPool itself: observations and answers by step."""
    pool = make_pool(config.game, config.env, actions.shape[1], first_env_seed(config.seed),
                     num_threads=1, **options)  # fmt: skip
    first, _ = pool.reset()
    answers = [pool.step(action.astype(np.int32)) for action in actions]
    pool.close()
    return first, answers


def random_actions(steps, num_envs):
    # Every game here has these four; what EnvPool is given is not bounds-checked.
    return np.random.default_rng(0).integers(0, 4, (steps, num_envs))


SHORT = BASE.replaced(env={"max_episode_steps": 10})


def play_short_episodes():
    """Actions, rows, time steps and stacks of 25 steps in episodes of 10, and EnvPool's answers."""
    actions = random_actions(25, 2)
    rows, timesteps, stacks, _ = play(SHORT, actions)
    return actions, rows, timesteps, stacks, raw(SHORT, actions)[1]


# --- the reset row -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_the_row_after_an_end_is_a_dummy_and_is_marked():
    actions, rows, timesteps, _, answers = play_short_episodes()
    ends = np.array([a[2] | a[3] for a in answers])
    expected = np.concatenate([np.zeros((1, 2), bool), ends[:-1]])
    assert expected.any()
    np.testing.assert_array_equal(timesteps.reset, expected)
    np.testing.assert_array_equal(rows.valid, ~expected)
    assert (timesteps.reward[expected] == 0).all()
    # It really ignores its action: another action there changes nothing.
    others = np.where(expected, (actions + 1) % 4, actions)
    assert (others != actions).any()
    _, changed, _, _ = play(SHORT, others)
    np.testing.assert_array_equal(changed.frame, timesteps.frame)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_lost_life_resets_without_resetting_the_step_counter():
    # So `elapsed_step == 0` is no sign of a reset row; the row before is.
    config = dataclasses.replace(BASE, game="breakout")
    actions = random_actions(300, 2)
    _, timesteps, _, _ = play(config, actions)
    _, answers = raw(config, actions)
    elapsed = np.array([a[4]["elapsed_step"] for a in answers])
    after_life = timesteps.reset & ~np.roll(timesteps.game_over, 1, axis=0)
    assert after_life[1:].any()
    assert (elapsed[after_life] != 0).all()


# --- truncation ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_truncation_bootstraps_from_the_true_last_frame():
    _, rows, timesteps, stacks, answers = play_short_episodes()
    truncated = np.array([a[3] for a in answers])
    assert truncated.any()
    np.testing.assert_array_equal(timesteps.truncated, truncated)
    assert (rows.discount[truncated] == 1).all()
    assert rows.valid[truncated].all()
    frames = np.array([a[0][:, 0] for a in answers])
    # The observation after the truncated action ends in the frame that came with it, and the
    # stack is not refilled before the reset row.
    np.testing.assert_array_equal(stacks[truncated][..., -1], frames[truncated])
    assert (stacks[truncated][..., 0] != stacks[truncated][..., -1]).any()


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_termination_does_not_bootstrap():
    config = dataclasses.replace(BASE, game="breakout")
    rows, timesteps, _, _ = play(config, random_actions(300, 2))
    assert timesteps.terminated.any()
    np.testing.assert_array_equal(rows.discount == 0, timesteps.terminated)


# --- score and lives -----------------------------------------------------------------------------


@pytest.mark.slow
def test_scores_are_of_whole_games_and_unclipped():
    actions = random_actions(1200, 2)
    _, timesteps, _, games = play(BASE, actions)
    _, answers = raw(BASE, actions)
    assert timesteps.terminated.sum() > 2 * timesteps.game_over.sum() > 0  # 3 lives a game
    assert set(np.unique(timesteps.reward)) <= {-1.0, 0.0, 1.0}
    assert timesteps.score.max() >= 5.0
    expected = []
    for env in range(2):
        score = 0.0
        for answer in answers:
            score += answer[4]["reward"][env]
            if answer[4]["terminated"][env] or answer[3][env]:
                expected.append(score)
                score = 0.0
    assert games.ended[-1, 0] == len(expected)
    np.testing.assert_allclose(sorted(games.scores[-1][: len(expected)]), sorted(expected))


@pytest.mark.slow
def test_without_episodic_life_only_the_game_ends_the_episode():
    config = BASE.replaced(env={"episodic_life": False})
    _, timesteps, _, _ = play(config, random_actions(1200, 2))
    assert timesteps.game_over.any()
    np.testing.assert_array_equal(timesteps.terminated | timesteps.truncated, timesteps.game_over)


@pytest.mark.slow
def test_lives_never_rise_without_a_closed_game():
    """Road Runner loses lives within the no-ops of a reset; the last of them is not reported."""
    config = dataclasses.replace(BASE, game="road_runner")
    actions = np.random.default_rng(0).integers(0, 18, (800, 6))
    _, timesteps, stacks, games = play(config, actions)
    _, answers = raw(config, actions, stack_num=4)
    lives = np.array([a[4]["lives"] for a in answers])
    rises = np.concatenate([np.zeros((1, 6), bool), np.diff(lives, axis=0) > 0])
    closed = timesteps.game_over
    unseen = rises & ~np.roll(closed, 1, axis=0)
    assert unseen.sum() > 2
    np.testing.assert_array_equal(unseen, closed & timesteps.reset)
    # A new game has a new stack and a new score.
    for stack, answer in zip(stacks, answers, strict=True):
        np.testing.assert_array_equal(stack, answer[0].transpose(0, 2, 3, 1))
    expected = []
    for env in range(6):
        score = length = 0
        for t, answer in enumerate(answers):
            if unseen[t, env]:
                expected.append((score, length))
                score = length = 0
            score += answer[4]["reward"][env]
            length += not timesteps.reset[t, env]
            # A game that FIRE ends is over in the reset row, and again in the next.
            over = answer[4]["terminated"][env] and not timesteps.reset[t, env]
            if over or answer[3][env]:
                expected.append((score, length))
                score = length = 0
    number = int(games.ended[-1, 0])
    assert number == len(expected) < WINDOW
    games_ended = zip(games.scores[-1][:number], games.lengths[-1][:number], strict=True)
    assert sorted(games_ended) == sorted(expected)


def test_a_game_over_that_a_reset_reports_is_told_by_the_row_after_it():
    """FIRE ends the game: EnvPool's reset row says so, and so does the next; it is one end."""
    info = {"terminated": np.ones(1, int), "lives": np.zeros(1, int), "reward": np.zeros(1)}
    no = np.zeros(1, bool)
    before = EnvPoolState(None, done=~no, game_over=no, lives=np.ones(1, int))
    answer = (np.zeros((1, 1, 84, 84)), np.zeros(1), no, no, info)
    reset = time_step(answer, before, episodic_life=True)
    assert not reset.game_over[0]
    after = before.after(None, reset, info["lives"])
    end = time_step((*answer[:2], ~no, no, info), after, episodic_life=True)
    assert (bool(end.game_over[0]), bool(end.reset[0])) == (True, False)


# --- stacks --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("episodic_life", [True, False])
@pytest.mark.parametrize("limit", [90, 27_000])
def test_stacks_equal_those_of_envpool(episodic_life, limit):
    config = BASE.replaced(
        game="breakout", env={"episodic_life": episodic_life, "max_episode_steps": limit}
    )
    actions = random_actions(400, 3)
    _, timesteps, stacks, _ = play(config, actions)
    _, answers = raw(config, actions, stack_num=4)
    assert timesteps.reset.sum() > 3
    oracle = np.array([a[0] for a in answers]).transpose(0, 1, 3, 4, 2)
    np.testing.assert_array_equal(stacks, oracle)


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_devices_step_two_pools():
    actions = random_actions(20, 4)
    mesh = make_mesh(2)
    engine = make_engine(BASE, num_envs=2, num_local_devices=2)
    env, first = engine.init(BASE.seed)
    env = put(mesh, env, SHARDED)

    def program(env, actions):
        def step(env, action):
            return engine.recv(engine.send(env, action))

        return jax.lax.scan(step, env, actions)

    by_time = jax.sharding.PartitionSpec(None, AXIS)
    mapped = map_over_devices(program, mesh, (SHARDED, by_time), (SHARDED, by_time))
    _, timesteps = jax.jit(mapped)(env, jnp.asarray(actions, jnp.int32))
    timesteps = jax.device_get(timesteps)
    engine.close()
    # One pool with the seeds of both plays the same games, so nothing was stepped twice.
    start, answers = raw(BASE, actions)
    np.testing.assert_array_equal(first.frame, start[:, 0])
    np.testing.assert_array_equal(timesteps.frame, np.array([a[0][:, 0] for a in answers]))
    assert (timesteps.frame[-1, :2] != timesteps.frame[-1, 2:]).any()


# --- actions -------------------------------------------------------------------------------------


def test_modes_that_the_game_does_not_have_are_refused():
    check_mode("pong", BASE.replaced(env={"mode": 1, "difficulty": 1}).env)
    for changes, told in (({"mode": 99}, "0 and 1"), ({"difficulty": 7}, "0, 1, 2 and 3")):
        env = BASE.replaced(env=changes).env
        ((name, value),) = changes.items()
        with pytest.raises(UserError, match=f"env.{name} = {value}: pong has {told}; -1 is the"):
            check_mode("pong", env)


def test_actions_of_a_wrong_shape_or_type_are_refused():
    engine = make_engine(BASE, 2)
    env, _ = engine.init(1)
    send = jax.jit(engine.send)
    for wrong in (jnp.zeros(3, jnp.int32), jnp.zeros((2, 1), jnp.int32)):
        with pytest.raises(AssertionError):
            send(env, wrong)
    env = engine.send(env, jnp.zeros(2, jnp.int32))  # EnvPool itself checks the first call only
    env, _ = engine.recv(env)
    with pytest.raises(TypeError, match="int32"):
        send(env, jnp.zeros(2, jnp.float32))
    engine.close()


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_actions_out_of_range_do_not_reach_the_emulator():
    _, wild, _, _ = play(BASE, np.full((30, 2), 10_000))
    _, last, _, _ = play(BASE, np.full((30, 2), 5))
    np.testing.assert_array_equal(wild.frame, last.frame)


def test_stepping_before_init_is_refused():
    engine = make_engine(BASE, 2)
    with pytest.raises(RuntimeError, match="init"):
        engine.send(
            EnvPoolState(jnp.zeros(8, jnp.uint8), *jnp.zeros((3, 2), int)), jnp.zeros(2, jnp.int32)
        )


# --- settings ------------------------------------------------------------------------------------


def test_no_fire_is_pressed_for_agents_with_all_actions():
    pressed = partial(make_pool, BASE.game, num_envs=1, seed=3)
    full = pressed(dataclasses.replace(BASE.env, full_action_space=True))
    assert not full.config["use_fire_reset"]
    assert pressed(BASE.env).config["use_fire_reset"]


def test_runs_and_devices_never_share_a_seed():
    spans = [range(first_env_seed(s), first_env_seed(s) + 512) for s in range(50)]
    assert all(span.start >= 0 and span.stop <= 2**31 for span in spans)
    ends = sorted((span.start, span.stop) for span in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_same_seed_same_games_other_seed_other_games():
    frames = [play(dataclasses.replace(BASE, seed=s), random_actions(40, 2))[1].frame
              for s in (1, 1, 2)]  # fmt: skip
    np.testing.assert_array_equal(frames[0], frames[1])
    assert (frames[0] != frames[2]).any()


def start_draws(num_envs, max_steps):
    """Draws from each environment's generator: the number of steps, and the actions."""
    first = first_env_seed(1)
    random = [np.random.default_rng(first + env) for env in range(num_envs)]
    steps = [int(g.integers(0, max_steps + 1)) for g in random]
    return first, steps, [g.integers(0, 6, max_steps, np.int32) for g in random]


@pytest.mark.slow
def test_random_starts_move_each_environment_by_its_own_number_of_steps():
    config = BASE.replaced(env={"random_start_steps": 40})
    engine = make_engine(config, 6)
    _, timestep = engine.init(1)
    engine.close()
    first, steps, actions = start_draws(6, 40)
    assert len(set(steps)) > 3
    for env in range(6):
        pool = make_pool(config.game, config.env, 1, first + env)
        frame, _ = pool.reset()
        for action in actions[env][: steps[env]]:
            frame, *_ = pool.step(np.array([action]))
        pool.close()
        np.testing.assert_array_equal(timestep.frame[env], frame[0, 0])


@pytest.mark.slow
def test_random_starts_tell_the_lives_that_are_left():
    config = BASE.replaced(game="breakout", env={"random_start_steps": 300})
    engine = make_engine(config, 6)
    env, timestep = engine.init(1)
    engine.close()
    first = first_env_seed(1)
    for number in range(6):
        random = np.random.default_rng(first + number)
        steps = int(random.integers(0, 301))
        pool = make_pool(config.game, config.env, 1, first + number)
        lives = pool.reset()[1]["lives"]
        terminated = np.zeros(1, bool)
        for action in random.integers(0, 4, 300, np.int32)[:steps]:
            _, _, terminated, _, info = pool.step(np.array([action]))
            lives = info["lives"]
        pool.close()
        assert env.lives[number] == lives[0]
        assert env.done[number] == terminated[0]
    assert len(set(env.lives.tolist())) > 2
    np.testing.assert_array_equal(env.game_over, timestep.game_over)


@pytest.mark.slow
def test_random_starts_do_not_depend_on_how_games_are_spread_over_pools():
    config = BASE.replaced(env={"random_start_steps": 40})
    frames = []
    for devices in (1, 2):
        engine = make_engine(config, 4 // devices, devices)
        frames.append(engine.init(1)[1].frame)
        engine.close()
    np.testing.assert_array_equal(*frames)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_start_that_ended_a_game_is_followed_by_its_reset():
    config = BASE.replaced(env={"random_start_steps": 9, "max_episode_steps": 4})
    engine = make_engine(config, 8)
    env, _ = engine.init(1)
    _, steps, _ = start_draws(8, 9)
    # Steps 1 to 4 are a game, 5 is the reset, 6 to 9 the next game.
    ended = np.isin(steps, [4, 9])
    assert 0 < ended.sum() < 8
    _, timestep = engine.recv(engine.send(env, jnp.zeros(8, jnp.int32)))
    np.testing.assert_array_equal(timestep.reset, ended)
    engine.close()


def test_envpool_itself_still_resets_on_the_next_step():
    # The engine is written for this; should it change, this says so first.
    pool = envpool.make("Pong-v5", env_type="gymnasium", num_envs=1, max_episode_steps=3)
    pool.reset()
    truncated, elapsed = [], []
    for _ in range(5):
        _, _, _, end, info = pool.step(np.zeros(1, np.int32))
        truncated.append(bool(end[0]))
        elapsed.append(int(info["elapsed_step"][0]))
    assert truncated == [False, False, True, False, False]
    assert elapsed == [1, 2, 3, 0, 1]


@pytest.mark.slow
def test_playing_leaves_matplotlibs_backend_alone():
    # `import envpool` sets it, and notebooks would then draw nothing.
    code = (
        "import os; from jaxrl.config.schema import Config;"
        "from jaxrl.envs.envpool.engine import make_pool;"
        "make_pool('pong', Config().env, 1, 1); assert 'MPLBACKEND' not in os.environ"
    )
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize(
    ("cores", "devices", "shares"),
    [
        ([0, 1, 2, 3], 1, [[0, 1, 2, 3]]),
        ([4, 5, 6, 7, 12], 2, [[4, 5], [6, 7]]),  # what a launcher left, not from 0
        ([0, 1], 3, [[0], [1], [0]]),  # more devices than cores take turns
    ],
)
def test_devices_divide_the_cores_of_the_process(monkeypatch, cores, devices, shares):
    monkeypatch.setattr(cpus, "cores", lambda: cores)
    assert cores_by_device(devices) == shares


@pytest.mark.parametrize(("devices", "num_threads"), [(1, 3), (2, 1), (4, 1)])
def test_emulators_have_as_many_threads_as_the_cpu_time_allows(monkeypatch, devices, num_threads):
    monkeypatch.setattr(cpus, "cores", lambda: list(range(8)))
    monkeypatch.setattr(cpus, "time_limit", lambda: 2.5)
    config = BASE.replaced(env={"num_threads": 0})
    pools = make_pools("EnvPool", config.game, config.env, 16, devices, WHOLE, uses_xla=True)
    assert pools.num_threads() == num_threads
    single = make_pools("EnvPool", BASE.game, BASE.env, 16, 1, WHOLE, uses_xla=True)
    assert single.num_threads() == 1
    assert sum(map(len, pools.cores)) == 8  # which cores they take is the system's choice
    monkeypatch.setattr(engine, "_import_envpool", lambda: SimpleNamespace(make=lambda _, **x: x))
    assert make_pool(config.game, config.env, 16, 1)["num_threads"] == 3
    assert make_pool(config.game, config.env, 2, 1)["num_threads"] == 2


def test_threads_stay_on_the_cores_they_are_made_on():
    before = os.sched_getaffinity(0)
    one = min(before)
    seen = []
    with on_cores([one]):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [{one}]
    assert os.sched_getaffinity(0) == before
