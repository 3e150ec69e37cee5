"""The entries of a report: runs of one configuration, which share a color and a button."""

from typing import NamedTuple

from jaxrl.analysis.drawing import line_style
from jaxrl.analysis.groups import distinct_names, group_any_runs, short_labels
from jaxrl.analysis.report.reader import ReportedRun, distinct_texts

BOKEHS = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dotdash"}  # names of the lines


class Entry(NamedTuple):
    """Runs that differ only in game and seed, or a single run."""

    name: str  # different from those of the other entries
    color: str
    dash: str
    runs: list[ReportedRun]


def style(place: int) -> tuple[str, str]:
    """Returns color and dashes of the entry with this number."""
    line = line_style(place)
    return line["color"], BOKEHS[line["linestyle"]]


def entries_of(runs: list[ReportedRun]) -> list[Entry]:
    """Returns the runs by configuration, each under its name where no two runs have the same."""
    by_path = {run.path: run for run in runs}
    runs_by_label: dict[str, list[ReportedRun]] = {}
    for group in group_any_runs(list(by_path)):
        runs_by_label.setdefault(group.label, []).extend(by_path[path] for path in group.run_dirs)
    groups, labels = list(runs_by_label.values()), list(runs_by_label)
    if len(groups) == len(runs):
        groups, labels = [[run] for run in runs], [run.name for run in runs]
    _, short = short_labels(labels)
    names = distinct_texts([short[label] for label in labels])
    return [
        Entry(name, *style(place), group)
        for place, (name, group) in enumerate(zip(names, groups, strict=True))
    ]


def common_name(runs: list[ReportedRun]) -> str:
    """Returns the parts that all names of the directories have; empty for a single run."""
    common, _ = short_labels(distinct_names([run.path for run in runs]))
    return distinct_texts([common])[0]
