"""provenance.json names the commit of the package's repository, and when the session began."""

import json
from datetime import datetime
from pathlib import Path

import pytest

import jaxrl
from jaxrl.config.schema import Config
from jaxrl.runs import provenance


def test_the_commit_is_found_in_the_repository_of_the_package():
    if not (Path(jaxrl.__file__).parents[1] / ".git").exists():
        pytest.skip("the package lies in no repository")
    assert provenance.git_commit()


def test_the_time_is_that_of_the_sessions_start(tmp_path):
    provenance.write_provenance(Config(game="catch"), tmp_path, [], "catch", {}, started=1e9)
    written = json.loads((tmp_path / "provenance.json").read_text())["started"]
    assert datetime.fromisoformat(written).timestamp() == 1e9
