"""Bytes read out of compiled programs, and the model of throughput."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.cli import main
from jaxrl.config.plan import resolve
from jaxrl.experiments import bench, scaling
from jaxrl.networks.running_statistics import init_statistics
from jaxrl.runtime.mesh import REPLICATED, SHARDED, make_mesh, map_over_devices
from tests.conftest import catch_config, large_catch_config


def compiled(program, *arguments):
    mesh = make_mesh(2)
    specs = (SHARDED, *[REPLICATED] * (len(arguments) - 1))
    mapped = map_over_devices(program, mesh, specs, SHARDED)
    return jax.jit(mapped).lower(*arguments).compile().as_text()


def test_all_reduces_are_counted_with_the_rounds_of_their_loops():
    """Outer loop: 1 round counts. 40 B once, and 3 known rounds of 40 B, and 7 unknown of 40 B."""

    def mean(x, _):
        return jax.lax.pmean(x, "device") * 1.5, None

    def update(_, carry):
        x, n = carry
        x = mean(x, None)[0]
        x = jax.lax.scan(mean, jnp.sin(x), length=3)[0]
        x = jax.lax.fori_loop(0, n, lambda i, x: mean(jnp.cos(x) + i, None)[0], x)
        return x, n

    def program(x, n):
        return jax.lax.fori_loop(0, n, update, (x, n))[0]

    text = compiled(program, np.zeros((2, 10), np.float32), np.int32(4))
    assert scaling.traffic(text, gradient_steps=7) == (11 * 40, 11, 0, 0)
    assert scaling.traffic(text) == (5 * 40, 5, 0, 0)


def test_all_gathers_count_what_each_device_hands_over():
    """10 floats and 3 bools of each of two devices, and 5 times the floats in a loop."""

    def gather(x, _):
        return jax.lax.all_gather(x, "device", tiled=True)[:1] * 1.5, None

    def program(x, valid):
        total = jax.lax.all_gather(x, "device").sum() + jax.lax.all_gather(valid, "device").sum()
        return jax.lax.scan(gather, jax.lax.pmean(total, "device") + x, length=5)[0]

    text = compiled(program, np.zeros((2, 10), np.float32), np.zeros(3, bool))
    assert scaling.traffic(text) == (4, 1, 6 * 40 + 3, 7)


def test_an_all_gather_that_is_awaited_later_counts_once():
    """Its start names the 20 bytes handed over beside the 80 of all four devices."""
    text = """HloModule jit_f, is_scheduled=true, num_partitions=4

ENTRY %main (x: f32[5]) -> f32[20] {
  %x = f32[5]{0} parameter(0)
  %start = (f32[5]{0}, f32[20]{0}) all-gather-start(%x), replica_groups={{0,1,2,3}}
  ROOT %done = f32[20]{0} all-gather-done(%start)
}
"""
    assert scaling.traffic(text) == (0, 0, 20, 1)


def num_bytes(tree):
    return sum(4 * x.size for x in jax.tree.leaves(tree))


@pytest.mark.slow
@pytest.mark.rotating(3, group="scaling")
@pytest.mark.parametrize(
    ("recipe", "agent"),
    [("a2c_fast", {}), ("c51_fast", {"learning_starts": 0})],
)
def test_an_update_moves_its_gradients_and_little_more(recipe, agent):
    config = large_catch_config(recipe, agent, num_envs=8, parallel={"num_devices": 2})
    load = bench.make_load(bench.prepare(config), "training")
    load.close()
    atoms = (3 * 51, None) if recipe == "c51_fast" else (3, 1)
    heads = sum(257 * n for n in atoms if n)
    torso = 8 * 8 * 4 * 16 + 16 + 4 * 4 * 16 * 32 + 32 + 9 * 9 * 32 * 256 + 256  # the NIPS network
    gradients = resolve(config).gradient_steps * 4 * (torso + heads)
    statistics = num_bytes(init_statistics(config.network))
    assert gradients + statistics <= load.traffic.bytes <= 1.01 * (gradients + statistics)
    assert load.traffic.all_reduces <= 12 * resolve(config).gradient_steps


@pytest.mark.slow
@pytest.mark.rotating(3, group="scaling")
def test_learners_move_less_the_rarer_they_merge():
    config = catch_config(num_envs=8, parallel={"num_devices": 2})
    loads = [
        bench.make_load(bench.prepare(config.replaced(parallel={"sync_every": k})), "training")
        for k in (1, 4)
    ]
    assert 3.9 < loads[0].traffic.bytes / loads[1].traffic.bytes < 4.1


def test_the_model_worked_by_hand():
    """4 devices, 1 GB/s, 1 us: 2·3/4 · 2 MB / 1 GB/s = 3 ms, and 5 · 2·3 · 1 us = 30 us."""
    moved = scaling.Traffic(2_000_000, 5)
    rate = scaling.throughput(4, 80, 0.01, moved, bandwidth=1e9, latency=1e-6)
    assert rate == pytest.approx(4 * 80 / 0.01303)
    assert scaling.throughput(1, 80, 0.01, moved, 1e9, 1e-6) == pytest.approx(8000)
    # Each also gathers 1 MB of the 3 others, 3 · 1 MB / 1 GB/s = 3 ms, in 2 · 3 · 1 us = 6 us.
    moved = moved._replace(gathered_bytes=1_000_000, all_gathers=2)
    rate = scaling.throughput(4, 80, 0.01, moved, bandwidth=1e9, latency=1e-6)
    assert rate == pytest.approx(4 * 80 / 0.016036)


@pytest.mark.slow
@pytest.mark.rotating(3, group="scaling")
def test_bench_says_what_travels(capsys):
    path = "configs/a2c/a2c_fast.toml"
    arguments = [
        "--config",
        path,
        "--game",
        "catch",
        "--parallel.num-devices",
        "2",
        "--num-envs",
        "4",
    ]
    assert main.run("bench", [*arguments, "--repeats", "1", "--seconds", "0.1"]) == 0
    assert "between devices: 2." in capsys.readouterr().out
