"""Settings that change nothing beside the others are said, those of the recipes all count."""

import dataclasses

import pytest

from jaxrl.config.diff import flat
from jaxrl.config.effects import RULES, without_effect
from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table, load
from jaxrl.config.validation import check
from tests.conftest import CONFIGS

CASES = [
    (
        "dqn",
        "agent",
        {"importance_exponent": 0.6},
        "agent.importance_exponent = 0.6 has no effect: agent.priority_exponent = 0 draws all",
    ),
    ("c51", "agent", {"importance_exponent_end": 0.5}, "agent.priority_exponent = 0 draws all"),
    ("r2d2", "agent", {"priority_max_weight": 0.5, "priority_exponent": 0.0}, "draws all alike"),
    ("iqn", "agent", {"munchausen_clip": -2.0}, "agent.munchausen_scale = 0 adds nothing"),
    ("qr_dqn", "agent", {"munchausen_temperature": 0.1}, "agent.munchausen_scale = 0 adds nothing"),
    (
        "nstep_q",
        "agent",
        {"epsilon_end": 0.05, "epsilon_spread": True},
        "agent.epsilon_end = 0.05 has no effect: agent.epsilon_spread ends at 0.1, 0.01 and 0.5",
    ),
    (
        "pqn",
        "agent",
        {"epsilon_start": 0.1, "epsilon_end": 0.1, "epsilon_decay_steps": 7},
        "agent.epsilon_decay_steps = 7 has no effect: agent.epsilon_start = agent.epsilon_end",
    ),
    (
        "dqn",
        "agent",
        {"epsilon_start": 0.01, "epsilon_schedule": "geometric"},
        "epsilon never falls",
    ),
    ("r2d2", "agent", {"epsilon_exponent": 3.0, "epsilon_base": 0.0}, "all powers of"),
    ("ppo", "agent", {"kl_target": 0.02}, "only optimizer.schedule = 'adaptive' aims at it"),
    ("vtrace", "agent", {"entropy_schedule": "linear", "entropy_coef": 0.0}, "nothing to lower"),
    ("ppo", "agent", {"entropy_schedule": "linear", "entropy_coef": 0.0}, "nothing to lower"),
    ("pqn", "agent", {"num_atoms": 21}, "agent.value_loss = 'squared' has no bins"),
    ("pqn", "agent", {"v_min": -5.0}, "has no effect: agent.value_loss = 'squared' has no bins"),
    ("pqn", "agent", {"v_max": 5.0}, "agent.value_loss = 'squared' has no bins"),
    ("pqn", "agent", {"sigma_ratio": 0.5}, "agent.value_loss = 'squared' has no bins"),
    (
        "pqn",
        "agent",
        {"value_loss": "two_hot", "sigma_ratio": 0.5},
        "only agent.value_loss = 'hl_gauss' has a width",
    ),
    ("pqn", "network", {"layer_norm": True, "hidden_norm": True}, "layer_norm normalizes that"),
    ("pqn", "network", {"simplicial_temperature": 0.5}, "simplicial_groups = 0 has no softmax"),
    ("a2c", "network", {"core_units": 64}, "network.core_units = 64 has no effect: network.core ="),
    ("a2c", "network", {"core_inputs": False}, "network.core_inputs = false has no effect"),
    ("ppo", "network", {"core_resets": "life"}, "network.core_resets = life has no effect"),
    ("a2c", "optimizer", {"decay_mean": 0.5}, "rmsprop keeps no mean of the gradients"),
    ("ppo", "optimizer", {"name": "adam", "eps_inside_root": False}, "only rmsprop has it"),
    ("a2c", "optimizer", {"name": "radam", "initial_scale": 1.0}, "only rmsprop has it"),
    (
        "vtrace",
        "checkpoint",
        {"memory": False},
        "checkpoint.memory = false has no effect: vtrace has no replay",
    ),
    ("a2c", "log", {"wandb_project": "mine"}, "log.wandb = false sends nothing"),
    ("a2c", "env", {"engine": "envpool", "exact_resets": True}, "only env.engine = 'atari2600'"),
]


@pytest.mark.parametrize(("algorithm", "section", "changes", "told"), CASES)
def test_a_setting_without_an_effect_is_said(algorithm, section, changes, told):
    """And is not refused: studies switch off what stands above it."""
    config = from_table({"algorithm": algorithm, section: changes})
    (line,) = without_effect(config)
    assert told in line


def test_every_rule_is_tried_and_names_settings_that_are_there():
    tried = {f"{section}.{key}" for _, section, changes, _ in CASES for key in changes}
    algorithms = ("a2c", "ppo", "vtrace", "dqn", "r2d2", "pqn")
    known = {
        key
        for algorithm in algorithms
        for key in flat(dataclasses.asdict(from_table({"algorithm": algorithm})))
    }
    for rule in RULES:
        assert set(rule.keys) <= known & tried


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.toml")), ids=lambda path: path.stem)
def test_every_setting_of_a_recipe_counts(path):
    assert without_effect(load(path)) == []


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("dqn", {"agent": {"priority_exponent": 0.5, "importance_exponent": 0.6}}),
        ("iqn", {"agent": {"munchausen_scale": 0.9, "munchausen_clip": -2.0}}),
        ("nstep_q", {"agent": {"epsilon_end": 0.05}}),
        ("ppo", {"agent": {"kl_target": 0.02}, "optimizer": {"schedule": "adaptive"}}),
        ("a2c", {"network": {"core": "gru", "core_units": 64}}),
        ("a2c", {"optimizer": {"name": "adam", "decay_mean": 0.5}}),
        ("a2c", {"optimizer": {"eps_inside_root": False, "initial_scale": 1.0}}),
        ("dqn", {"checkpoint": {"memory": False}}),
        ("a2c", {"env": {"exact_resets": True}}),  # auto may take our emulator
    ],
)
def test_settings_that_count_are_not_said(algorithm, changes):
    config = from_table({"algorithm": algorithm, **changes})
    check(config)
    assert without_effect(config) == []


def test_defaults_are_not_said():
    assert without_effect(Config()) == []
