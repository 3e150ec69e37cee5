"""A child that ends with its parent, as a sweep's member does."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil

from jaxrl.runtime import parent
from jaxrl.runtime.parent import VARIABLE
from tests.survival import ROOT

CHILD = "from jaxrl.runtime.parent import end_with_parent as e; e(); import time; print(1, flush=True); time.sleep(60)"  # noqa: E501
# Counts the signals that it gets in two seconds after the first.
COUNTS = """
import signal, time
numbers = []
signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
from jaxrl.runtime.parent import end_with_parent
end_with_parent()
print(1, flush=True)
while not numbers:
    time.sleep(0.001)
end = time.monotonic() + 2
while time.monotonic() < end:
    time.sleep(0.001)
open(%r, "w").write(str(len(numbers)))
"""
PARENT = """
import os, subprocess, sys, threading, time
for _ in range(50):  # as BLAS and XLA have them
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
env = os.environ | {%r: str(os.getpid())}
child = subprocess.Popen([sys.executable, "-c", %r], env=env, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_ends_when_its_parent_is_killed():
    process = subprocess.Popen([sys.executable, "-c", PARENT % (VARIABLE, CHILD)], cwd=ROOT,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    child = psutil.Process(int(process.stdout.readline()))
    assert child.is_running()
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_parent_of_many_threads_is_one_signal(tmp_path):
    """Two would end training unsaved."""
    signals = tmp_path / "signals"
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT % (VARIABLE, COUNTS % str(signals))], cwd=ROOT,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while not (signals.exists() and signals.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert signals.read_text() == "1"


def test_a_child_that_saves_already_goes_on(monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    monkeypatch.setattr(parent, "stopping", threading.Event())
    gone = -1
    parent._wait_and_end(gone)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    parent.stopping.set()
    parent._wait_and_end(gone)
    assert len(sent) == 1


def test_a_child_whose_parent_died_before_it_asked_ends_too():
    gone = subprocess.Popen(["true"])
    gone.wait()
    child = subprocess.run([sys.executable, "-c", CHILD], cwd=ROOT, check=False, timeout=30,
                           env=os.environ | {VARIABLE: str(gone.pid)})  # fmt: skip
    assert child.returncode == -signal.SIGTERM
