"""The vector environment against ale-py's, its oracle; what only it has, against itself."""

import collections
import dataclasses
import inspect
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from jaxrl.envs.atari2600 import VectorEnv, vector_env, vector_library
from jaxrl.envs.atari2600.vector_options import VectorOptions
from jaxrl.errors import DamagedError, UserError
from jaxrl.runtime import cpus

SAME_STEP = {"autoreset_mode": "SameStep"}
SHORT = {"max_num_frames_per_episode": 401}
STICKY = {"repeat_action_probability": 0.25}
# Each with a game in which it shows.
QUICK = [
    ("pong", {}),
    ("breakout", SAME_STEP | STICKY | {"episodic_life": True}),
    ("breakout", {"continuous": True}),  # paddles
    ("space_invaders", SAME_STEP | {"frameskip": 1, "max_num_frames_per_episode": 100}),
    ("qbert", SAME_STEP | {"life_loss_info": True, "img_height": 70, "img_width": 80}),
    ("berzerk", STICKY | {"full_action_space": True}),  # ALE acts while it starts the game
    ("adventure", {"img_height": 250, "img_width": 160}),  # made for European televisions
]
SLOW = [
    ("air_raid", {"img_height": 250, "img_width": 160, "grayscale": False, "maxpool": False}),
    ("breakout", {"episodic_life": True}),
    ("space_invaders", SHORT | {"maxpool": False}),
    ("space_invaders", SHORT | {"frameskip": 5, "grayscale": False}),
    ("space_invaders", {"continuous": True, "continuous_action_threshold": 0.2}),
    ("seaquest", {"life_loss_info": True, "stack_num": 1, "img_height": 104, "img_width": 80}),
    ("seaquest", {"img_height": 210, "img_width": 160, "grayscale": False, "stack_num": 2}),
    ("name_this_game", {"reward_clipping": False}),  # it presses SELECT 134 times
    ("surround", {"noop_max": 0, "use_fire_reset": False}),
    ("alien", STICKY | {"noop_max": 200, "repeat_action_probability": 0.9}),
    ("skiing", {"full_action_space": True, "max_num_frames_per_episode": 7}),  # without FIRE
    ("adventure", {"img_height": 16, "img_width": 16}),
]
OPTIONS = [
    *QUICK,
    *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
]


def named(options):
    return "-".join(f"{key}={value}" for key, value in options.items()) or "defaults"


class Both:
    """The environment and its oracle in step; whatever both return is equal."""

    def __init__(self, game, num_envs, **options):
        self.ours = VectorEnv(game, num_envs, **options)
        self.oracle = AtariVectorEnv(game, num_envs, **options)
        for space in ("action_space", "observation_space"):
            for prefix in ("", "single_"):
                assert getattr(self.ours, prefix + space) == getattr(self.oracle, prefix + space)
        assert self.ours.metadata == self.oracle.metadata
        self.ours.action_space.seed(0)
        self.ends = self.games = 0
        self.frames = None  # of each episode

    def reset(self, **arguments):
        self.compare(self.ours.reset(**arguments), self.oracle.reset(**arguments))

    def step(self):
        actions = self.ours.action_space.sample()
        _, _, terminated, truncated, _ = self.compare(
            self.ours.step(actions), self.oracle.step(actions)
        )
        self.ends += (terminated | truncated).sum()

    def compare(self, got, expected):
        infos, oracles = dict(got[-1]), dict(expected[-1])
        self.compare_final(infos.pop("final_obs", None), oracles.pop("final_obs", None), got)
        assert list(infos) == list(oracles)
        self.frames = infos["episode_frame_number"]
        for one, other in zip(
            [*got[:-1], *infos.values()], [*expected[:-1], *oracles.values()], strict=True
        ):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        return got

    def compare_final(self, got, expected, rows):
        """Only those rows are ALE's whose episode is over; a lost life may be reported alone."""
        assert (got is None) == (expected is None)
        if got is None:
            return
        ends, began = rows[2] | rows[3], rows[-1]["episode_frame_number"] < self.frames
        np.testing.assert_array_equal(got[began], expected[began])
        np.testing.assert_array_equal(got[ends & ~began], rows[0][ends & ~began])
        assert not got[~ends].any()
        self.games += began.sum()

    def close(self):
        self.ours.close()
        self.oracle.close()


# --- as ale-py's ---------------------------------------------------------------------------------


