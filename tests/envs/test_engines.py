"""The engine and the interface are decided once, for this machine."""

import dataclasses

import jax
import pytest

from jaxrl.config.schema import EnvConfig
from jaxrl.envs import choose_engine


@pytest.mark.parametrize(
    ("platform", "engine", "interface", "decided"),
    [
        ("cpu", "atari2600", "auto", "xla"),
        ("cpu", "atari2600", "callback", "callback"),
        ("cpu", "envpool", "auto", "xla"),
        ("tpu", "atari2600", "auto", "callback"),
        ("tpu", "envpool", "auto", "callback"),
        ("tpu", "envpool", "xla", "xla"),  # which `check_engine` refuses
    ],
)
def test_an_open_interface_is_that_of_the_platform(
    platform, engine, interface, decided, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    chosen = choose_engine("pong", EnvConfig(engine=engine, interface=interface))
    assert chosen == EnvConfig(engine=engine, interface=decided)


@pytest.mark.parametrize("game", ["pong", "catch"])
def test_what_is_decided_stays(game):
    """Everything but the engine and the interface is as the configuration has it."""
    env = EnvConfig(frame_skip=2, noop_max=7)
    chosen = choose_engine(game, env)
    assert chosen.engine != "auto"
    assert choose_engine(game, chosen) == chosen
    assert dataclasses.replace(chosen, engine="auto", interface="auto") == env
