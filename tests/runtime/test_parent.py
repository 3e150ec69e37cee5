"""A child that ends with its parent, as a sweep's member does."""

import os
import signal
import subprocess
import sys
import time

import psutil

from jaxrl.runtime.parent import VARIABLE
from tests.survival import ROOT

CHILD = "from jaxrl.runtime.parent import end_with_parent as e; e(); import time; print(1, flush=True); time.sleep(60)"  # noqa: E501
PARENT = """
import os, subprocess, sys
env = os.environ | {%r: str(os.getpid())}
child = subprocess.Popen([sys.executable, "-c", %r], env=env, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_ends_when_its_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT % (VARIABLE, CHILD)], cwd=ROOT,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_child_whose_parent_died_before_it_asked_ends_too():
    gone = subprocess.Popen(["true"])
    gone.wait()
    child = subprocess.run([sys.executable, "-c", CHILD], cwd=ROOT, check=False, timeout=30,
                           env=os.environ | {VARIABLE: str(gone.pid)})  # fmt: skip
    assert child.returncode == -signal.SIGTERM
