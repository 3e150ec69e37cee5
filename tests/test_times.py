"""The table of what tests take, and their budgets."""

import pytest

from tests.survival import ROOT
from tools import test_times as times

CASE = """<testcase classname="{module}" name="{name}" time="{wall}"><properties>{rest}
<property name="cpu setup" value="{setup}" /><property name="cpu call" value="{call}" />
<property name="cpu teardown" value="0.5" /></properties></testcase>"""
SLOW = '<property name="slow" value="yes" />'
FIXTURE = '<property name="fixture trained" value="3.0" />'


@pytest.fixture
def report(tmp_path):
    cases = [
        ("tests.ops.test_returns", "test_a", 2.0, 0.25, 1.0, ""),
        ("tests.ops.test_returns.TestGroup", "test_b[x]", 9.0, 3.5, 13.0, FIXTURE),
        ("tests.test_public", "test_c", 100.0, 0.0, 120.5, SLOW),
    ]
    text = "".join(
        CASE.format(module=m, name=n, wall=w, setup=s, call=c, rest=rest)
        for m, n, w, s, c, rest in cases
    )
    path = tmp_path / "times.xml"
    path.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    return path


def test_seconds_are_summed_by_file_and_fixture(report, capsys):
    assert times.sums(times.read(report)) == {
        "tests/test_public.py": 121.0,  # 0 + 120.5 + 0.5
        "tests/ops/test_returns.py": 1.75 + 17.0,  # 0.25 + 1 + 0.5, and 3.5 + 13 + 0.5
    }
    assert times.main([str(report)]) == 0
    table = capsys.readouterr().out
    assert "| tests/ops/test_returns.py | 2 | 19 | 11 | test_b[x] (17) |" in table
    assert "| all 2 files | 3 | 140 | 111 | |" in table
    assert "| trained | 1 | 3 |" in table


def test_what_is_far_over_its_budget_is_named(report):
    lines = times.excesses(times.read(report), {})
    assert [line.partition(" takes ")[0] for line in lines] == [
        "tests/ops/test_returns.py::test_b[x]",  # 14 s without a fixture's 3
        "tests/test_public.py",  # 121 s, over twice 60
    ]
    assert "121 s of the processor, its budget is 60" in lines[1]
    (line,) = times.excesses(times.read(report), {"tests/test_public.py": 61})
    assert "a quick test 3: mark it slow" in line
    more = {"tests/test_public.py": 61, "tests/ops/test_returns.py::test_b[x]": 3.5}
    assert times.excesses(times.read(report), more) == []


def test_the_status_tells_whether_a_budget_holds(report, tmp_path, capsys):
    assert times.main(["--check", str(report)]) == 1
    assert "test_b[x] takes 14 s" in capsys.readouterr().err
    assert times.main(["--check", str(tmp_path / "none.xml")]) == 2


def test_budgets_are_of_files_that_exist():
    budgets = times.budgets()
    assert budgets
    for name, seconds in budgets.items():
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file()
        assert seconds > (times.QUICK_TEST if test else times.FILE)
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text() if test else True