def test_options_are_ales_and_some_more():
    oracle = inspect.signature(AtariVectorEnv).parameters
    ours = {field.name: field.default for field in dataclasses.fields(VectorOptions)}
    own = {"fast_resets": False, "mode": None, "difficulty": None, "ram": False}
    assert list(ours) == [*oracle, *own]
    assert {name: ours[name] for name in own} == own
    for name, parameter in list(oracle.items())[2:]:
        assert ours[name] == parameter.default


@pytest.mark.parametrize(
    "options", [{}, SAME_STEP | {"continuous": True, "grayscale": False}], ids=named
)
def test_attributes_are_ales(options):
    both = Both("pong", 2, **options)
    # Its own interface, and what its xla() remembers.
    names = vars(both.oracle).keys() - {"ale", "is_xla_registered"}
    assert {"autoreset_mode", "continuous_action_threshold", "map_action_idx"} < names
    for name in names:
        one, other = getattr(both.ours, name), getattr(both.oracle, name)
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other, name)
    assert both.ours.map_action_idx.dtype == both.oracle.map_action_idx.dtype
    both.close()


@pytest.mark.parametrize(
    ("game", "options"), OPTIONS, ids=[f"{g}-{named(o)}" for g, o in QUICK + SLOW]
)
def test_equals_ales(game, options):
    """The same seed plays the same games, with their no-ops and sticky actions drawn by chance."""
    both = Both(game, 2, **options)
    both.reset(seed=3)
    for _ in range(200):
        both.step()
    if options.get("episodic_life") or "max_num_frames_per_episode" in options:
        assert both.ends
    if options.keys() >= SAME_STEP.keys() | {"episodic_life"}:
        assert both.games
    both.close()


# Paddles; joysticks; frames without an end; banks of every kind; European televisions.
FOR_LONG = (
    *("pong", "breakout", "space_invaders", "qbert", "surround", "skiing", "ms_pacman"),
    *("montezuma_revenge", "road_runner", "robotank", "pitfall2", "pooyan", "journey_escape"),
    *("king_kong", "mr_do", "tic_tac_toe_3d", "double_dunk"),
)


@pytest.mark.slow
@pytest.mark.rotating(4)
@pytest.mark.parametrize("game", FOR_LONG)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_games_of_every_kind_equal_ales_for_long(game, mode):
    sticky = STICKY if game != "double_dunk" else {}  # ALE's disturbs its own way through the menu
    options = sticky | {"autoreset_mode": mode, "episodic_life": mode == "SameStep"}
    both = Both(game, 2, **options)
    both.reset(seed=5)
    for _ in range(700):
        both.step()
    both.close()


@pytest.mark.slow
def test_parts_are_reset_as_ales():
    both = Both("space_invaders", 3, **SHORT)
    both.reset(seed=np.array([7, 3, 7]))
    masks = np.random.default_rng(0).random((6, 3)) < 0.5
    for seed, mask in zip([None, 5, None, 8, None, None], masks, strict=True):
        for _ in range(20):
            both.step()
        both.reset(seed=seed, options={"reset_mask": mask})
    both.reset()
    both.step()
    both.reset(seed=1)
    both.close()


# --- as Gymnasium's ------------------------------------------------------------------------------


def test_what_it_returns_is_in_its_spaces():
    envs = VectorEnv("pong", 3, **SAME_STEP, **SHORT)
    assert isinstance(envs.unwrapped, gymnasium.vector.VectorEnv)
    assert envs.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    observations, _ = envs.reset()
    for _ in range(120):
        assert observations in envs.observation_space
        assert observations[1] in envs.single_observation_space
        actions = envs.action_space.sample()
        assert actions[0] in envs.single_action_space
        observations, rewards, *ends, infos = envs.step(actions)
        for array in (rewards, *ends, *infos.values()):
            assert len(array) == 3
    envs.close()
    assert envs.closed


def test_wrappers_of_gymnasium_count_its_episodes():
    envs = RecordEpisodeStatistics(VectorEnv("pong", 2, max_num_frames_per_episode=80))
    envs.reset(seed=1)
    found = [envs.step(np.zeros(2, np.int64)) for _ in range(20)]
    np.testing.assert_array_equal(found[-1][3], [True, True])
    np.testing.assert_array_equal(found[-1][4]["episode"]["l"], [20, 20])
    envs.close()


