"""Every mutant of the table still finds its line and its test; tools/mutants.py runs them."""

import re
from collections import Counter

import pytest

from tests.survival import ROOT
from tools.mutants import mutants

ALL = mutants()


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_its_text_occurs_once_and_its_test_exists(mutant):
    text = (ROOT / "jaxrl" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.original) == 1
    assert mutant.changed != mutant.original
    path, *names = mutant.test.split("::")
    tests = (ROOT / "tests" / path).read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf"\b(def|class) {name.partition('[')[0]}\b", tests)


def test_names_occur_once():
    assert max(Counter(mutant.name for mutant in ALL).values()) == 1
