import dataclasses
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.ppo import agent as ppo
from jaxrl.config.toml import load
from jaxrl.envs import make_engines
from jaxrl.errors import UserError
from jaxrl.ops import batches
from jaxrl.program import program as program_module
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import compiler_options, make_mesh
from jaxrl.training import planning
from jaxrl.training import train as train_module
from jaxrl.training.train import _open
from tests.conftest import catch_config, planned, recipe_file

# Short rollouts; C51 learns from its third update on, and copies its target twice.
SETTINGS = {
    "a2c_fast": {},
    "ppo_pong": {"rollout_length": 8},
    "vtrace_cpu": {"num_minibatches": 2, "window": 8},
    "c51_fast": {"learning_starts": 96, "target_update_interval": 256},
    "qr_dqn_fast": {
        "rollout_length": 4,
        "batch_size": 32,
        "learning_starts": 96,
        "target_update_interval": 256,
        "priority_exponent": 0.0,
    },
    "btr_fast": {
        "rollout_length": 4,
        "batch_size": 32,
        "learning_starts": 96,
        "target_update_interval": 256,
        "priority_exponent": 0.0,
    },
    "btr": {
        "rollout_length": 4,
        "batch_size": 32,
        "training_intensity": 2.0,
        "learning_starts": 96,
        "target_update_interval": 256,
        "priority_exponent": 0.0,
    },
    # Draws by priority are each device's own, and epsilons are of environments by their place.
    "rainbow": {
        "learning_starts": 96,
        "target_update_interval": 256,
        "batch_size": 32,
        "priority_exponent": 0.0,
    },
    "r2d2_fast": {
        "rollout_length": 3,
        "sequence_length": 6,
        "burn_in": 3,
        "sequence_stride": 3,
        "batch_size": 4,
        "training_intensity": 1.0,
        "replay_capacity": 192,
        "learning_starts": 0,
        "target_update_interval": 48,
        "priority_exponent": 0.0,
    },
    "sarsa": {"target_update_interval": 160, "epsilon_spread": False},
    "pqn": {"rollout_length": 8},
    "pqn_gamma": {"rollout_length": 8, "num_minibatches": 4, "value_loss": "two_hot"},
    "pqn_hadamax": {"rollout_length": 8, "value_loss": "hl_gauss"},
    "ppo_lstm": {"rollout_length": 8, "num_minibatches": 2},
    "vtrace_lstm_cpu": {"num_minibatches": 2, "window": 8, "burn_in": 3},
}
NOISY = ("rainbow", "btr_fast", "btr")
# Without LayerNorm, which makes rounding a thousand times as large where pixels have no light, and
# outputs therefore no variance.
NETWORKS: dict[str, dict[str, Any]] = {
    "vtrace_cpu": {"hidden_norm": True},
    "btr": {
        "torso": "impala",
        "width": 2,
        "spectral_norm": True,
        "max_pool": 3,
        "units": 32,
        "dueling": True,
    },
    "pqn_gamma": {"torso": "gamma", "layer_norm": False, "units": 64},
    "pqn_hadamax": {
        "torso": "gamma_hadamax",
        "layer_norm": False,
        "dueling": True,
        "units": 64,
        "simplicial_groups": 8,
    },
}


def train(recipe, num_devices, order, turns, groups=1):
    # Adam's first steps have the size of the learning rate whatever the gradient, so rounding
    # would grow; plain RMSProp that starts at 1 keeps it small.
    config = catch_config(
        recipe,
        num_envs=8,
        parallel={"num_devices": num_devices, "groups": groups, "order": order},
        agent=SETTINGS[recipe],
    )
    optimizer = dataclasses.replace(
        config.optimizer, name="rmsprop", learning_rate=1.3e-3, initial_scale=1.0, decay=0.99
    )
    # In float32: bfloat16 makes steps of its own precision of what sums in another order change.
    network: dict[str, Any] = {"torso": "nips", "dtype": "float32", "noisy": recipe in NOISY}
    network |= NETWORKS.get(recipe, {})
    return run(dataclasses.replace(config, optimizer=optimizer).replaced(network=network), turns)


def run(config, turns):
    num_devices = config.parallel.num_devices
    mesh = make_mesh(num_devices)
    plan = planned(config, mesh.size)
    engines = make_engines(plan, num_devices)
    agent = make_agent(plan, engines[0].spec._replace(num_envs=plan.envs_per_device))
    program = make_program(plan, agent, engines, mesh)
    end = jax.device_get(program.run(program.init(), np.int32(turns)))
    for engine in engines:
        engine.check()
        engine.close()
    return end


def pixel_statistics(end):
    """Running statistics of observations; () of an agent that does not normalize them."""
    statistics = end.agent.actor.statistics
    return statistics.observation if isinstance(statistics, ppo.Statistics) else statistics


def states_of(end):
    """What an agent remembers in each environment, group by group; nothing without a core."""
    observations = [games.observation for games in end.games]
    if not hasattr(observations[0], "core"):
        return [np.zeros((len(x), 1)) for x in observations]
    return [
        np.concatenate([x.core, x.last_action[:, None], x.fresh[:, None]], axis=1)
        for x in observations
    ]


