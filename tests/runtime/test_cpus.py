"""The CPUs that a process may use, by files as control groups of Linux have them."""

import os

import pytest

from jaxrl.runtime import cpus

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = ("31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
      "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "33 31 0:30 {top} /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n")  # fmt: skip
DOCKER = V1.format(top="/docker/a1")


def tree(folder, mounts, groups, files):
    """Writes a file tree: the mounts, the process's groups and the files of /sys/fs/cgroup."""
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    files |= {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def v1(folder, quota, period=100000):
    start = f"cpu,cpuacct/{folder}"
    return {f"{start}cpu.cfs_quota_us": f"{quota}\n", f"{start}cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit"),
    [
        (V2, "0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        (V2, "0::/\n", {"cpu.max": "max 100000\n"}, None),
        (V2, "0::/\n", {}, None),  # the machine's top has no such file
        # The least of nested groups, of which one at the side does not count.
        (V2, "0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 50000\n",
                           "c/cpu.max": "100000 100000\n"}, 3.0),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "150000 100000\n"}, 0.5),
        # A container sees its group as the top, under the machine's path or under that of its own.
        (DOCKER, "4:cpu,cpuacct:/docker/a1\n3:cpuset:/docker/a1\n", v1("", 150000), 1.5),
        (DOCKER, "4:cpu,cpuacct:/docker/a1/in\n", v1("", -1) | v1("in/", 60000, 20000), 3.0),
        (DOCKER, "4:cpu,cpuacct:/\n", v1("", 200000), 2.0),
        (V1.format(top="/"), "4:cpu,cpuacct:/x/y\n", v1("x/", 300000) | v1("x/y/", -1), 3.0),
        (V1.format(top="/"), "3:cpuset:/\n4:cpu,cpuacct:/\n0::/\n", v1("", -1), None),
        ("", "", {}, None),
    ],
)  # fmt: skip
def test_the_least_limit_from_the_own_group_to_the_top(mounts, groups, files, limit, tmp_path):
    assert cpus.time_limit(tree(tmp_path, mounts, groups, files)) == limit


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert cpus.time_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 4), (0.2, 1), (1.0, 1), (1.5, 2), (2.0, 2), (3.01, 4), (64.0, 4)]
)
def test_a_part_of_a_cpu_counts_as_one(limit, count, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7, 9})
    monkeypatch.setattr(cpus, "time_limit", lambda: limit)
    assert cpus.count() == count
    assert cpus.cores() == [3, 5, 7, 9]
