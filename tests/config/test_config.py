import dataclasses
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from jaxrl.cli.parsing import parse
from jaxrl.cli.train import Train
from jaxrl.config.algorithms import SHIPPED
from jaxrl.config.network import NetworkConfig
from jaxrl.config.plan import resolve, scaled_learning_rate
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.config.toml import from_table, load, to_toml
from jaxrl.config.validation import check, check_game
from jaxrl.errors import UserError
from jaxrl.ops import optimizers
from tests.conftest import CONFIGS, recipe_file


def test_toml_round_trip(tmp_path):
    odd = Config().replaced(run_dir='a "b" \\ é', seed=7, env={"reward_clip": False})
    (tmp_path / "c.toml").write_text(to_toml(odd), encoding="utf-8")
    assert load(tmp_path / "c.toml") == odd


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.toml")), ids=lambda p: p.stem)
def test_every_configuration_file_is_valid_and_only_overrides(path):
    config = load(path)
    check(config)
    assert config != Config()
    assert config.run_dir == ""


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"num_evns": 4}, "unknown key 'num_evns': did you mean 'num_envs'?"),
        ({"optimizer": {"lerning_rate": 1.0}}, "did you mean 'optimizer.learning_rate'?"),
        ({"qqqq": 1}, "known are algorithm, game"),
        ({"num_envs": "many"}, "num_envs = 'many': must be a whole number"),
        ({"num_envs": 4.5}, "must be a whole number"),
        ({"num_envs": math.inf}, "must be a whole number"),
        ({"num_envs": True}, "must be a whole number"),
        ({"env": {"reward_clip": 1}}, "must be true or false"),
        ({"game": 3}, "must be a string"),
        ({"optimizer": {"eps": "small"}}, "optimizer.eps = 'small': must be a number"),
        ({"optimizer": 3}, "must be a table"),
        ({"network": {"torso": "resnet"}}, "must be one of nips, nature"),
        ({"algorithm": "a4c"}, "install the package that has it, or take one of a2c"),
        ({"algorithm": "a3c"}, "is a configuration, which has its algorithm: give it by --config"),
        ({"algorithm": ["a2c"]}, "must be one of a2c"),
    ],
)
def test_mistakes_in_a_file_are_named(table, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace("[", r"\[")):
        from_table(table)


def test_a_whole_number_will_do_for_a_number():
    assert from_table({"optimizer": {"learning_rate": 1}}).optimizer.learning_rate == 1.0


def test_a_whole_number_may_be_written_with_an_exponent():
    """As on the command line."""
    config = from_table(tomllib.loads("total_steps = 2e6\nnum_envs = 4.0"))
    assert (config.total_steps, config.num_envs) == (2_000_000, 4)
    assert type(config.total_steps) is type(config.num_envs) is int


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"total_steps": 1e6}, r"total_steps = 1000000\.0: must be a whole number"),
        ({"seed": np.int64(3)}, "seed = .*3.*: must be a whole number"),
        ({"run_dir": Path("x")}, r"run_dir = PosixPath\('x'\): must be a string"),
        ({"optimizer": {"eps": "1e-5"}}, "optimizer.eps = '1e-5': must be a number"),
        ({"env": {"reward_clip": 1}}, "env.reward_clip = 1: must be true or false"),
    ],
)
def test_values_of_another_type_are_refused_wherever_they_come_from(changes, told):
    """`replaced` takes anything; config.toml would hold it, and no command could read the run."""
    with pytest.raises(UserError, match=told):
        check(Config().replaced(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0},
        {"num_envs": 0},
        {"num_envs": 2**40},
        {"seed": -1},
        {"env": {"noop_max": 0}},  # EnvPool's process would die of it
        {"env": {"repeat_action_probability": 1.5}},
        {"checkpoint": {"keep": 0}},
        {"log": {"interval": 0}},
        {"parallel": {"num_devices": -1}},
    ],
)
def test_values_that_cannot_train_are_refused(changes):
    with pytest.raises(UserError, match=next(iter(changes))):
        check(Config().replaced(**changes))


@pytest.mark.parametrize(
    ("game", "changes", "told"),
    [
        ("catch", {"grayscale": False}, "env.grayscale = false: catch has no emulator"),
        ("pong", {"stack": 5}, "env.stack = 5: must lie between 1 and 4"),
        ("pong", {"frame_skip": 0}, "env.frame_skip = 0: must lie between 1 and 255"),
        ("catch", {"frame_skip": 2}, "env.frame_skip = 2: catch has no emulator: leave it at 4"),
        ("catch", {"mode": 0}, "env.mode = 0: catch has no emulator: leave it at -1"),
        ("catch_memory", {"difficulty": 1}, "env.difficulty = 1: catch_memory has no emulator"),
    ],
)
def test_what_no_emulator_shows_is_refused(game, changes, told):
    with pytest.raises(UserError, match=told):
        check(Config(game=game).replaced(env=changes))