@pytest.mark.parametrize(
    ("recipe", "order", "turns", "groups"),
    [
        pytest.param("a2c_fast", "strict", 20, 1, marks=pytest.mark.optimized),
        ("sarsa", "strict", 12, 1),
        ("ppo_pong", "strict", 6, 1),
        ("vtrace_cpu", "overlapped", 30, 2),
        ("c51_fast", "overlapped", 20, 1),
        ("qr_dqn_fast", "strict", 20, 1),
        ("btr_fast", "strict", 12, 2),
        ("btr", "strict", 12, 1),
        ("rainbow", "strict", 12, 2),
        ("pqn", "strict", 6, 1),
        ("pqn_gamma", "strict", 3, 1),
        ("pqn_hadamax", "strict", 3, 1),
        ("ppo_lstm", "strict", 6, 1),
        ("vtrace_lstm_cpu", "overlapped", 30, 2),
        ("r2d2_fast", "strict", 10, 1),
    ],
)
@pytest.mark.slow
@pytest.mark.rotating(5)
def test_devices_on_a_part_of_the_batch_each_equal_one_on_the_whole(recipe, order, turns, groups):
    """Two devices and four; also where the environments of each of the two are in groups."""
    one = train(recipe, 1, order, turns)
    for num_devices in (2, 4):
        more = train(recipe, num_devices, order, turns, groups if num_devices == 2 else 1)
        stacks = [batches.stacks(g.observation) for g in more.games]
        by_device = [x.reshape(num_devices, -1, *x.shape[1:]) for x in stacks]
        observation = np.concatenate(by_device, axis=1).reshape(8, *stacks[0].shape[1:])
        np.testing.assert_array_equal(batches.stacks(one.games[0].observation), observation)
        if hasattr(one.agent.memory, "ring"):
            for name in ("frame", "fresh", "action", "reward", "terminated", "valid"):
                played = [getattr(state.agent.memory.ring, name) for state in (one, more)]
                np.testing.assert_array_equal(*played)
        by_env = [
            np.concatenate([x.reshape(n, -1, *x.shape[1:]) for x in rows], axis=1)
            for n, rows in ((1, states_of(one)), (num_devices, states_of(more)))
        ]
        np.testing.assert_allclose(*(x.reshape(8, -1) for x in by_env), rtol=1e-3, atol=1e-4)
        # Sums of the same bytes, which are integers.
        jax.tree.map(np.testing.assert_array_equal, *map(pixel_statistics, (one, more)))
        before = jax.tree.leaves(one.agent.actor)
        after = jax.tree.leaves(more.agent.actor)
        # float32: sums are taken in another order; relative 1e-4 after 20 updates.
        for a, b in zip(before, after, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
        jax.tree.map(close, one.metrics, more.metrics)


@pytest.mark.slow
def test_the_first_gradient_of_normalized_observations_does_not_depend_on_devices():
    """Of Pong; with statistics by sums of floats the norm of this seed's differs by 9e-6."""
    config = load(recipe_file("vtrace_cpu")).replaced(game="pong", seed=33)
    first = config.agent.window + 3  # steps, after which the first whole window is there
    ends = [run(config.replaced(parallel={"num_devices": n}), first) for n in (1, 2)]
    norms = [end.metrics["loss/gradient_norm"] for end in ends]
    assert [norm.number for norm in norms] == [1, 1]
    assert norms[0].total > 0
    np.testing.assert_allclose(norms[1].total, norms[0].total, rtol=1e-6)


def test_more_devices_than_there_are_is_a_users_mistake():
    with pytest.raises(UserError, match="4 cpu devices"):
        make_mesh(5)


def test_devices_are_simulated_before_one_is_touched(monkeypatch):
    """Afterwards JAX refuses to simulate any, with a traceback."""
    events = []
    monkeypatch.setattr(train_module, "simulate_cpu_devices", lambda _: events.append("simulated"))
    monkeypatch.setattr(planning, "check_engine", lambda *_: events.append("touched"))
    config = catch_config(game="pong", parallel={"num_devices": 2}, num_envs=4)
    _open(config)
    assert events == ["simulated", "touched"]


@pytest.mark.parametrize(
    ("platform", "processes", "expected"),
    [("gpu", 2, False), ("gpu", 1, None), ("cpu", 2, None), ("tpu", 2, None)],
)
def test_processes_with_gpus_do_not_wait_for_the_tuning_of_others(platform, processes, expected):
    """Their programs differ by the addresses of their emulators."""
    devices = [SimpleNamespace(platform=platform, process_index=p) for p in range(processes)]
    options = compiler_options(SimpleNamespace(devices=np.array(devices)))
    assert (options or {}).get("xla_gpu_shard_autotuning") is expected
    # XLA has the option: an unknown one is an error, on every platform.
    assert jax.jit(lambda x: x + 1, compiler_options=options)(jnp.float32(1)) == 2


@pytest.mark.parametrize("order", ["strict", "overlapped"])
@pytest.mark.slow
def test_the_options_reach_every_program_that_calls_emulators(monkeypatch, order):
    monkeypatch.setattr(program_module, "compiler_options", lambda _: {"xla_no_such_option": False})
    config = catch_config("a2c_fast", parallel={"order": order}, num_envs=4)
    plan = planned(config)
    engines = make_engines(plan)
    agent = make_agent(plan, engines[0].spec)
    program = make_program(plan, agent, engines, make_mesh(1))
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        # In the overlapped order the first step is sent by a program before.
        program.run(program.init(), np.int32(1))