def test_arrays_are_the_callers():
    envs = VectorEnv("pong", 2, **SAME_STEP, max_num_frames_per_episode=20)
    first, _ = envs.reset(seed=1)
    kept, arrays = first.copy(), []
    for _ in range(20):
        observations, *_, infos = envs.step(np.array([2, 3]))
        arrays.append((infos.get("final_obs", observations), observations))
    copies = [(one.copy(), other.copy()) for one, other in arrays]
    for _ in range(20):
        envs.step(np.array([3, 2]))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(arrays, copies)
    envs.close()


@pytest.mark.parametrize("is_called", [False, True])
def test_an_interrupt_loses_at_most_a_batch(monkeypatch, is_called):
    """Ctrl-C comes before C++ is called, or when it has the addresses of the next batch."""
    envs, whole = (VectorEnv("breakout", 2) for _ in range(2))
    receive = envs._engine._functions.jaxrl_vector_receive

    def interrupted(*arguments):
        if is_called:
            receive(*arguments)
        raise KeyboardInterrupt

    functions = vars(envs._engine._functions) | {"jaxrl_vector_receive": interrupted}
    for one in (envs, whole):
        one.reset(seed=1)
    action = np.array([2, 3])
    whole.step(action)
    with monkeypatch.context() as patch:
        patch.setattr(envs._engine, "_functions", SimpleNamespace(**functions))
        with pytest.raises(KeyboardInterrupt):
            envs.step(action)
    if not is_called:
        envs.recv()
    for _ in range(3):
        got, expected = envs.step(action), whole.step(action)
        for one, other in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(got[4]["frame_number"], expected[4]["frame_number"])
    assert len(envs._engine._batches) == 1
    for one in (envs, whole):
        one.close()


def test_a_step_that_was_given_up_leaves_no_final_observation():
    envs = VectorEnv("pong", 4, **SAME_STEP, max_num_frames_per_episode=8)
    envs.reset(seed=1)
    noops = np.zeros(4, np.int64)
    envs.step(noops)
    envs.send(noops)  # all episodes end
    envs.reset()
    envs.step(noops)
    envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    *_, infos = envs.step(noops)  # those of the others end
    assert infos["final_obs"][1:].any()
    assert not infos["final_obs"][0].any()
    envs.close()


def test_a_forked_process_is_told_that_it_has_no_threads_and_ends():
    code = """
import gc, os, sys
import numpy as np
from jaxrl.envs.atari2600 import VectorEnv
envs = VectorEnv("pong", 2)
envs.reset()
actions, games = np.zeros(2, int), envs.save()
calls = envs.reset, lambda: envs.step(actions), lambda: envs.send(actions), envs.recv, envs.save
if os.fork() == 0:
    refused = 0
    for call in (*calls, lambda: envs.load(games)):
        try:
            call()
        except RuntimeError as error:
            refused += "the process that this one was forked from" in str(error)
    own = VectorEnv("pong", 1)
    own.reset()
    del envs, calls, call
    gc.collect()
    sys.exit(10 * len(own.step(np.zeros(1, int))[0]) + refused)
print(os.waitstatus_to_exitcode(os.wait()[1]))
print(len(envs.step(actions)[0]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "16\n2\n", done.stderr


# --- asynchronous --------------------------------------------------------------------------------


def test_threads_are_as_many_as_the_process_may_use(monkeypatch):
    started = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    opens = vector_library.load().jaxrl_vector_open

    def count(*arguments):
        started.append(arguments[5])
        return opens(*arguments)

    monkeypatch.setattr(vector_library.load(), "jaxrl_vector_open", count)
    for wanted in (0, 3):
        VectorEnv("pong", 4, num_threads=wanted).close()
    assert started == [1, 1]


def test_threads_are_bound_to_cores_that_the_process_may_use():
    """Core 0 of a process that may use one core is that one, whichever number it has."""
    code = """