def test_not_a_number_is_refused():
    bad = dataclasses.replace(Config().optimizer, learning_rate=float("nan"))
    with pytest.raises(UserError, match=r"optimizer\.learning_rate"):
        check(dataclasses.replace(Config(), optimizer=bad))


def test_sizes_that_do_not_divide_name_the_nearest_that_do():
    with pytest.raises(UserError, match="take 15 or 18"):
        resolve(dataclasses.replace(Config(), num_envs=17), 3)
    with pytest.raises(UserError, match=r"take 3, or --parallel.num-devices 2$"):
        resolve(dataclasses.replace(Config(), num_envs=2), 3)
    agent = dataclasses.replace(Config().agent, micro_batch=30)
    with pytest.raises(UserError, match="80 rows of a gradient: take 20"):
        resolve(dataclasses.replace(Config(), agent=agent), 1)


def test_statistics_of_more_environments_than_they_count_exactly_are_refused():
    """262,144 for all devices together, or for each learner that learns apart."""
    many = Config(num_envs=2**19, network=NetworkConfig(normalize_observations=True))
    resolve(dataclasses.replace(many, num_envs=2**18), 2)
    resolve(dataclasses.replace(many, network=NetworkConfig()), 2)
    with pytest.raises(UserError, match=r"num_envs = 524288: network\.normalize_.* most 262144 "):
        check(many)
    apart = many.replaced(parallel={"sync_every": 1})
    for config, devices in ((apart, 2), (apart.replaced(parallel={"num_learners": 2}), 1)):
        resolve(config, devices)
    check(apart)
    with pytest.raises(UserError, match="at most 262144"):
        resolve(apart, 1)


def test_an_unknown_number_of_devices_refuses_only_what_no_number_would_mend():
    """Four learners in two groups each: right on four devices, wrong on two."""
    parallel = {"sync_every": 1, "num_learners": 4, "groups": 2}
    config = Config(num_envs=8).replaced(parallel=parallel)
    check(config)
    resolve(config, 4)
    with pytest.raises(UserError, match="play in one group"):
        resolve(config, 2)
    with pytest.raises(UserError, match="groups = 3 does not divide the 2 environments"):
        check(config.replaced(parallel={"groups": 3}))


def test_a_plan_is_computed_also_of_what_would_be_refused():
    """Readers of a run need its steps wherever it was trained: 17 x 5, 118 times, is 10,030."""
    config = Config(num_envs=17, total_steps=10_000).replaced(parallel={"num_devices": 3})
    assert resolve(config).total_steps == 10_030
    assert resolve(config).num_updates == 118


def test_unknown_games_get_the_nearest_names():
    check_game("pong", ["pong", "breakout"])
    with pytest.raises(UserError, match="did you mean breakout"):
        check_game("braekout", ["pong", "breakout"])
    with pytest.raises(UserError, match="jaxrl games"):
        check_game("zzzzzz", ["pong", "breakout"])


