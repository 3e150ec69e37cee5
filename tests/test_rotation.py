"""The parts of a rotating test are all of its cases, each once, and a part can be repeated."""

import subprocess
from types import SimpleNamespace

import pytest

from tests import rotation
from tests.survival import ROOT

CASES = [f"tests/x.py::test_many[{i}]" for i in range(7)] + ["tests/x.py::test_one"]


def selected(monkeypatch, part, *arguments, **group):
    monkeypatch.setattr(rotation, "THOROUGH", False)
    monkeypatch.setenv("JAXRL_PART", str(part))
    marker = pytest.mark.rotating(3, **group).mark
    items = [_Item(name, marker if "many" in name else None) for name in CASES]
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    left: list = []
    rotation.pytest_collection_modifyitems(SimpleNamespace(args=arguments, hook=hook), items)
    assert len(items) + len(left) == len(CASES)
    return {item.nodeid for item in items}


class _Item:
    def __init__(self, nodeid, marker):
        self.nodeid, self.marker = nodeid, marker

    def get_closest_marker(self, name):
        return self.marker if self.marker and self.marker.name == name else None


def test_three_parts_are_all_cases(monkeypatch):
    parts = [
        selected(monkeypatch, number, "tests") - {"tests/x.py::test_one"} for number in range(3)
    ]
    assert sorted(len(part) for part in parts) == [2, 2, 3]
    assert set.union(*parts) == set(CASES[:-1])


def test_a_part_is_repeated_by_its_number(monkeypatch):
    assert selected(monkeypatch, 4, "tests") != selected(monkeypatch, 5, "tests")
    assert selected(monkeypatch, 1, "tests") == selected(monkeypatch, 4, "tests")


def test_the_tests_of_a_group_count_together(monkeypatch):
    """Those of one case run with one commit in three, and not all with the same."""
    monkeypatch.setattr("tests.test_rotation.CASES", [f"tests/{i}.py::test_many" for i in range(6)])
    parts = [selected(monkeypatch, number, "tests", group="x") for number in range(3)]
    assert [len(part) for part in parts] == [2, 2, 2]
    assert len(set.union(*parts)) == 6


@pytest.mark.parametrize(("mark", "often"), [("slow", 1), ("rotating(1)", 5), (None, 5)])
def test_slow_tests_take_turns_by_five_unless_they_always_run(monkeypatch, mark, often):
    monkeypatch.setattr(rotation, "THOROUGH", False)
    marker = {"slow": pytest.mark.slow, "rotating(1)": pytest.mark.rotating(1)}.get(mark)
    ran = []
    for number in range(5):
        monkeypatch.setenv("JAXRL_PART", str(number))
        items = [_Item(f"tests/x.py::test_{i}", marker and marker.mark) for i in range(5)]
        hook = SimpleNamespace(pytest_deselected=lambda items: None)
        rotation.pytest_collection_modifyitems(SimpleNamespace(args=("tests",), hook=hook), items)
        ran += [item.nodeid for item in items]
    assert sorted(ran) == sorted([f"tests/x.py::test_{i}" for i in range(5)] * often)


def test_all_run_where_a_test_is_named(monkeypatch):
    assert selected(monkeypatch, 4, "tests/x.py::test_many[0]") == set(CASES)


def test_a_commit_chooses_the_part(monkeypatch):
    monkeypatch.delenv("JAXRL_PART", raising=False)
    command = ["git", "log", "--format=%H"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert rotation.part() == len(done.stdout.split())  # 0 in a copy that is no clone
