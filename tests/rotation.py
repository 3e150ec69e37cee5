"""Runs a part of the exhaustive tests in each session, another one with each commit.

A test marked `rotating(n)` runs every n-th of its cases, from one that the number of commits
chooses: n commits in a row run all. A test of one case runs with one commit in n. With
`group="name"` the cases of all tests in this group count together. Other slow tests of a file take
turns by five; `rotating(1)` runs always, for promises that no other test keeps.

The head of pytest's report names the part; `JAXRL_PART` of the environment repeats it, with the
same arguments of pytest. All cases run with JAXRL_THOROUGH=1 (`make test-thorough`), and where a
test or a file is named with "::".
"""

import os
import subprocess
import zlib
from collections import defaultdict
from pathlib import Path

TURNS = 5  # of slow tests that say nothing else
THOROUGH = os.environ.get("JAXRL_THOROUGH") == "1"


def part() -> int:
    """Returns JAXRL_PART, or the number of commits; 0 without git."""
    if chosen := os.environ.get("JAXRL_PART"):
        return int(chosen)
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(done.stdout) if done.returncode == 0 else 0


def runs(case: int, every: int, key: str, number: int) -> bool:
    """Returns whether a part has a case; tests of different keys begin at different cases."""
    return (case + zlib.crc32(key.encode()) + number) % every == 0


def pytest_report_header(config) -> str:
    """Says how to repeat this part."""
    return f"rotating tests: {'all' if _all(config) else f'JAXRL_PART={part()}'}"


def pytest_collection_modifyitems(config, items) -> None:
    """Leaves out the cases that are not of this part."""
    if _all(config):
        return
    cases = defaultdict(list)
    for item in items:
        if turn := _turn(item):
            cases[turn].append(item)
    number, left_out = part(), set()
    for (key, every), those in cases.items():
        left_out |= {item for i, item in enumerate(those) if not runs(i, every, key, number)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _turn(item) -> tuple[str, int] | None:
    """Returns those with which a test takes turns, and their number; None if it always runs."""
    if marker := item.get_closest_marker("rotating"):
        (every,) = marker.args
        return marker.kwargs.get("group") or item.nodeid.partition("[")[0], every
    if item.get_closest_marker("slow"):
        return f"slow tests of {item.nodeid.partition('::')[0]}", TURNS
    return None


def _all(config) -> bool:
    return THOROUGH or any("::" in argument for argument in config.args)
