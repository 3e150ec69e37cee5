"""kill -9 at any moment: what was trained goes on from the newest complete checkpoint."""

import random
import time

import jax
import numpy as np
import pytest

from jaxrl.runs import checkpoint_files, checkpoint_tables, metrics
from tests import survival
from tests.rotation import THOROUGH
from tests.runs.test_directory import state_of
from tests.survival import SMALL, begin, check_metrics, finish, without_times

# Every line of the log is followed by a checkpoint: most of the time one is being written.
RUN = [*SMALL, "--log.interval", "200", "--checkpoint.interval", "200"]


def numbers(tree):
    return [
        np.asarray(jax.random.key_data(x) if checkpoint_tables.is_key(x) else x)
        for x in jax.tree.leaves(tree)
    ]


def is_writing(run_dir):
    """Whether a checkpoint has begun and does not have its name yet."""
    folder = run_dir / "checkpoints"
    return folder.is_dir() and any("tmp" in path.name for path in folder.iterdir())


def kill_until_done(run_dir, game, total_steps, kills, rng):
    """Starts and kills a run repeatedly, at random moments, and then lets it end.

    Every third is killed as soon as a checkpoint begins. A fast machine may train to the end before
    the last kill: a run that is through is not killed again.

    Returns how many kills there were, and how many hit a checkpoint that was being written.
    """
    train = ("train", *RUN, "--game", game, "--total-steps", total_steps, "--run-dir", run_dir)
    inside, process, count = 0, begin(*train), 0
    while count < kills:
        before = checkpoint_files.steps(run_dir)[-1:]
        deadline = time.monotonic() + 120
        # Most of them after another checkpoint, so that it gets on; the others while it starts.
        later = count == 0 or rng.random() < 0.85
        while later and checkpoint_files.steps(run_dir)[-1:] == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        while count % 3 == 2 and not is_writing(run_dir) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        if count % 3 < 2:
            time.sleep(rng.uniform(0, 0.3 if later else 4.0))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        count += 1
        inside += is_writing(run_dir)
        steps = checkpoint_files.steps(run_dir)
        for step in steps:
            assert checkpoint_files.damage(run_dir, step) == ""  # what has its name is whole
        began = (run_dir / "config.toml").exists()
        process = begin("resume", run_dir) if began else begin(*train)
        if steps[-1:] == [int(total_steps)]:
            status, errors = finish(process)
            assert (status, "training had ended already" in errors) == (2, True), errors
            return count, inside
    status, errors = finish(process, timeout=900)
    assert status == 0, errors
    return count, inside


MANY, EACH = (60, 12) if THOROUGH else (3, 1)
# Paddles; a menu; frames without an end; slices and banks of a cartridge.
ATARI = ("pong", "space_invaders", "qbert", "montezuma_revenge", "ms_pacman")


ROTATING = pytest.mark.rotating(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "kills"),
    [
        pytest.param("catch", MANY, marks=pytest.mark.rotating(1)),
        *(pytest.param(game, EACH, marks=ROTATING) for game in ATARI),
    ],
)
def test_a_run_that_is_killed_ends_as_one_that_is_not(tmp_path, game, kills):
    """Parameters, statistics, metrics and the games themselves, bit for bit."""
    total = str(1600 * kills)  # on most machines more than is trained between two kills
    status, errors = finish(
        begin("train", *RUN, "--game", game, "--total-steps", total, "--run-dir", tmp_path / "a"),
        timeout=900,
    )
    assert status == 0, errors
    rng = random.Random(f"{game} {kills}")
    count, inside = kill_until_done(tmp_path / "b", game, total, kills, rng)
    assert count > kills // 3  # once at least
    assert inside or kills < MANY  # some must have hit a checkpoint that was being written
    whole, killed = (state_of(tmp_path / name) for name in "ab")
    assert (whole[1].step, whole[1].updates) == (killed[1].step, killed[1].updates)
    for a, b in zip(numbers(whole[0]), numbers(killed[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")
    for name in "ab":
        check_metrics(tmp_path / name)
    leftover = [path.name for path in (tmp_path / "b" / "checkpoints").iterdir()]
    assert not [name for name in leftover if "tmp" in name]
    assert metrics.read(tmp_path / "b")[0].keys() >= survival.TIMING - {"evaluation/seconds"}
