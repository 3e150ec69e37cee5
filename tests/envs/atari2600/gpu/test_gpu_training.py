"""Training on a GPU's engine is training on a CPU's, and goes on from a checkpoint of it."""

import jax
import numpy as np
import pytest

from jaxrl.cli.main import main
from jaxrl.envs import make_engine
from jaxrl.envs.atari2600 import engine as chosen
from jaxrl.errors import DamagedError
from jaxrl.experiments.doctor import emulators
from jaxrl.program import program as program_module
from jaxrl.runtime.mesh import SHARDED, make_mesh, map_over_devices, put
from tests.conftest import AS_USERS_COMPILE
from tests.envs.atari2600.gpu import standin
from tests.envs.atari2600.gpu.test_gpu_engine import BASE, actions_for, play
from tests.survival import without_times
from tests.training.test_atari_resume import cut, train
from tools import gpu_kernels


@pytest.fixture
def on_gpu(monkeypatch):
    """Chooses which engine is made from now on; both play on this machine."""
    driver = standin.install(monkeypatch)

    def choose(value: bool) -> None:
        monkeypatch.setattr(chosen, "plays_on_gpu", lambda env: value)

    choose.driver = driver
    return choose


def assert_equal(got, expected):
    jax.tree.map(np.testing.assert_array_equal, got, expected)


@pytest.mark.slow
def test_snapshots_move_between_the_engines(on_gpu):
    on_gpu(False)
    threads = make_engine(BASE, 3)
    on_gpu(True)
    gpu = make_engine(BASE, 3)
    state, _ = threads.init(5)
    actions = actions_for(gpu, 20)
    moved = gpu.unpack(threads.save())
    state, expected = play(threads, state, actions)
    moved, got = play(gpu, moved, actions)
    assert_equal(got, expected)
    threads.load(gpu.pack(moved))
    _, expected = play(gpu, moved, actions)
    _, got = play(threads, state, actions)
    assert_equal(got, expected)
    damaged = threads.save()
    damaged[1, 300] ^= 1
    with pytest.raises(DamagedError, match="damaged"):
        gpu.unpack(damaged)
    with pytest.raises(DamagedError, match=r"snapshots are u8\[3, "):
        gpu.unpack(damaged[:2])
    for engine in (threads, gpu):
        engine.close()


@pytest.mark.slow
def test_doctor_compares_them(on_gpu, monkeypatch):
    on_gpu(True)
    on_gpu.driver.most_again()
    monkeypatch.setattr(emulators, "GPU_GAMES", ("pong", "tic_tac_toe_3d"))
    monkeypatch.setattr(emulators, "GPU_ENVS", 3)
    for module in (chosen, emulators):
        monkeypatch.setattr(module, "plays_on_gpu", lambda env: env.interface == "xla")
    assert emulators.atari2600_gpu() == {
        "mark": "ok",
        "text": "cpu: 40 steps of pong, tic_tac_toe_3d, 3 games each, 1 in a warp and 32 "
        "in a warp, equal the threads'",
    }
    assert on_gpu.driver.most_again() > 0


@pytest.mark.slow
def test_the_kernels_can_be_timed_apart(on_gpu):
    on_gpu(True)
    rates = [gpu_kernels.rate("pong", 1, kernels, seconds=0.1) for kernels in (1, 3, 7)]
    assert all(rate > 0 for rate in rates)


def test_without_a_gpu_nothing_is_timed(capsys):
    assert gpu_kernels.main(["pong"]) == 2
    assert "no NVIDIA GPU here: nothing was measured" in capsys.readouterr().err


@pytest.mark.slow
def test_two_devices_have_their_own_games(on_gpu):
    on_gpu(True)
    whole, halves = make_engine(BASE, 4), make_engine(BASE, 2, 2)
    actions = actions_for(whole, 20)
    _, expected = play(whole, whole.init(1)[0], actions)
    mesh = make_mesh(2)
    state = put(mesh, halves.init(1)[0], SHARDED)

    def program(env, actions):
        return jax.lax.scan(lambda s, a: halves.recv(halves.send(s, a)), env, actions)

    by_time = jax.sharding.PartitionSpec(None, *SHARDED)
    mapped = map_over_devices(program, mesh, (SHARDED, by_time), (SHARDED, by_time))
    _, got = jax.device_get(jax.jit(mapped)(state, actions))
    assert_equal(got, expected)


@pytest.mark.slow
def test_a_run_goes_on_on_the_other_engine(on_gpu, tmp_path, capsys, monkeypatch):
    """Bit for bit; a step is under way when it is saved."""
    if not AS_USERS_COMPILE:  # the quicker code generator rounds otherwise in each engine's program
        users = {"xla_cpu_use_fusion_emitters": True}
        monkeypatch.setattr(program_module, "compiler_options", lambda mesh: users)
    on_gpu(False)
    more = ("--parallel.order", "overlapped", "--parallel.groups", "2")
    train(tmp_path / "whole", "a2c_fast", "breakout", 1, *more)
    resumed = cut(tmp_path / "whole", tmp_path / "cut")
    on_gpu(True)
    capsys.readouterr()
    assert main(["resume", str(resumed)]) == 0
    assert "new games" not in capsys.readouterr().err
    assert without_times(resumed) == without_times(tmp_path / "whole")
