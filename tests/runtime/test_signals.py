"""Signals: the first saves within the compiled call, the second ends at once."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time

import numpy as np
import pytest

import jaxrl
from jaxrl.runs import checkpoint_files, layout, metrics
from jaxrl.runtime import processes, signals
from jaxrl.training import train
from tests.conftest import catch_config
from tests.survival import ROOT, SMALL, begin, check_metrics, environment, finish


@pytest.fixture(autouse=True)
def hears_hangups():
    """Where these tests run under nohup, the processes that they start would ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# Python's handlers would wait for the end of this compiled call: half a minute.
COMPILED = """
import sys, time
import jax, jax.numpy as jnp
from jaxrl.runtime.signals import StopSignal
with StopSignal().watching() as stop:
    stop.savable = {savable}
    loop = jax.jit(lambda n, x: jax.lax.fori_loop(0, n, lambda i, y: jnp.sin(y @ y), x))
    seconds, n = 0.0, 1
    while seconds < 0.5:
        n, before = n * 2, time.process_time()  # a machine that pauses does not count
        jax.block_until_ready(loop(n, jnp.ones((200, 200))))
        seconds = time.process_time() - before
    print("in the call", flush=True)
    jax.block_until_ready(loop(int(n * 60), jnp.ones((200, 200))))
    print("through")
"""


