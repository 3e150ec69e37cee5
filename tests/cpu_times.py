"""Writes the processor seconds of every test and fixture into pytest's report.

Seconds of the clock depend on what else the machine does; those of the processor, of this process
and of the children that it has waited for, hardly do. `tools/test_times.py` makes a table of them.
"""

import os

import pytest

_fixtures: dict[str, float] = {}  # of the test in progress


def cpu_seconds() -> float:
    """Returns what this process and its ended children have taken of the processors."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Measures a fixture without those that it takes, which are ready by then."""
    began = cpu_seconds()
    try:
        return (yield)
    finally:
        _fixtures[fixturedef.argname] = cpu_seconds() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Forgets the fixtures of the test before."""
    _fixtures.clear()
    return (yield)


def _measured(item, phase):
    began = cpu_seconds()
    try:
        return (yield)
    finally:
        seconds = cpu_seconds() - began
        item.user_properties.append((f"cpu {phase}", f"{seconds:.3f}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Measures what a test waits for, and names the fixtures that took long, and the tier."""
    if item.get_closest_marker("slow"):
        item.user_properties.append(("slow", "yes"))
    yield from _measured(item, "setup")
    slow = {name: seconds for name, seconds in _fixtures.items() if seconds >= 0.1}
    item.user_properties += [(f"fixture {name}", f"{s:.3f}") for name, s in slow.items()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Measures the test itself."""
    yield from _measured(item, "call")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Measures what is taken down after it."""
    yield from _measured(item, "teardown")
