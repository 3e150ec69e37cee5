"""Evaluations play the game that was trained: who presses FIRE, what reaches the emulators."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.analysis import aggregates
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config, EnvConfig
from jaxrl.envs import make_engine
from jaxrl.envs.base import first_env_seed, presses_fire
from jaxrl.envs.envpool import engine as envpool_engine
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate, protocols, trace, video
from jaxrl.program import rollout
from jaxrl.runs import evaluation_record, layout
from jaxrl.runs.directory import write_config
from jaxrl.runs.evaluation_record import Conditions
from jaxrl.types import EnvEngine, EnvSpec, TimeStep
from tests.conftest import large_catch_config
from tests.survival import SMALL

TRAINED = large_catch_config("a2c_fast", game="breakout", env={"num_threads": 1})
NOOP, FIRE = 0, 1  # the first actions of Breakout


def constant(config, action=None):
    """An actor that draws evenly from all actions, or always takes one."""
    engine = make_engine(config, 1)
    actor = make_agent(resolve(config), engine.spec).init(jax.random.key(0)).actor
    params = jax.tree.map(jnp.zeros_like, actor.params)
    if action is not None:
        bias = params["Dense_0"]["Dense_0"]["bias"]
        params["Dense_0"]["Dense_0"]["bias"] = bias.at[action].set(100.0)
    return actor._replace(params=params)


# --- what reaches EnvPool ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "training", "expected"),
    [
        ("noop", {}, {"noop_max": 30, "episodic_life": True, "use_fire_reset": True}),
        ("sticky", {}, {"noop_max": 1, "episodic_life": True, "use_fire_reset": True}),
        (
            "noop",
            {"noop_max": 1, "episodic_life": False, "fire_reset": False},
            {"noop_max": 30, "episodic_life": False, "use_fire_reset": False},
        ),
        (
            "sticky",
            {"full_action_space": True},
            {"noop_max": 1, "use_fire_reset": False, "full_action_space": True},
        ),
        (
            "noop",
            {"frame_skip": 5, "mode": 0, "difficulty": 1},
            {"frame_skip": 5, "mode": 0, "difficulty": 1, "max_episode_steps": 21_600},
        ),
    ],
)
def test_settings_of_each_protocol_reach_envpool(protocol, training, expected, monkeypatch):
    made = []

    def make_pool(*args, **options):
        made.append(true_make_pool(*args, **options))
        return made[-1]

    true_make_pool = envpool_engine.make_pool
    monkeypatch.setattr(envpool_engine, "make_pool", make_pool)
    settings = {"engine": "envpool", "max_episode_steps": 99, "reward_clip": True}
    trained = TRAINED.replaced(env=settings | training)
    played = protocols.protocol_config(trained, protocol)
    engine = make_engine(played, 2)
    engine.init(0)
    config = made[0].config
    engine.close()
    expected = {
        "repeat_action_probability": {"noop": 0.0, "sticky": 0.25}[protocol],
        "reward_clip": False,
        "max_episode_steps": 27_000,
        "frame_skip": 4,
        "mode": -1,
        "difficulty": -1,
        "num_envs": 2,
    } | expected
    assert {key: config[key] for key in expected} == expected
    assert played.env.random_start_steps == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"noop_max": 7, "episodic_life": False, "reward_clip": False, "fire_reset": False},
        {"repeat_action_probability": 0.25, "full_action_space": True, "max_episode_steps": 50},
        {"mode": 1, "difficulty": 0, "frame_skip": 2},
    ],
)
def test_settings_of_training_reach_envpool(changes):
    pool = envpool_engine.make_pool("pong", Config().replaced(env=changes).env, 1, 3)
    expected = {"use_fire_reset" if key == "fire_reset" else key: value
             for key, value in changes.items()}  # fmt: skip
    assert {key: pool.config[key] for key in expected} == expected
    pool.close()


def test_fire_is_pressed_in_every_game_that_has_it():
    """Not only in those that wait for it: Pong has FIRE, Freeway has not."""
    pressed = {game: presses_fire(game, Config().env)
               for game in ("pong", "breakout", "ms_pacman", "freeway")}  # fmt: skip
    assert pressed == {"pong": True, "breakout": True, "ms_pacman": False, "freeway": False}
    assert not presses_fire("pong", EnvConfig(fire_reset=False))
    assert not presses_fire("pong", EnvConfig(full_action_space=True))


@pytest.mark.slow
@pytest.mark.rotating(4, group="protocols")
@pytest.mark.parametrize(
    ("game", "protocol"),
    [
        ("breakout", "noop"),
        ("breakout", "sticky"),
        pytest.param("ms_pacman", "noop", marks=pytest.mark.slow),
    ],
)
def test_noops_before_a_game_are_as_many_as_is_said(game, protocol):
    """Each console has the memory of one after a possible number of no-ops, and FIRE.

    Among 256 all of 30 numbers occur. A console takes longer to make than to reset.
    """
    ale_py = pytest.importorskip("ale_py")
    rom = Path(importlib.util.find_spec("envpool_assets").origin).parent / f"atari/roms/{game}.bin"
    trained = dataclasses.replace(TRAINED, game=game)
    conditions = protocols.conditions(trained, protocol)
    played = protocols.protocol_config(trained, protocol)
    played = played.replaced(env={"repeat_action_probability": 0.0})
    resets = 8 if protocol == "noop" else 1
    pool = envpool_engine.make_pool(played.game, played.env, 32, 5, num_threads=1)
    games = [np.asarray(pool.reset()[1]["ram"]) for _ in range(resets)]
    starts = {ram.tobytes() for ram in np.concatenate(games)}
    pool.close()
    numbers = {}
    for number in range(conditions.noops[1] + 3):
        console = ale_py.ALEInterface()
        console.setFloat("repeat_action_probability", 0.0)
        console.setInt("random_seed", 5)
        console.loadROM(str(rom))
        for action in [NOOP] * number + [FIRE] * conditions.fire:
            console.act(action)
        numbers[console.getRAM().tobytes()] = number
    assert starts <= set(numbers)
    fewest, most = {"breakout": (0, 29), "ms_pacman": (1, 30)}[game]
    most = 0 if protocol == "sticky" else most
    assert conditions.noops == (fewest, most)
    assert {numbers[start] for start in starts} == set(range(fewest, most + 1))


# --- what is played ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
@pytest.mark.slow
def test_a_policy_that_never_fires_plays_on_after_a_lost_life(protocol):
    """FIRE is pressed for it, as in training; else Breakout stands still to the time limit."""
    outcome = evaluate.evaluate(TRAINED, constant(TRAINED, NOOP), protocol, num_episodes=2)
    assert max(outcome.lengths) < 1000
    assert outcome.conditions.fire
    assert outcome.conditions.life_resets


@pytest.mark.slow
@pytest.mark.rotating(4, group="protocols")
@pytest.mark.parametrize(
    ("game", "num_games", "unseen_ends"), [("breakout", 3, 0), ("road_runner", 24, 1)]
)
def test_an_atari_evaluation_goes_on_after_a_lost_life(game, num_games, unseen_ends, monkeypatch):
    """Scores and lengths are EnvPool's own for the actions that were played.

    Some games of Road Runner end within the no-ops after a lost life; there the lives rise.
    """
    played = []

    def step(*args):
        state, row = true_step(*args)
        jax.debug.callback(lambda action: played.append(np.asarray(action)), row.action,
                           ordered=True)  # fmt: skip
        return state, row

    true_step = rollout.step
    monkeypatch.setattr(rollout, "step", step)
    config = dataclasses.replace(TRAINED, game=game).replaced(env={"engine": "envpool"})
    outcome = evaluate.evaluate(config, constant(config), "noop", num_games, seed=2)
    jax.effects_barrier()
    config = protocols.protocol_config(config, "noop")
    seed = first_env_seed(evaluate.SEED_OFFSET + 2)
    pool = envpool_engine.make_pool(config.game, config.env, num_games, seed, num_threads=1)
    pool.reset()
    score, length, lost, unseen = np.zeros((4, num_games), int)
    finished = was_done = np.zeros(num_games, bool)
    lives = np.zeros(num_games, int)
    for action in played:
        _, _, terminated, truncated, info = pool.step(action)
        began = was_done & ~finished & (info["lives"] > lives)
        unseen += began
        finished = finished | began
        score += np.where(finished, 0, info["reward"]).astype(int)
        length += ~finished & ~was_done
        lost += terminated & ~finished
        finished = finished | (info["terminated"] != 0) | truncated
        was_done, lives = terminated | truncated, info["lives"]
    pool.close()
    assert finished.all()
    assert (lost > 1).sum() > num_games // 2
    assert unseen.sum() >= unseen_ends
    assert outcome.scores == score.tolist()
    assert outcome.lengths == length.tolist()
    assert sum(outcome.scores) > 0


def test_fire_is_pressed_for_some_steps_after_each_reset():
    """Rows 0 and 1 press it for the start; the reset in row 3 begins with rows 4 and 5."""
    sent, resets = [], iter([False, False, False, True, False, False, False])
    spec = EnvSpec(1, 3, ("NOOP", "LEFT", "FIRE"), "pong")

    def recv(env):
        return env, SimpleNamespace(reset=jnp.array([next(resets)]))

    engine = EnvEngine(
        spec, lambda seed: ((), SimpleNamespace(reset=[False])),
        lambda env, action: sent.append(int(action[0])) or env, recv,
        None, False, None, None, None,
    )  # fmt: skip
    pressing = protocols.press_fire(engine, 2)
    state, _ = pressing.init(0)
    for _ in range(7):
        state, _ = pressing.recv(pressing.send(state, jnp.array([1], jnp.int32)))
    assert sent == [2, 2, 1, 1, 2, 2, 1]


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.slow
def test_films_and_traces_play_the_game_that_was_trained(tmp_path):
    actor = constant(TRAINED, NOOP)
    score, length, over = video.record(TRAINED, actor, "noop", tmp_path / "x.gif", 0, 60.0)
    assert over
    outcome = trace.trace(TRAINED, actor, "noop", seed=0, max_steps=2000)
    ignored = outcome.actions < 0
    assert ignored.sum() == 5  # four lost lives, and the end of the game
    assert outcome.ends.sum() == 1
    assert outcome.ends[-1]
    assert (~ignored).sum() == length
    assert outcome.rewards.sum() == score
    assert np.isnan(outcome.values[ignored]).all()
    assert not np.isnan(outcome.values[~ignored]).any()


# Score, life lost, game over, reset; one game over two lives, which ends within the reset.
ROWS = [(1, 0, 0, 0), (2, 1, 0, 0), (0, 0, 0, 1), (4, 1, 0, 0), (0, 0, 1, 1), (9, 0, 0, 0)]


def scripted(monkeypatch, rows=ROWS, render=None):
    """One game of an engine that plays these rows, and an actor."""
    table = jnp.array(rows, jnp.float32)

    def row(t):
        score, lost, over, reset = table[t]
        flag = lambda x: (x > 0)[None]  # noqa: E731
        return TimeStep(
            jnp.full((1, 84, 84), 10 * t, jnp.uint8), score[None], score[None], flag(lost),
            jnp.zeros(1, bool), flag(over), flag(reset),
        )  # fmt: skip

    config = large_catch_config("a2c_fast")
    spec = make_engine(config, 1).spec
    engine = EnvEngine(
        spec, lambda seed: (jnp.int32(0), row(0)._replace(score=jnp.zeros(1))),
        lambda t, action: t, lambda t: (t + 1, row(t)), lambda: None, True, np.zeros((1, 1), int),
        render, lambda: None,
    )  # fmt: skip
    agent = make_agent(resolve(config), spec)
    setup = protocols.EvaluationSetup(engine, agent, protocols.conditions(config, "noop"))
    for module in (video, trace):
        monkeypatch.setattr(module, "set_up", lambda *_: setup)
    return config, constant(config)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.slow
def test_a_film_ends_with_a_game_that_ends_during_a_reset(monkeypatch, tmp_path):
    config, actor = scripted(monkeypatch)
    outcome = video.record(config, actor, "noop", tmp_path / "x.gif", 0, 60.0)
    assert outcome == (7.0, 3, True)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize(
    ("from_step", "scores"),
    [
        (0, ["1", "3", "3", "7", "7"]),  # the third is the reset after the lost life
        pytest.param(1, ["3", "3", "7", "7"], marks=pytest.mark.slow),
        (2, ["7", "7"]),  # a life is lost there: the film begins after the reset
    ],
)
def test_a_film_begins_at_a_step_with_the_score_of_the_whole_game(
    from_step, scores, monkeypatch, tmp_path
):
    config, actor = scripted(monkeypatch)
    pictures = drawn(monkeypatch)
    outcome = video.record(config, actor, "noop", tmp_path / "x.gif", 0, 60.0, from_step)
    assert outcome == (7.0, 3, True)
    *played, end = [caption for caption, _ in pictures]
    assert played == [f"catch   score {score}" for score in scores]
    assert end == "catch   game over, final score 7"


def drawn(monkeypatch):
    """The captions that a film gets, each with its game's pixels."""
    pictures, draw = [], video._picture
    monkeypatch.setattr(video, "_picture", lambda game, caption: pictures.append((caption, game))
                        or draw(game, caption))  # fmt: skip
    return pictures


