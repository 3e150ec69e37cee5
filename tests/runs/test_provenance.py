"""provenance.json names the commit of the package's repository."""

from pathlib import Path

import pytest

import jaxrl
from jaxrl.runs import provenance


def test_the_commit_is_found_in_the_repository_of_the_package():
    if not (Path(jaxrl.__file__).parents[1] / ".git").exists():
        pytest.skip("the package lies in no repository")
    assert provenance.git_commit()
