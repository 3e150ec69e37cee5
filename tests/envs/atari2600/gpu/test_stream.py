"""The engine of threads on the stream of a GPU, on stand-ins for the driver.

What runs are the calls that a GPU's programs make and the functions that the driver calls; what
does not is a driver, whose copies need no thread of the host.
"""

import os
import re
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.config.schema import Config
from jaxrl.envs import check_engine, make_engine
from jaxrl.envs.atari2600 import build
from jaxrl.envs.atari2600 import engine as emulator
from jaxrl.envs.atari2600.roms import rom
from jaxrl.errors import EngineError, UserError
from jaxrl.experiments.doctor import emulators
from jaxrl.runtime import native_library
from tests.conftest import chosen
from tests.envs.atari2600.gpu import standin
from tests.envs.atari2600.gpu.test_gpu_engine import BASE, actions_for, play
from tests.survival import without_times
from tests.training.test_atari_resume import cut, train

STREAM = BASE.replaced(env={"interface": "stream", "max_episode_steps": 12})
SANITIZERS = {
    "threads": ["-fsanitize=thread"],
    "memory": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all",
               "-DJAXRL_FOR_SANITIZERS"],
}  # fmt: skip


def rows_and_games(config: Config, num_envs: int = 3):
    engine = make_engine(config, num_envs)
    state, first = engine.init(1)
    _, rows = play(engine, state, actions_for(engine, 40))
    games = engine.save()
    engine.close()
    return first, rows, games


@pytest.mark.slow
@pytest.mark.rotating(1)
@pytest.mark.parametrize("exact", [False, True])
def test_a_stream_plays_the_rows_of_a_cpu(exact):
    """Evaluations, too, which start games exactly; nothing is left pinned."""
    config = STREAM.replaced(env={"exact_resets": exact})
    expected = rows_and_games(config.replaced(env={"interface": "xla"}))
    on_a_cpu = rows_and_games(config)
    with standin.streams() as driver:
        before = driver.copied()
        got = rows_and_games(config)
        row = 84 * 84 + 2 * 4 + 4
        assert driver.copied() - before == 40 * 3 * (4 + row)
        assert driver.pinned() == 0
    assert got[1].reset.any()
    for other in (on_a_cpu, got):
        jax.tree.map(np.testing.assert_array_equal, other, expected)


def test_what_python_asks_of_an_engine_waits_for_the_stream():
    """A step may be under way there; and a device that fails has no games to save."""
    with standin.streams() as driver:
        engine = make_engine(STREAM, 2)
        engine.init(1)
        games = engine.save()
        for call in (engine.save, engine.render, lambda: engine.load(games)):
            before = driver.waits()
            call()
            assert driver.waits() == before + 1
        driver.set_works(False)
        try:
            with pytest.raises(EngineError, match="the GPU failed while the games were under way"):
                engine.save()
        finally:
            driver.set_works(True)
        before = driver.waits()
        engine.close()
        assert driver.waits() > before


@pytest.mark.slow
@pytest.mark.rotating(5)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_streams_that_fall_behind(sanitizer, tmp_path):
    """Nothing waits for one or runs ahead of it; an engine ends behind its steps (stream.cc)."""
    cartridge, program = tmp_path / "cartridge", tmp_path / "stream"
    cartridge.write_bytes(rom("ms_pacman"))
    command = [
        *native_library.compiler(),
        "-std=c++20",
        "-O1",
        "-ffp-contract=off",
        "-pthread",
        "-rdynamic",
    ]
    folders = ["-iquote", build.NATIVE, "-isystem", native_library.include_dir()]
    source = standin.FOLDER / "stream.cc"
    subprocess.run([*command, *SANITIZERS[sanitizer], *folders, source, "-o", program], check=True)
    done = subprocess.run(
        [program, cartridge, "ms_pacman", "30"],
        env=os.environ | {"JAXRL_LIBCUDA": ""},  # the program's own functions
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "30 steps\n"), done.stderr[:2000]


@pytest.mark.slow
def test_a_run_is_the_same_on_a_stream_and_goes_on_there(tmp_path, capsys):
    """Bit for bit; a step is under way when it is saved."""
    more = ("--parallel.order", "overlapped", "--parallel.groups", "2")
    train(tmp_path / "whole", "a2c_fast", "breakout", 2, *more)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    with standin.streams() as driver:
        before = driver.copied()
        train(tmp_path / "stream", "a2c_fast", "breakout", 2, *more, "--env.interface", "stream")
        whole = driver.copied()
        capsys.readouterr()
        change = ("--override", "env.interface=stream")
        assert main(["resume", str(resumed), *change]) == 0
        assert whole > before
        assert driver.copied() > whole
        assert driver.pinned() == 0
    assert "new games" not in capsys.readouterr().err
    for run in (tmp_path / "stream", resumed):
        assert without_times(run) == without_times(tmp_path / "whole")


def test_a_closed_engine_and_wrong_actions_are_refused():
    with standin.streams() as driver:
        engine = make_engine(STREAM, 2)
        state, _ = engine.init(1)
        step = jax.jit(lambda state: engine.recv(engine.send(state, jnp.zeros(2, jnp.int32))))
        step(state)
        assert driver.pinned() == 1
        engine.close()
        assert driver.pinned() == 0
        with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
            jax.block_until_ready(step(state))


def test_memory_that_cannot_be_pinned_is_an_error_with_a_remedy():
    """Before a program runs, in which other devices would wait for this one."""
    said = "env.interface = 'stream': cuMemHostRegister: CUDA_ERROR_INVALID_VALUE; take --env"
    with standin.streams() as driver:
        driver.set_pins(False)
        engine = make_engine(STREAM, 2)
        try:
            with pytest.raises(UserError, match=re.escape(said)):
                engine.init(1)
        finally:
            driver.set_pins(True)
            engine.close()


def test_doctor_compares_the_stream_with_callbacks(monkeypatch):
    monkeypatch.setattr(emulators, "GPU_GAMES", ("pong",))
    monkeypatch.setattr(emulators, "GPU_ENVS", 3)
    monkeypatch.setattr(emulators, "has_nvidia_gpu", lambda: True)
    with standin.streams() as driver:
        before = driver.copied()
        assert emulators.atari2600_stream() == {
            "mark": "ok",
            "text": "cpu: 40 steps of pong, 3 games each, on the stream, equal the callbacks'",
        }
        assert driver.copied() > before


def test_a_stream_is_for_our_emulator(monkeypatch):
    """On a CPU too, where a run is evaluated that trained on a GPU."""
    asked = Config(game="pong").replaced(env={"engine": "atari2600", "interface": "stream"})
    check_engine(asked.game, chosen(asked))
    assert chosen(asked.replaced(env={"engine": "auto"})).engine == "atari2600"
    for engine, game in (("envpool", "pong"), ("auto", "catch")):
        other = asked.replaced(game=game, env={"engine": engine})
        with pytest.raises(UserError, match="has none; take auto, or for Atari"):
            check_engine(game, chosen(other))
    monkeypatch.setattr(emulator, "has_custom_call", lambda: False)  # a TPU
    with pytest.raises(UserError, match="for CPUs and NVIDIA GPUs; take auto or callback"):
        check_engine(asked.game, chosen(asked))