def test_broken_files_are_named(tmp_path):
    broken = tmp_path / "c.toml"
    broken.write_bytes(b"num_envs = ")
    with pytest.raises(UserError, match=r"c\.toml' is not valid TOML .*: correct it there"):
        load(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot read"):
        load(broken)
    with pytest.raises(UserError, match="no configuration file"):
        load(tmp_path)
    with pytest.raises(UserError, match="no configuration file"):
        load(tmp_path / "absent.toml")


@pytest.mark.parametrize("word", ["catch", "Catch"])
def test_a_game_is_no_configuration(word):
    with pytest.raises(UserError, match=f"'{word}': 'catch' is a game: give it by --game catch"):
        load(Path(word))


def test_a_stem_finds_a_file_of_configs(tmp_path, monkeypatch):
    """In a folder of an algorithm, then a user's beside them; a directory hides none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo").mkdir()
    assert load(Path("ppo")) == load(recipe_file("ppo"))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.toml").write_text("num_envs = 3")
    assert load(Path("mine")).num_envs == 3
    (tmp_path / "configs" / "all").mkdir()
    (tmp_path / "configs" / "all" / "mine.toml").write_text("num_envs = 4")
    assert load(Path("mine")).num_envs == 4
    (tmp_path / "mine").write_text("num_envs = 5")  # a path that is a file is taken as it is
    assert load(Path("mine")).num_envs == 5
    (tmp_path / "minx").mkdir()
    with pytest.raises(UserError, match=r"'minx': did you mean 'configs/mine\.toml'"):
        load(Path("minx"))  # the stem is the file beside configs/
    with pytest.raises(UserError, match=r"'ppo_pogn': did you mean 'ppo_pong'\?"):
        load(Path("ppo_pogn"))
    with pytest.raises(UserError, match=r"'a/ppo_pogn\.toml': did you mean 'ppo_pong'\?"):
        load(Path("a/ppo_pogn.toml"))
    with pytest.raises(
        UserError, match=r"'configs/minx\.toml': did you mean 'configs/.*mine\.toml'"
    ):
        load(Path("configs/minx.toml"))
    (tmp_path / "own.toml").touch()  # no stem finds it here
    with pytest.raises(UserError, match=r"'owm': did you mean 'own\.toml'"):
        load(Path("owm"))
    with pytest.raises(UserError, match="'qqqqqq': give a file, or the stem of one in configs/"):
        load(Path("qqqqqq"))


def of(algorithm, agent=(), **changes):
    config = from_table({"algorithm": algorithm, "agent": dict(agent)})
    return config.replaced(**changes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (of("ppo", {"num_minibatches": 5}), "rollout_length = 128: take 4"),
        (of("vtrace", {"num_minibatches": 3}), "16 environments of a device (num_envs): take 2"),
        (of("vtrace", {"num_minibatches": 3}), "or num_envs = 15"),
        (of("vtrace", {"micro_batch": 3, "num_minibatches": 2}), "8 windows of a gradient: take 2"),
        (of("vtrace", {"window": 7, "num_minibatches": 8}), "agent.window = 7: is shorter"),
        (of("vtrace", {"window": 0, "num_minibatches": 2}), "agent.window = 0"),
        (of("a2c", parallel={"groups": 3}), "16 environments of a device (num_envs): take 2"),
        (of("ppo", {"gae_lambda": 1.5}), "agent.gae_lambda"),
        (of("ppo", {"kl_target": 0.0}), "agent.kl_target"),
        (of("ppo", {"micro_batch": 100}, num_envs=8), "256 rows of a gradient: take 128"),
        (of("c51", {"batch_size": 48}), "agent.training_intensity): take 32"),
        (of("c51", {"training_intensity": 0.3}), "whole number: take 0.296875"),
        (of("c51", {"training_intensity": 0.01}), "whole number: take 0.015625"),
        (of("c51", {"v_min": 10.0}), "below agent.v_max"),
        (of("c51", {"replay_capacity": 100}), "at least 208"),
        (of("c51", {"replay_capacity": 1000}), "agent.learning_starts = 80000"),
        (of("c51", {"epsilon_end": -0.1}), "agent.epsilon_end"),
        (of("c51", parallel={"num_devices": 3}, num_envs=3), "take"),
        (dataclasses.replace(Config(), algorithm="ppo"), "--config ppo"),
        (of("c51", {"epsilon_decay_steps": 3 * 10**9}), "agent.epsilon_decay_steps"),
        (of("c51", {"target_update_interval": 10**12}), "agent.target_update_interval"),
        (of("c51", {"v_min": 10 - 1e-9}), "too close"),
        (of("c51", {"v_max": 1e39}), "within a million"),
        (of("pqn", {"value_loss": "hl_gauss", "v_min": 10.0}), "below agent.v_max"),
        (of("pqn", {"value_loss": "two_hot", "v_max": -10 + 1e-9}), "too close"),
        (of("pqn", {"sigma_ratio": 0.0}), "agent.sigma_ratio = 0.0: must lie between 0.01 and 100"),
        (of("c51", {"training_intensity": 2.0e9}), "too large"),
        (of("a2c", {"rollout_length": 2**30}), "must be below 2147483648"),
        # 2^31 - 1 = 429,496,729 x 5 + 2 steps of an environment, in whole updates; of each of 16.
        (of("a2c", total_steps=34359738321), "play at most 34359738320; take that"),
        (of("ppo", total_steps=10**13), "total_steps = 10000000000000"),
        (of("a2c", parallel={"sync_every": 2**30}), "sync_every x agent.rollout_length"),
        (of("ppo", optimizer=OptimizerConfig(name="adam", decay=1.0)), "below 1 for adam"),
        (of("ppo", optimizer=OptimizerConfig(schedule="adaptive", learning_rate=0.1)), "starts"),
        (of("a2c", network=NetworkConfig(dueling=True)), "a2c has no action values"),
        (of("a2c", optimizer=OptimizerConfig(schedule="adaptive")), "only ppo has it"),
        (
            of(
                "ppo",
                {"epochs": 1, "num_minibatches": 1},
                optimizer=OptimizerConfig(schedule="adaptive"),
            ),
            "does not diverge within one gradient",
        ),
    ],
)
def test_what_an_algorithm_cannot_do_is_refused(config, message):
    with pytest.raises(UserError, match=re.escape(message)):
        check(config)


def test_every_algorithm_has_its_own_keys():
    assert from_table({"algorithm": "ppo", "agent": {"clip": 0.3}}).agent.clip == 0.3
    with pytest.raises(UserError, match=r"unknown key 'agent\.clip': it belongs to ppo; known"):
        from_table({"algorithm": "c51", "agent": {"clip": 0.3}})


OWN = """
import jax.numpy as jnp
from jaxrl.config.algorithm_base import AlgorithmConfig

class Own(AlgorithmConfig):
    pass

def make(plan, spec):
    pass
"""
READ = """
import sys
import jaxrl.agents
from jaxrl.config import algorithms

jaxrl.agents.__path__.append(sys.argv[1])
print(algorithms.algorithm_config("own").__name__)
try:
    algorithms.algorithm_config("eager")
except algorithms.UserError as error:
    print(error)
"""


def test_an_algorithm_that_computes_at_import_is_refused(tmp_path):
    """It would open the devices before their number is known; here they are open already."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "eager.py").write_text(f"{OWN}\nONE = jnp.ones(())\n")
    command = [sys.executable, "-c", READ, str(tmp_path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert output.startswith("Own\nalgorithm = 'eager': jaxrl/agents/eager.py computes with JAX")


def test_settings_of_all_algorithms_are_read_without_jax():
    code = "import sys; from jaxrl.config.algorithms import shipped; print(*shipped())"
    code += "; assert not {'jax', 'flax', 'chex', 'optax'} & set(sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == list(SHIPPED)
    # None of the folders of jaxrl.agents is missing from the list.
    agents = CONFIGS.parent / "jaxrl" / "agents"
    folders = {path.parent.name for path in agents.glob("*/settings.py")}
    assert set(SHIPPED) == folders


@pytest.mark.parametrize(
    ("scaling", "expected"), [("none", 0.02), ("sqrt", 0.04), ("linear", 0.08)]
)
def test_learning_rates_scale_with_environments_relative_to_the_recipe(tmp_path, scaling, expected):
    """Stooke & Abbeel: 4 times the recipe's environments, √4 or 4 times its learning rate."""
    path = tmp_path / "recipe.toml"
    path.write_text("num_envs = 8\n[optimizer]\nlearning_rate = 0.02\n")
    arguments = ["--config", str(path), "--num-envs", "32", "--optimizer.lr-scaling", scaling]
    config = parse(Train, "train", arguments).settings
    assert scaled_learning_rate(config) == pytest.approx(expected)
    assert float(optimizers.learning_rate(resolve(config))(0)) == pytest.approx(expected)
    # What the run directory keeps trains the same run again, also with other environments.
    path.write_text(to_toml(config))
    again = parse(Train, "train", ["--config", str(path)]).settings
    assert again == config


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"parallel": {"num_learners": 2}}, "--parallel.sync-every"),
        (
            {"parallel": {"sync_every": 1, "num_learners": 2, "groups": 2, "num_devices": 1}},
            "groups",
        ),
        (
            {"parallel": {"sync_every": 1, "num_learners": 3}},
            "does not divide among 3 learners: take 15 or 18",
        ),
        ({"parallel": {"sync_every": 1, "num_learners": 3, "num_devices": 2}}, "take 4"),
        ({"parallel": {"sync_every": 1, "num_learners": 32}}, "too few for 32 learners"),
    ],
)
def test_learners_that_do_not_fit_are_refused(changes, told):
    with pytest.raises(UserError, match=told):
        check(Config(num_envs=16).replaced(**changes))


def test_c51_has_neither_learners_nor_scaling_by_environments():
    config = load(recipe_file("c51_fast"))
    with pytest.raises(UserError, match="sync_every"):
        check(config.replaced(parallel={"sync_every": 1}))
    optimizer = dataclasses.replace(config.optimizer, lr_scaling="sqrt")
    with pytest.raises(UserError, match="lr_scaling"):
        check(dataclasses.replace(config, optimizer=optimizer))
