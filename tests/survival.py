"""What the tests of survival share: small runs in processes of their own, and what they left."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from jaxrl.runs import layout, metrics
from tests.conftest import CACHE, recipe_file

ROOT = Path(__file__).parents[1]
FAST = ["--config", str(recipe_file("a2c_fast")), "--game", "catch", "--parallel.num-devices", "1"]
SMALL = [*FAST, "--num-envs", "4", "--evaluation.episodes", "0"]
TIMING = {
    "seconds", "steps_per_second", "compile_seconds", "wall_seconds", "goodput",
    "checkpoint_seconds", "memory_gb", "evaluation/seconds",
}  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    """One in which programs that other tests have compiled are found."""
    return os.environ | {
        "PYTHONUNBUFFERED": "1",
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **more,
    }


def begin(*arguments: str, **options) -> subprocess.Popen:
    """A jaxrl command in a process of its own."""
    command = [sys.executable, "-m", "jaxrl", *arguments]
    settings = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "env": environment()}
    return subprocess.Popen(command, **(settings | options))


def finish(process: subprocess.Popen, timeout: float = 240) -> tuple[int, str]:
    """Its exit status, and what it said on standard error."""
    try:
        _, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, errors


def without_times(run_dir: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in TIMING} for row in metrics.read(run_dir)]


def tensorboard(run_dir: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values by tag) of every event, as TensorBoard reads the directory."""
    events = []
    for path in sorted(run_dir.glob("events.out.tfevents*")):
        data = path.read_bytes()
        while data:
            (length,) = np.frombuffer(data[:8], np.uint64)
            body = data[12 : 12 + int(length)]
            (crc,) = np.frombuffer(data[12 + int(length) : 16 + int(length)], np.uint32)
            assert masked_crc32c(body) == crc
            event = event_pb2.Event.FromString(body)
            if event.summary.value:
                events.append((event.step, {v.tag: v.simple_value for v in event.summary.value}))
            data = data[16 + int(length) :]
    return events


def check_metrics(run_dir: Path) -> list[dict]:
    """The lines: whole, none twice or missing, counters growing, TensorBoard saying the same."""
    text = (run_dir / layout.METRICS).read_text()
    assert text.endswith("\n")
    rows = metrics.read(run_dir)
    steps = [row["step"] for row in rows]
    assert len(rows) == text.count("\n")
    assert steps == sorted(set(steps))
    assert len({b - a for a, b in itertools.pairwise(steps[:-1])}) <= 1  # the last may be shorter
    for name in ("updates", "episodes", "seconds", "wall_seconds", "frames"):
        values = [row[name] for row in rows]
        assert values == sorted(values), name
    events = tensorboard(run_dir)
    assert [step for step, _ in events] == steps
    for row, (_, values) in zip(rows, events, strict=True):
        for name, value in row.items():
            if name != "step" and value is not None:
                tag = name if "/" in name else f"run/{name}"
                np.testing.assert_allclose(values[tag], value, rtol=1e-5)
    return rows
