"""Random programs as cartridges: the emulator neither leaves its memory nor plays two ways.

It does not leave it either where it goes on from a snapshot with random bytes.
"""

import subprocess
from pathlib import Path

import pytest

from tests.envs.atari2600.native import SANITIZED, compiled
from tests.rotation import THOROUGH, part

MANY = 10_000 if THOROUGH else 300
PART = 0 if THOROUGH else part() % 30  # others of them with each commit


def play(program: Path, first: int, count: int, frames: int, how: str) -> list[str]:
    """What it says of each program."""
    done = subprocess.run(
        [program, str(first), str(count), str(frames), how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[:2000]
    *said, end = done.stdout.splitlines()
    assert end == f"{count} programs"
    return said


@pytest.mark.slow
@pytest.mark.rotating(5, group="fuzz")
def test_random_programs_stay_in_their_memory(tmp_path):
    program = compiled("fuzz.cc", tmp_path, "-O0", *SANITIZED)
    play(program, 40 * PART, 40, 5, "both")
    play(program, 2 * PART, 2, 1, "states")


@pytest.mark.slow
@pytest.mark.rotating(5, group="fuzz")
def test_many_random_programs_stay_in_their_memory(tmp_path):
    program = compiled("fuzz.cc", tmp_path, "-O1", *SANITIZED)
    play(program, PART * MANY, MANY, 5, "fast")
    play(program, PART * (MANY // 10), MANY // 10, 5, "both")
    play(program, PART * (MANY // 100), MANY // 100, 5, "states")


@pytest.mark.slow
@pytest.mark.rotating(5, group="fuzz")
def test_both_interpreters_play_random_programs_alike(tmp_path):
    play(compiled("fuzz.cc", tmp_path, "-O2"), PART * MANY, MANY, 20, "both")


@pytest.mark.slow
@pytest.mark.rotating(5, group="fuzz")
def test_the_interpreter_of_gpus_plays_random_programs_alike(tmp_path):
    count = MANY // 4
    for_cpus = play(compiled("fuzz.cc", tmp_path, "-O1"), PART * count, count, 8, "digests")
    for_gpus = play(
        compiled("fuzz.cc", tmp_path, "-O1", "-DJAXRL_GPU=1"), PART * count, count, 8, "digests"
    )
    assert len(for_cpus) == count
    assert for_gpus == for_cpus
