"""Two simulated CPU devices for every test; a mesh of one takes the first of them."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxrl.config import Config, load
from jaxrl.distribute import simulate_cpu_devices

simulate_cpu_devices(2)

CONFIGS = Path(__file__).parents[1] / "configs"


def catch_config(**changes: Any) -> Config:
    """The recipe for small machines, on Catch and on one device."""
    recipe = load(CONFIGS / "a2c_fast.toml")
    defaults = {"game": "catch", "num_devices": 1, "total_steps": 20_000, "log_interval": 1000}
    return dataclasses.replace(recipe, **(defaults | changes))


@pytest.fixture
def strict_shapes():
    """Broadcasting between ranks is an error."""
    with jax.numpy_rank_promotion("raise"):
        yield