import os, pathlib
core = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
from jaxrl.envs.atari2600 import VectorEnv
envs = VectorEnv("pong", 2, thread_affinity_offset=0)
cores = [os.sched_getaffinity(int(task.name)) for task in pathlib.Path("/proc/self/task").iterdir()]
print(len(cores) > 1 and all(own == {core} for own in cores))
"""
    assert run_alone(code).stdout == "True\n"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 0),
        ({"num_threads": 3}, -1),
        ({"thread_affinity_offset": 2}, 2),
        ({"batch_size": 2}, -1),
    ],
)
def test_threads_are_bound_where_every_core_has_one(options, first, monkeypatch):
    monkeypatch.setattr(cpus, "cores", lambda: [1, 3, 5, 7])
    monkeypatch.setattr(cpus, "time_limit", lambda: None)
    assert VectorOptions("pong", 4, **options).first_core == first


def play(actions, batch_size, **options):
    """Rows of each environment, which plays its own column of actions."""
    steps, num_envs = actions.shape
    envs = VectorEnv("breakout", num_envs, batch_size=batch_size, episodic_life=True, **options)
    rows = [[] for _ in range(num_envs)]
    observations, infos = envs.reset(seed=1)
    values = [np.zeros(len(observations))] * 3
    while True:
        for place, env in enumerate(infos["env_id"]):
            row = [observations[place].tobytes(), *(int(value[place]) for value in values)]
            row += [int(infos[name][place]) for name in ("lives", "frame_number")]
            if values[1][place] and "final_obs" in infos:
                row.append(infos["final_obs"][place].tobytes())
            rows[env].append(row)
        played = [len(rows[env]) - 1 for env in infos["env_id"]]
        if min(len(row) for row in rows) >= steps:
            break
        envs.send(actions[np.array(played) % steps, infos["env_id"]])
        observations, *values, infos = envs.recv()
    envs.close()
    return rows


@pytest.mark.parametrize(
    ("num_envs", "options", "num_threads"), [(8, {}, 3), (2, {}, 2), (8, {"num_threads": 1}, 1)]
)
def test_it_starts_as_many_threads_as_the_cpu_time_allows(
    num_envs, options, num_threads, monkeypatch
):
    monkeypatch.setattr(cpus, "cores", lambda: list(range(8)))
    monkeypatch.setattr(cpus, "time_limit", lambda: 2.5)
    monkeypatch.setattr(vector_env, "VectorEngine", engine := Mock())
    VectorEnv("pong", num_envs, **options)
    assert engine.call_args.kwargs["num_threads"] == num_threads


@pytest.mark.parametrize("options", [{}, SAME_STEP], ids=named)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_batches_of_the_first_that_are_ready_change_no_game(num_threads, options):
    actions = np.random.default_rng(0).integers(0, 4, (120, 5))
    whole = play(actions, 5, **options)
    assert [len(rows) for rows in whole] == [120] * 5
    parts = play(actions, 2, num_threads=num_threads, **options)
    for one, other in zip(parts, whole, strict=True):
        assert one[:120] == other


def test_a_batch_holds_those_that_are_ready():
    envs = VectorEnv("pong", 6, batch_size=2, thread_affinity_offset=0)
    assert envs.observation_space.shape == (2, 4, 84, 84)
    assert envs.action_space.shape == (2,)
    _, infos = envs.reset(seed=1)
    seen = collections.Counter(infos["env_id"])
    for _ in range(60):
        _, _, _, _, infos = envs.step(envs.action_space.sample())
        assert len(set(infos["env_id"])) == 2
        seen.update(infos["env_id"])
    assert set(seen) == set(range(6))
    envs.reset()  # while four are under way
    envs.step(envs.action_space.sample())
    with pytest.raises(ValueError, match="batch_size = num_envs"):
        envs.reset(options={"reset_mask": np.arange(6) < 3})
    for refused in (envs.save, lambda: envs.load(np.zeros((6, 1), np.uint8))):
        with pytest.raises(UserError, match="batch_size = num_envs"):
            refused()
    envs.close()


# --- snapshots -----------------------------------------------------------------------------------


def run(envs, actions):
    """What steps return, as bytes."""
    rows = []
    for action in actions:
        *arrays, infos = envs.step(action)
        rows.append([array.tobytes() for array in [*arrays, *infos.values()]])
    return rows


SAVED = STICKY | {"episodic_life": True, "noop_max": 5}


@pytest.mark.parametrize(
    "options",
    [SAVED, SAVED | SAME_STEP | {"grayscale": False}, SAVED | {"fast_resets": True}],
    ids=named,
)
def test_saved_games_go_on_bit_for_bit(options):
    """Also over ends, which show what an earlier row has left, and in another process's engine."""
    actions = np.random.default_rng(0).integers(0, 4, (160, 3))
    envs = VectorEnv("breakout", 3, **options)
    envs.reset(seed=1)
    ends = 0
    for action in actions[:40]:
        observations, _, terminated, _, infos = envs.step(action)
        ends += terminated.sum()
    saved = envs.save()
    assert saved.shape[0] == 3
    expected = run(envs, actions[40:])
    for other in (envs, VectorEnv("breakout", 3, **options)):
        shown, shown_infos = other.load(saved.copy())
        np.testing.assert_array_equal(shown, observations)
        for name, values in shown_infos.items():
            np.testing.assert_array_equal(values, infos[name])
        np.testing.assert_array_equal(other.save(), saved)
        assert run(other, actions[40:]) == expected
        other.close()


