"""An algorithm that is a folder is checked before a run directory is made."""

import pytest

import jaxrl
import jaxrl.agents
from jaxrl.config import algorithms
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.training import train

SETTINGS = """
from dataclasses import dataclass
from jaxrl.config.algorithm_base import AlgorithmConfig

@dataclass(frozen=True)
class HalfConfig(AlgorithmConfig):
    pass
"""


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("half_a", {"settings.py": SETTINGS}, r"jaxrl/agents/half_a/ must have agent\.py"),
        ("half_b", {"agent.py": ""}, r"jaxrl/agents/half_b/ must have settings\.py"),
        ("half_c", {}, r"half_c/ must have settings\.py and agent\.py"),
    ],
)
def test_a_part_that_a_folder_lacks_is_named(tmp_path, monkeypatch, name, files, message):
    install(tmp_path, monkeypatch, name, files)
    with pytest.raises(UserError, match=message):
        algorithms.algorithm_config(name)


def test_an_agent_without_make_is_named(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "half_d", {"settings.py": SETTINGS, "agent.py": ""})
    assert algorithms.algorithm_config("half_d").__name__ == "HalfConfig"
    with pytest.raises(UserError, match=r"half_d/agent\.py must define make\(plan, spec\)"):
        algorithms.agent_module("half_d")


def install(path, monkeypatch, name, files):
    """Adds a folder of files to those of jaxrl's algorithms."""
    (path / name).mkdir()
    for file, text in ({"__init__.py": ""} | files).items():
        (path / name / file).write_text(text)
    monkeypatch.setattr(jaxrl.agents, "__path__", [*jaxrl.agents.__path__, str(path)])


@pytest.mark.parametrize(
    "start", [jaxrl.train, lambda config: train.start_population(config, (1, 2))]
)
def test_values_are_checked_before_anything_is_computed_from_them(monkeypatch, tmp_path, start):
    """The time limit in agent steps is frames divided by this."""
    monkeypatch.chdir(tmp_path)
    config = Config(game="catch").replaced(env={"frame_skip": 0})
    with pytest.raises(UserError, match=r"env\.frame_skip = 0: must lie between 1 and 255"):
        start(config)
    assert not list(tmp_path.iterdir())