def in_a_long_call(savable):
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILED.format(savable=savable)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert process.stdout.readline() == "in the call\n"
    time.sleep(0.2)
    return process


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_a_second_signal_ends_a_compiled_call_at_once():
    process = in_a_long_call(savable=True)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):  # the first one waits for the call
        process.wait(timeout=2)
    process.send_signal(signal.SIGUSR1)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGUSR1
    assert out == ""
    assert errors.split("\n")[1] == "saving, then stopping; a second signal stops at once"
    assert "stopped at once" in errors


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_before_there_is_anything_to_save_the_first_signal_ends_at_once():
    process = in_a_long_call(savable=False)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "stopped before training began" in errors


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_the_run_goes_on_from_there(tmp_path, number):
    run_dir = tmp_path / "x"
    process = begin("train", *SMALL, "--log.interval", "200", "--run-dir", run_dir)
    deadline = time.monotonic() + 120
    while not ((run_dir / layout.METRICS).exists() and metrics.read(run_dir)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(number)
    status, errors = finish(process)
    assert status == 128 + number, errors
    assert "Traceback" not in errors
    assert f"jaxrl resume {run_dir}" in errors
    (saved,) = checkpoint_files.steps(run_dir)
    assert saved >= metrics.read(run_dir)[-1]["step"]
    assert checkpoint_files.describe(run_dir, saved).progress.step == saved
    assert checkpoint_files.damage(run_dir, saved) == ""
    goal = saved + 400
    status, errors = finish(begin("resume", run_dir, "--override", f"total_steps={goal}"))
    assert status == 0, errors
    rows = check_metrics(run_dir)
    assert rows[-1]["step"] == -(-goal // 20) * 20  # whole updates
    provenance = json.loads((run_dir / "provenance.json").read_text())
    assert provenance["resumed"][0]["overridden"] == {"total_steps": [3_000_000, goal]}


@pytest.mark.slow
def test_a_terminal_that_is_closed_loses_nothing(tmp_path):
    """The kernel sends SIGHUP, and each write to the terminal fails from then on."""
    run_dir = tmp_path / "x"
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "jaxrl", "train", *SMALL, "--log.interval", "200"]
    process = subprocess.Popen(
        [*map(str, command), "--run-dir", str(run_dir)], cwd=ROOT, env=environment(TERM="xterm"),
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(terminal)
    threading.Thread(target=read_all, args=(master,), daemon=True).start()
    deadline = time.monotonic() + 120
    while not ((run_dir / layout.METRICS).exists() and metrics.read(run_dir)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.close(master)
    assert process.wait(timeout=120) == 128 + signal.SIGHUP
    (saved,) = checkpoint_files.steps(run_dir)
    assert saved >= metrics.read(run_dir)[-1]["step"]


def read_all(terminal):
    """A terminal that nobody reads would block the process when its buffer is full."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


def test_what_another_process_was_sent_is_no_second_signal(monkeypatch):
    """A scheduler signals all processes, one after another, and they agree in between."""
    ended = []
    monkeypatch.setattr(signals, "exit_now", ended.append)
    monkeypatch.setattr(processes, "agree", lambda mine: np.array([[signal.SIGTERM], [mine]]))
    stop = signals.StopSignal()
    stop.savable = True
    assert stop.agreed()
    stop._note(signal.SIGTERM)
    assert ended == []
    stop._note(signal.SIGUSR1)
    assert ended == [128 + signal.SIGUSR1]


def test_the_same_signal_twice_at_once_is_one(monkeypatch):
    """`timeout` sends it to its child and to the child's group."""
    ended, now = [], [100.0]
    monkeypatch.setattr(signals, "exit_now", ended.append)
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    stop = signals.StopSignal()
    stop.savable = True
    stop._note(signal.SIGTERM)
    now[0] += 0.5
    stop._note(signal.SIGTERM)
    assert ended == []
    now[0] += 0.6
    stop._note(signal.SIGTERM)
    assert ended == [128 + signal.SIGTERM]


def watched(stop, savable, *numbers):
    """Sends signals to a process that watches for them."""
    with stop.watching():
        stop.savable = savable
        for number in numbers:
            signal.raise_signal(number)


@pytest.fixture
def handled(monkeypatch):
    """The signals that reach a caller's own handler of SIGTERM; SIGINT has Python's."""
    monkeypatch.setattr(signals, "ONE_PRESS", 0.0)  # these send the second at once
    numbers = []
    terminate = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield numbers
    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, interrupt)


def test_a_caller_s_process_goes_on_after_what_ends_jaxrl_s_own(handled, capfd):
    """The first signal in time is noted; others go to the handlers that were there before."""
    stop = signals.StopSignal(ends_process=False)
    with pytest.raises(KeyboardInterrupt):
        watched(stop, False, signal.SIGINT)
    assert stop.signal is None
    assert "stopped before training began" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        watched(stop, True, signal.SIGINT, signal.SIGTERM, signal.SIGINT)
    assert (stop.signal, handled) == (signal.SIGINT, [signal.SIGTERM])
    assert capfd.readouterr().err.count("saving, then stopping") == 1
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.slow
@pytest.mark.usefixtures("handled")
def test_an_interrupted_cell_of_a_notebook_leaves_its_variables(tmp_path, monkeypatch):
    """While it compiles, and by a second interrupt while it trains."""

    def interrupts(*_):
        signal.raise_signal(signal.SIGINT)

    config = catch_config(
        total_steps=400, num_envs=4, log={"interval": 40}, run_dir=str(tmp_path / "x")
    )
    with monkeypatch.context() as patched:
        patched.setattr(train.memory_budget, "check_compiled", interrupts)
        with pytest.raises(KeyboardInterrupt):
            jaxrl.train(config)
    rows = []

    def interrupts_twice(row):
        rows.append(row)
        interrupts()
        interrupts()

    with pytest.raises(KeyboardInterrupt):  # in the place of the one before
        jaxrl.train(config, on_metrics=interrupts_twice)
    assert [row["step"] for row in rows] == [40]
    run = jaxrl.resume(tmp_path / "x", on_metrics=interrupts)
    assert run.signal == signal.SIGINT
    assert 0 < run.step < 400


def test_outside_the_main_thread_training_goes_without_handlers():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with signals.StopSignal().watching() as stop:
            seen.append((stop.signal, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


def test_a_process_that_ignores_hangups_goes_on_ignoring_them(monkeypatch):
    """`nohup jaxrl train ... &`, then the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.StopSignal().watching() as stop:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_training_goes_on_when_nobody_reads_what_it_says(tmp_path):
    run_dir = tmp_path / "x"
    process = begin("train", *SMALL, "--log.interval", "200", "--total-steps", "600",
                    "--run-dir", run_dir)  # fmt: skip
    process.stderr.readline()
    process.stderr.close()
    assert process.wait(timeout=240) == 0
    assert checkpoint_files.steps(run_dir) == [600]
