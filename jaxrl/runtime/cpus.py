"""The CPUs that this process may use."""

import os


def cores() -> list[int]:
    """Returns the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count() -> int:
    """Returns how many CPUs this process may use."""
    return len(cores())
