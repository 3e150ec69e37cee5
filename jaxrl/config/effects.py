"""Settings that change nothing beside the others, which a run says where it begins.

They are said and not refused: a study that switches an option off, as of the priorities of Rainbow,
would have to take back all that stands beside it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrl.config.diff import flat
from jaxrl.config.overrides import value_of
from jaxrl.config.schema import Config
from jaxrl.config.variations import shown


class Rule(NamedTuple):
    """Settings without an effect where another one has a value."""

    keys: tuple[str, ...]  # dotted
    applies: Callable[[Config], bool]
    reason: str  # {algorithm} stands for the configuration's


def _agent(key: str, *values: Any) -> Callable[[Config], bool]:
    """Returns whether the algorithm has a setting, with one of these values."""
    return lambda config: getattr(config.agent, key, None) in values


def _has_no_core(config: Config) -> bool:
    return not config.network.remembers


def _epsilon_stays(config: Config) -> bool:
    start, end = (getattr(config.agent, f"epsilon_{name}", None) for name in ("start", "end"))
    return start == end and not getattr(config.agent, "epsilon_spread", False)


RULES = (
    Rule(
        ("agent.importance_exponent", "agent.importance_exponent_end", "agent.priority_max_weight"),
        _agent("priority_exponent", 0),
        "agent.priority_exponent = 0 draws all alike",
    ),
    Rule(
        ("agent.munchausen_temperature", "agent.munchausen_clip"),
        _agent("munchausen_scale", 0),
        "agent.munchausen_scale = 0 adds nothing to the reward",
    ),
    Rule(
        ("agent.epsilon_end",),
        _agent("epsilon_spread", True),
        "agent.epsilon_spread ends at 0.1, 0.01 and 0.5",
    ),
    Rule(
        ("agent.epsilon_decay_steps", "agent.epsilon_schedule"),
        _epsilon_stays,
        "agent.epsilon_start = agent.epsilon_end, so epsilon never falls",
    ),
    Rule(
        ("agent.epsilon_exponent",),
        _agent("epsilon_base", 0, 1),
        "all powers of agent.epsilon_base are equal",
    ),
    Rule(
        ("agent.kl_target",),
        lambda config: config.optimizer.schedule != "adaptive",
        "only optimizer.schedule = 'adaptive' aims at it",
    ),
    Rule(
        ("agent.entropy_schedule",),
        _agent("entropy_coef", 0),
        "agent.entropy_coef = 0 has nothing to lower",
    ),
    Rule(
        ("agent.num_atoms", "agent.v_min", "agent.v_max", "agent.sigma_ratio"),
        _agent("value_loss", "squared"),
        "agent.value_loss = 'squared' has no bins",
    ),
    Rule(
        ("agent.sigma_ratio",),
        _agent("value_loss", "two_hot"),
        "only agent.value_loss = 'hl_gauss' has a width",
    ),
    Rule(
        ("network.hidden_norm",),
        lambda config: config.network.layer_norm,
        "network.layer_norm normalizes that layer, too",
    ),
    Rule(
        ("network.simplicial_temperature",),
        lambda config: not config.network.simplicial_groups,
        "network.simplicial_groups = 0 has no softmax",
    ),
    Rule(
        ("network.core_units", "network.core_inputs", "network.core_resets"),
        _has_no_core,
        "network.core = 'none'",
    ),
    Rule(
        ("optimizer.decay_mean",),
        lambda config: config.optimizer.name == "rmsprop",
        "rmsprop keeps no mean of the gradients",
    ),
    Rule(
        ("optimizer.eps_inside_root", "optimizer.initial_scale"),
        lambda config: config.optimizer.name != "rmsprop",
        "only rmsprop has it",
    ),
    Rule(
        ("checkpoint.memory",),
        lambda config: not config.agent.remembers_past,
        "{algorithm} has no replay",
    ),
    Rule(
        ("log.wandb_project",),
        lambda config: not config.log.wandb,
        "log.wandb = false sends nothing",
    ),
    Rule(
        ("env.exact_resets",),
        lambda config: config.env.engine in ("envpool", "catch"),
        "only env.engine = 'atari2600' copies starts of games",
    ),
)


def without_effect(config: Config) -> list[str]:
    """Returns a line for each setting that is not its default and changes nothing here."""
    default = flat(dataclasses.asdict(Config(agent=type(config.agent)())))
    lines = []
    for rule in RULES:
        if not rule.applies(config):
            continue
        for key in rule.keys:
            if key in default and (value := value_of(config, key)) != default[key]:
                reason = rule.reason.format(algorithm=config.algorithm)
                lines.append(f"{key} = {shown(value)} has no effect: {reason}")
    return lines