def test_a_game_goes_on_in_every_environment():
    envs = VectorEnv("seaquest", 4)
    envs.reset(seed=1)
    run(envs, np.random.default_rng(0).integers(0, 18, (50, 4)))
    observations, infos = envs.load(envs.save()[[2, 2, 2, 2]])
    assert infos["env_id"].tolist() == [0, 1, 2, 3]
    for array in (observations, infos["frame_number"]):
        np.testing.assert_array_equal(array, array[[0, 0, 0, 0]])
    observations, *_ = envs.step(np.array([2, 2, 5, 5]))
    np.testing.assert_array_equal(observations[0], observations[1])
    envs.close()


def test_snapshots_that_do_not_fit_are_refused():
    envs = VectorEnv("pong", 2)
    envs.reset(seed=1)
    saved = envs.save()
    for place in (4, 300, saved.shape[1] - 1):
        damaged = saved.copy()
        damaged[1, place] ^= 1
        with pytest.raises(DamagedError, match="cannot go on"):
            envs.load(damaged)
    np.testing.assert_array_equal(envs.save(), saved)
    with pytest.raises(DamagedError, match=r"take snapshots uint8\[2, "):
        envs.load(saved[:1])
    for game, options in (
        ("breakout", {}),
        ("pong", {"img_height": 42, "img_width": 168 // 2}),
        ("pong", {"maxpool": False}),
    ):
        other = VectorEnv(game, 2, **options)
        with pytest.raises(DamagedError):
            other.load(saved)
        other.close()
    envs.send(np.zeros(2, np.int64))
    with pytest.raises(RuntimeError, match="between send and recv"):
        envs.save()
    envs.close()


# --- starts --------------------------------------------------------------------------------------


def test_fast_resets_copy_a_few_starts():
    envs = VectorEnv("demon_attack", 60, fast_resets=True, noop_max=0, use_fire_reset=False)
    frames = {frame.tobytes() for frame in envs.reset(seed=1)[0]}
    assert 1 < len(frames) <= 16
    envs.close()


def test_fast_resets_change_nothing_where_all_starts_are_alike():
    actions = np.random.default_rng(0).integers(0, 4, (200, 2))
    rows = []
    for fast in (False, True):
        envs = VectorEnv("breakout", 2, fast_resets=fast, noop_max=0, episodic_life=True)
        envs.reset(seed=1)
        rows.append(run(envs, actions))
        envs.close()
    assert rows[0] == rows[1]


def test_without_a_seed_games_differ():
    first = [VectorEnv("breakout", 30).reset()[0] for _ in range(2)]
    assert len({frames.tobytes() for frames in first[0]}) > 10
    assert (first[0] != first[1]).any()


# --- without JAX, without Gymnasium --------------------------------------------------------------


def run_alone(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_stepping_imports_no_jax():
    code = """
import sys, numpy
import jaxrl.envs.atari2600
assert "gymnasium" not in sys.modules
from jaxrl.envs.atari2600 import VectorEnv
envs = VectorEnv("pong", 1)
envs.reset()
envs.step(numpy.zeros(1, int))
assert not {"jax", "flax", "envpool"} & set(sys.modules)
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr


def test_without_gymnasium_there_is_one_line():
    code = "import sys; sys.modules['gymnasium'] = None; from jaxrl.envs.atari2600 import VectorEnv"
    error = run_alone(code).stderr.splitlines()[-1]
    assert error == "ImportError: VectorEnv is a Gymnasium environment: pip install gymnasium"


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "MsPacmen"}, "does not play 'MsPacmen'"),
        ({"num_envs": 0}, "num_envs = 0"),
        ({"game": "brekout"}, "did you mean breakout"),
        ({"game": None}, "does not play None"),
        ({"num_envs": 2.5}, "num_envs = 2.5: must be an integer"),
        ({"num_threads": -2}, "num_threads = -2: must be from 0"),
        ({"maxpool": "x"}, "maxpool = 'x': must be True or False"),
        ({"repeat_action_probability": "a"}, "must be a number"),
        ({"autoreset_mode": "foo"}, "must be 'NextStep', 'SameStep' or 'Disabled'"),
        ({"batch_size": 3}, "batch_size = 3: must be from 0 to 2"),
        ({"frameskip": 0}, "frameskip = 0"),
        ({"img_height": 211}, "img_height = 211: must be from 16 to 210"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability = 1.5"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(UserError, match=message):
        VectorEnv(**{"game": "pong", "num_envs": 2} | options)


def test_options_that_are_none_are_refused():
    with pytest.raises(TypeError, match="'frame_skip': did you mean frameskip"):
        VectorEnv("pong", 2, frame_skip=4)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"obs_type": "ram"}, "ram=True"),
        ({"seed": 1}, r"reset\(seed=...\)"),
        ({"sticky_actions": True}, "repeat_action_probability"),
        ({"render_mode": "rgb_array"}, "observations are pictures"),
    ],
)
def test_what_others_call_otherwise_is_named(option, hint):
    with pytest.raises(TypeError, match=hint):
        VectorEnv("pong", 2, **option)


def test_an_environment_says_what_it_is():
    envs = VectorEnv("ALE/Pong-v5", 2, render_mode=None)
    assert repr(envs) == "VectorEnv('pong', num_envs=2)"
    with pytest.raises(ValueError, match="reset has no option 'mask': reset_mask"):
        envs.reset(options={"mask": np.array([True, False])})
    envs.close()


def test_calls_out_of_order_are_refused():
    envs = VectorEnv("pong", 2)
    step = np.zeros(2, np.int64)
    for name in ("send", "step"):  # each is called by its name
        with pytest.raises(RuntimeError, match=f"^{name} comes after reset: call reset first"):
            getattr(envs, name)(step)
    with pytest.raises(RuntimeError, match="recv comes after"):
        envs.recv()
    with pytest.raises(RuntimeError, match="first reset"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    envs.send(step)
    for name in ("send", "step"):
        with pytest.raises(RuntimeError, match=f"^{name} comes after recv: a step is under way"):
            getattr(envs, name)(step)
    envs.recv()
    with pytest.raises(RuntimeError, match="recv comes after"):
        envs.recv()
    envs.send(step)
    envs.reset()  # gives up the step
    envs.step(step)
    envs.close()
    envs.close()
    for call in (lambda: envs.step(step), envs.reset, envs.save):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    with pytest.raises(NotImplementedError, match="atari2600"):
        envs.xla()


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (np.zeros(3, np.int64), ValueError),
        (np.zeros((2, 1), np.int64), ValueError),
        (np.zeros(2, np.float32), TypeError),
        (np.array([0, 6]), ValueError),
        (np.array([-1, 0]), ValueError),
    ],
)
def test_actions_are_checked(actions, error):
    envs = VectorEnv("pong", 2)
    envs.reset()
    with pytest.raises(error, match="actions"):
        envs.step(actions)
    envs.step([0, 5])
    envs.close()


def test_continuous_actions_are_checked():
    envs = VectorEnv("pong", 1, continuous=True)
    envs.reset()
    for row, message in (
        ([1.5, 0, 0], "radius"), ([np.nan, 0, 0], "finite"), ([1, np.nan, 0], "finite")
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            envs.step(np.array([row], np.float32))
    with pytest.raises(TypeError, match="float32"):
        envs.step(np.zeros((1, 3), np.int64))
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"seed": "one"}, TypeError),
        ({"seed": np.arange(3)}, ValueError),
        ({"seed": -2}, ValueError),
        ({"seed": 2**32}, ValueError),
        ({"options": {"reset_mask": [True, True]}}, TypeError),
        ({"options": {"reset_mask": np.ones(3, np.bool_)}}, ValueError),
    ],
)
def test_resets_are_checked(arguments, error):
    envs = VectorEnv("pong", 2)
    with pytest.raises(error, match=r"seed|reset_mask"):
        envs.reset(**arguments)
    envs.close()
