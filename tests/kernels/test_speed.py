"""The table of the kernels' speed is printed for every layer of the networks."""

import re
import subprocess
import sys

import pytest

from tests.survival import ROOT
from tools import kernel_speed


@pytest.mark.slow
def test_every_layer_and_network_has_a_row():
    command = [sys.executable, "-m", "tools.kernel_speed", "0.001"]
    table = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = [line for line in table.splitlines() if "| float32 |" in line]
    assert len(rows) == 1 + (3 + 3 + 4 + 6 + 6) + 5
    totals = re.findall(
        r"^\| \*\*.*float32 \| \*\*(\d+)\*\*, ([\d.]+) µs a row", table, re.MULTILINE
    )
    assert len(totals) == 5
    assert all(float(number) > 0 for total in totals for number in total)


@pytest.mark.parametrize("wrong", [["abc"], ["-1"], ["1", "2"], ["--help"]])
def test_other_arguments_are_refused(wrong, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kernel_speed", *wrong])
    with pytest.raises(SystemExit, match="seconds for each figure, above 0"):
        kernel_speed.main()
