"""The CPUs that this process may use: its cores, and its container's limit on CPU time."""

import itertools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# Mounted folder of a hierarchy and mount point, then the type and the options, which name the
# controllers of version 1.
MOUNT = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) .*- (cgroup2?) \S+ (\S+)$")


def cores() -> list[int]:
    """Returns the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count() -> int:
    """Returns how many CPUs this process may use: its cores, or fewer where its time is limited.

    A part of a CPU counts as one, because a thread less would leave that part unused.
    """
    limit = time_limit()
    usable = len(cores())
    return usable if limit is None else min(usable, math.ceil(limit))


def time_limit(root: Path = Path("/")) -> float | None:
    """Returns the CPUs' worth of time that control groups allow; None without a limit.

    A group's limit holds for all groups below it, so the least of those above the process counts.
    """
    limits = [_limit(folder) for folder in _groups(root)]
    return min((limit for limit in limits if limit is not None), default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yields the folders of the process's group and of all above it, of versions 1 and 2."""
    mounts = [match.groups() for line in _lines(root / "proc/self/mountinfo")
              if (match := MOUNT.match(line))]  # fmt: skip
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    for (_, controllers, path), (top, point, kind, options) in itertools.product(groups, mounts):
        is_second = kind == "cgroup2" and not controllers
        if is_second or {"cpu"} <= {*controllers.split(",")} & {*options.split(",")}:
            mounted, group = root / point.lstrip("/"), PurePosixPath(path)
            # A container may see its own group as the top, under the machine's path.
            below = group.relative_to(top) if group.is_relative_to(top) else PurePosixPath()
            yield from (mounted / part for part in (below, *below.parents))


def _limit(folder: Path) -> float | None:
    """Returns the limit of one group, in CPUs; None without one."""
    # Version 2 of cgroups, or else version 1.
    numbers = [number for line in _lines(folder / "cpu.max") for number in line.split()]
    if not numbers:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        numbers = [number for name in names for number in _lines(folder / name)]
    if len(numbers) != 2 or not all(map(str.isdecimal, numbers)):  # "max", or -1
        return None
    quota, period = map(int, numbers)
    return quota / period if quota and period else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux, no such controller, or hidden
        return []
