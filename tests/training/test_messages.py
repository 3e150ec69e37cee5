"""The lines that a session shows before it trains, and the note beside its progress."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.kernels import library
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training.member import Member
from jaxrl.training.messages import headline
from tests.conftest import CONFIGS, recipe_file

UNTUNED = "these are the defaults of a2c: `jaxrl configs` lists tuned settings"


def shown(config):
    session = SimpleNamespace(config=config, plan=resolve(config, 1), mesh=make_mesh(1))
    return headline([session], Path("runs/x")).split("\n")


def test_defaults_are_said_to_be_untuned():
    assert shown(Config()) == [
        "a2c on pong: 16 environments, 1 cpu device, 10,000,000 steps, into runs/x", UNTUNED,
    ]  # fmt: skip
    assert UNTUNED not in shown(load(recipe_file("a2c")))
    assert UNTUNED not in shown(Config().replaced(optimizer={"learning_rate": 1e-3}))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.toml")), ids=lambda path: path.stem)
def test_no_recipe_is_said_to_be_untuned(path):
    assert not [line for line in shown(load(path)) if "defaults" in line]


@pytest.mark.parametrize("able", [True, False])
def test_bfloat16_is_said_where_it_is_multiplied(able, monkeypatch):
    monkeypatch.setattr(library, "lanes", lambda: 16)
    monkeypatch.setattr(library, "multiplies_bfloat16", lambda: able)
    said = ["the network multiplies in bfloat16"] * able
    config = load(recipe_file("vtrace_cpu"))
    assert shown(config)[1:] == []
    assert shown(config.replaced(network={"dtype": "bfloat16"}))[1:] == said


def test_settings_without_an_effect_are_said():
    config = load(recipe_file("dqn")).replaced(agent={"importance_exponent": 0.6})
    assert shown(config)[1:] == [
        "agent.importance_exponent = 0.6 has no effect: agent.priority_exponent = 0 draws all alike"
    ]


@pytest.mark.parametrize(
    ("means", "note"),
    [
        ({"loss/huber": None, "value/q": None}, "filling the memory"),
        # No game has paid, and all returns are alike: a game of rare rewards, and no replay.
        ({"loss/value": 0.1, "reward/points": None, "value/explained_variance": None}, ""),
        ({"loss/value": None, "loss/skipped_updates": 3.0}, ""),  # all were skipped
    ],
)
def test_the_status_says_where_a_memory_fills(means, note):
    means = {"loss/learning_rate": 1e-3, "loss/skipped_updates": 0.0} | means
    assert Member.note.fget(SimpleNamespace(_means=means)) == note