def test_a_film_shows_no_score_above_a_screen_that_has_not_drawn_it(monkeypatch, tmp_path):
    """A console that ends a game draws no frame more: Pong's last screen shows 20, not 21."""
    screens = [np.full((210, 160, 3), 10 * score, np.uint8) for score in (19, 20, 20)]
    shown = iter(screens)
    rows = [(19, 0, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0), (0, 0, 0, 1)]
    config, actor = scripted(monkeypatch, rows, render=lambda: next(shown))
    pictures = drawn(monkeypatch)
    assert video.record(config, actor, "noop", tmp_path / "x.gif", 0, 60.0) == (21.0, 3, True)
    *played, (caption, end) = pictures
    assert [(caption, int(game.max()) // 10) for caption, game in played] == [
        (f"catch   score {score}", score) for score in (19, 20, 20)
    ]
    assert caption == "catch   game over, final score 21"
    assert end.max() == 0  # no screen below it


@pytest.mark.parametrize("from_step", [3, 9])
def test_a_film_of_what_is_never_played_is_refused(from_step, monkeypatch, tmp_path):
    config, actor = scripted(monkeypatch)
    target = tmp_path / "x.gif"
    target.write_text("an older film")
    with pytest.raises(UserError, match=f"from_step = {from_step}: the game ended at agent step 3"):
        video.record(config, actor, "noop", target, 0, 60.0, from_step)
    assert target.read_text() == "an older film"


def test_a_trace_ends_with_a_game_that_ends_during_a_reset(monkeypatch):
    config, actor = scripted(monkeypatch)
    outcome = trace.trace(config, actor, "noop", seed=0, max_steps=99)
    np.testing.assert_array_equal(outcome.actions < 0, [False, False, True, False, True])
    np.testing.assert_array_equal(outcome.ends, [False, False, False, False, True])
    np.testing.assert_array_equal(outcome.rewards, [1, 2, 0, 4, 0])


# --- descriptions of conditions ------------------------------------------------------------------


LIVES = "at the start and after every lost life"


@pytest.mark.parametrize(
    ("changes", "protocol", "described"),
    [
        ({}, "noop", f"0 to 29 no-ops and FIRE {LIVES}, no sticky actions"),
        ({"game": "freeway"}, "noop", f"1 to 30 no-ops {LIVES}, no sticky actions"),
        (
            {},
            "sticky",
            f"FIRE held for 2 steps more {LIVES}, actions repeat with probability 0.25",
        ),
        (
            {"episodic_life": False, "repeat_action_probability": 0.1},
            "sticky",
            "FIRE at the start, actions repeat with probability 0.25",
        ),
        (
            {"full_action_space": True},
            "sticky",
            f"1 no-op {LIVES}, actions repeat with probability 0.25, all 18 actions",
        ),
        ({"game": "catch"}, "sticky", "nothing is pressed at the start, no sticky actions"),
        (
            {"frame_skip": 1, "mode": 8, "difficulty": 0},
            "sticky",
            f"FIRE held for 8 steps more {LIVES}, actions repeat with probability 0.25, steps of 1 "
            "frame, mode 8, difficulty 0",
        ),
    ],
)
def test_conditions_are_described_exactly(changes, protocol, described):
    game = changes.pop("game", TRAINED.game)
    trained = TRAINED.replaced(game=game, env=changes)
    assert protocols.conditions(trained, protocol).describe() == described


def test_conditions_are_read_as_they_were_written(tmp_path):
    played = Conditions((0, 29), True, 2, True, 0.25, False, 27_000, frame_skip=2, mode=3)
    result = evaluation_record.summarize(
        "breakout", "sticky", 5, np.array([1.0]), np.array([9]), conditions=played
    )
    evaluation_record.write(tmp_path, result)
    assert evaluation_record.read(tmp_path) == result
    line = evaluation_record.describe(result)
    assert f"protocol sticky ({played.describe()})" in line
    assert "1 game: score 1.0" in line
    assert "deviation" not in line  # one game has none
    good = json.loads((tmp_path / layout.EVALUATION).read_text())
    for wrong in (
        3,
        {},
        good["conditions"] | {"noops": [1]},
        good["conditions"] | {"x": 1},
        good["conditions"] | {"stickiness": 2},
        good["conditions"] | {"fire": "yes"},
        good["conditions"] | {"mode": -2},
    ):
        text = json.dumps(good | {"conditions": wrong})
        (tmp_path / layout.EVALUATION).write_text(text)
        with pytest.raises(evaluation_record.UserError, match="cannot be read"):
            evaluation_record.read(tmp_path)


@pytest.mark.slow
def test_a_run_with_sticky_actions_ends_with_the_protocol_sticky(tmp_path, capsys):
    run_dir = tmp_path / "x"
    arguments = [*SMALL, "--total-steps", "400", "--evaluation.episodes", "2"]
    assert main(["train", *arguments, "--env.repeat-action-probability", "0.25",
                 "--run-dir", str(run_dir)]) == 0  # fmt: skip
    assert evaluation_record.read(run_dir).protocol == "sticky"
    # So do later evaluations and films that name none.
    capsys.readouterr()
    assert main(["evaluate", str(run_dir), "--episodes", "2"]) == 0
    assert "protocol sticky" in capsys.readouterr().out
    assert main(["evaluate", str(run_dir), "--episodes", "2", "--protocol", "noop"]) == 0
    assert evaluation_record.read(run_dir).protocol == "noop"
    assert evaluation_record.protocol_of(TRAINED) == "noop"


def test_runs_trained_with_and_without_sticky_actions_need_a_protocol(tmp_path, capsys):
    runs = [tmp_path / "x", tmp_path / "y"]
    for run_dir, sticky in zip(runs, (0.0, 0.25), strict=True):
        run_dir.mkdir()
        config = TRAINED.replaced(env={"repeat_action_probability": sticky})
        write_config(run_dir, dataclasses.replace(config, run_dir=str(run_dir)))
    assert main(["evaluate", *map(str, runs)]) == 2
    assert "name one --protocol for all" in capsys.readouterr().err


def test_games_that_were_played_in_different_ways_are_noted():
    def result(game, conditions):
        return evaluation_record.summarize(
            game, "noop", 1, np.ones(1), np.ones(1), conditions=conditions
        )

    lives = protocols.conditions(TRAINED, "noop")
    whole = dataclasses.replace(lives, life_resets=False)
    say = aggregates.condition_notes
    assert say([result("pong", lives), result("breakout", whole)]) == []
    assert say([result("pong", lives), result("pong", None)]) == [
        "pong: some evaluations are of an older jaxrl, which pressed no FIRE after a lost life: "
        "evaluate those again"
    ]
    (note,) = say([result("pong", lives), result("pong", whole), result("catch", None)])
    assert note.startswith(
        "pong was played in different ways: 0 to 29 no-ops and FIRE at the start"
    )
