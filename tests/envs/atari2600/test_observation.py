"""Frames are averaged many pixels at a time, and come out as they do one by one."""

import subprocess
from pathlib import Path

from tests.envs.atari2600.native import SANITIZED, compiled

CPU = Path("/proc/cpuinfo")


def test_every_way_to_average_equals_that_of_one_pixel(tmp_path):
    """Whose sums are those of EnvPool: `test_settings_mean_what_they_mean_to_envpool`."""
    program = compiled("observation.cc", tmp_path, "-O1", "-march=native", *SANITIZED)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 24
    assert [row for row in rows if row[3] != "0"] == []
    if "avx2" in CPU.read_text():
        ways = {(int(lines), int(width)): way for lines, _, width, _, way in rows}
        assert ways.pop((210, 84)) == "square"
        assert ways == {place: "eights" if place[1] >= 43 else "pixels" for place in ways}
