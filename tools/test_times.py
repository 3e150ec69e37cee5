"""Shows what the tests' time goes into, by file and by fixture, and holds it to a budget.

    python -m tools.test_times [REPORT ...]            tables, the most expensive first
    python -m tools.test_times --check [REPORT ...]    status 1 where something is over its budget

A REPORT is what `pytest --junitxml` writes; without one it is that of the last `make test` or `make
test-long`. Seconds are the processor's, so that other work on the machine hardly changes them. A
quick test may take 3, a file 60, or what `tests/budgets.csv` says. A file fails at twice that, a
test at four times: the first of a worker also pays for imports and for programs that others share.
"""

import argparse
import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / ".pytest_cache" / "times.xml"
BUDGETS = ROOT / "tests" / "budgets.csv"
QUICK_TEST, FILE = 3.0, 60.0  # seconds of a quick test, and of a file that has no line
NOISE_OF_FILE, NOISE_OF_TEST = 2.0, 4.0  # times the budget that fail


@dataclass(frozen=True)
class MeasuredTest:
    """One test, in seconds of the processor."""

    file: str
    name: str
    seconds: float  # with its set-up and what follows it
    wall: float  # seconds of the clock
    slow: bool
    fixtures: dict[str, float]  # those that were set up for it, as far as they took long

    @property
    def label(self) -> str:
        """Its file and its name, as pytest has them and `budgets.csv` does."""
        return f"{self.file}::{self.name}"

    @property
    def unshared(self) -> float:
        """Seconds without fixtures, which others may share."""
        return self.seconds - sum(self.fixtures.values())


def read(report: Path) -> list[MeasuredTest]:
    """Returns the tests of a report."""
    cases = ElementTree.parse(report).iter("testcase")
    return [_test(case) for case in cases if "classname" in case.attrib]  # an interrupt has none


def _test(case: ElementTree.Element) -> MeasuredTest:
    properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    fixtures = {
        name.removeprefix("fixture "): float(value)
        for name, value in properties.items()
        if name.startswith("fixture ")
    }
    return MeasuredTest(
        file=_file(case.attrib["classname"]),
        name=case.attrib["name"],
        seconds=sum(float(v) for name, v in properties.items() if name.startswith("cpu ")),
        wall=float(case.attrib["time"]),
        slow="slow" in properties,
        fixtures=fixtures,
    )


def _file(classname: str) -> str:
    """Returns the file of a test's module, or of the class in it."""
    parts = classname.split(".")
    while len(parts) > 1 and not (ROOT / "/".join(parts)).with_suffix(".py").is_file():
        parts = parts[:-1]
    return "/".join(parts) + ".py"


def sums(tests: Iterable[MeasuredTest]) -> dict[str, float]:
    """Returns seconds by file, the most expensive first."""
    total: Counter[str] = Counter()
    for test in tests:
        total[test.file] += test.seconds
    return dict(total.most_common())


def budgets(path: Path = BUDGETS) -> dict[str, float]:
    """Returns the seconds of files and of quick tests that may take more than most."""
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["name"]: float(row["seconds"]) for row in csv.DictReader(lines)}


def excesses(tests: list[MeasuredTest], allowed: dict[str, float]) -> list[str]:
    """Returns a line for each quick test and each file that is over its budget."""
    lines = [
        f"{test.label} takes {test.unshared:.0f} s of the processor, a quick test "
        f"{allowed.get(test.label, QUICK_TEST):g}: mark it slow, or make it cheaper"
        for test in tests
        if not test.slow and test.unshared > NOISE_OF_TEST * allowed.get(test.label, QUICK_TEST)
    ]
    for file, seconds in sums(tests).items():
        if seconds > NOISE_OF_FILE * allowed.get(file, FILE):
            lines.append(
                f"{file} takes {seconds:.0f} s of the processor, its budget is "
                f"{allowed.get(file, FILE):g}: make it cheaper, or change {BUDGETS.name}"
            )
    return lines


def tables(tests: list[MeasuredTest], most: int) -> str:
    """Returns the files and the fixtures that take the most seconds, as two tables."""
    by_file = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)
    lines = ["| file | tests | CPU s | s | slowest test |", "|---|---|---|---|---|"]
    total = sum(test.seconds for test in tests)
    for file, seconds in list(sums(tests).items())[:most]:
        slowest = max(by_file[file], key=lambda test: test.seconds)
        wall = sum(test.wall for test in by_file[file])
        count = len(by_file[file])
        lines.append(
            f"| {file} | {count} | {seconds:.0f} | {wall:.0f} | "
            f"{slowest.name} ({slowest.seconds:.0f}) |"
        )
    wall = sum(test.wall for test in tests)
    lines.append(f"| all {len(by_file)} files | {len(tests)} | {total:.0f} | {wall:.0f} | |")
    fixtures: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for test in tests:
        fixtures.update(test.fixtures)
        times.update(test.fixtures.keys())
    lines += ["", "| fixture | times | CPU s |", "|---|---|---|"]
    lines += [f"| {name} | {times[name]} | {s:.0f} |" for name, s in fixtures.most_common(most)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables, or what is over its budget; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="*", type=Path, default=[REPORT], metavar="REPORT")
    parser.add_argument("--check", action="store_true", help="hold the tests to their budget")
    parser.add_argument("--most", type=int, default=20, help="rows of a table")
    options = parser.parse_args(arguments)
    missing = [report for report in options.reports if not report.is_file()]
    if missing:
        print(f"{missing[0]}: no report; `make test` writes one", file=sys.stderr)
        return 2
    tests = [test for report in options.reports for test in read(report)]
    if not options.check:
        print(tables(tests, options.most))
        return 0
    lines = excesses(tests, budgets())
    print("\n".join(lines), file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
