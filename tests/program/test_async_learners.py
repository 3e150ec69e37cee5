"""Learners that merge from time to time, against the paper's rule and against one learner."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.envs import make_engine, make_engines
from jaxrl.envs.base import EnvGroup
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.errors import UserError
from jaxrl.networks.running_statistics import join_statistics, merge_statistics, new_statistics
from jaxrl.ops import optimizers
from jaxrl.program import async_learners, episode_statistics
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import REPLICATED, SHARDED, make_mesh, map_over_devices
from jaxrl.types import ActorState, Agent, AgentState
from tests.conftest import catch_config, planned


def build(config, engines):
    mesh = make_mesh(config.parallel.num_devices)
    spec = engines[0].spec._replace(num_envs=resolve(config, mesh.size).envs_per_learner)
    return make_program(resolve(config), make_agent(resolve(config), spec), engines, mesh)


def train(config, num_updates):
    num_devices = config.parallel.num_devices
    program = build(config, make_engines(planned(config, num_devices), num_devices))
    return jax.device_get(program.run(program.init(), np.int32(num_updates)))


def close(a, b, **tolerance):
    jax.tree.map(partial(np.testing.assert_allclose, **tolerance), a, b)


# --- the rule ------------------------------------------------------------------------------------


def merged(optimizer, before, after, num_devices, sync_every):
    """Returns the state of all devices after the merge with the learners' states [D, ...]."""
    count = len(jax.tree.leaves(after)[0])
    parallel = {"num_learners": count, "sync_every": sync_every}
    config = Config().replaced(optimizer=optimizer, parallel=parallel)
    learners = async_learners.make_learners(
        resolve(config, num_devices), Agent(None, None, None, None, 1)
    )
    mesh = make_mesh(num_devices)
    merge = map_over_devices(learners.merge, mesh, (REPLICATED, SHARDED), REPLICATED)
    return jax.jit(merge)(before, after)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_pushes_worked_by_hand(num_devices):
    """Two learners, two gradient steps each, decay 0.5: w = 0.5² = 0.25.

    mean of squares  8 + 0.25 (2 - 8) + (4 - 8) = 2.5, which is what two pushes give: what learner
    d adds is x_d - 0.25 · 8, so 0.25 · 8 + (2 - 2) = 2, then 0.25 · 2 + (4 - 2) = 2.5.
    parameters       1 + (3 - 1) + (0 - 1) = 2
    """
    optimizer = OptimizerConfig(decay=0.5)
    before = AgentState(
        ActorState({"w": jnp.float32(1)}, (), jnp.int32(6)),
        optax.ScaleByRmsState({"w": jnp.float32(8)}),
        (),
    )
    after = AgentState(
        ActorState({"w": jnp.array([3.0, 0.0])}, (), jnp.array([8, 8])),
        optax.ScaleByRmsState({"w": jnp.array([2.0, 4.0])}),
        (),
    )
    state = merged(optimizer, before, after, num_devices, sync_every=2)
    assert float(state.train_state.nu["w"]) == 2.5
    assert float(state.actor.params["w"]) == 2.0
    assert int(state.actor.updates) == 8


@pytest.mark.parametrize("num_devices", [1, 2])
def test_adam_merges_as_the_paper_pushes(num_devices):
    """Stooke & Abbeel, appendix B, in NumPy: each learner's sums, pushed one after another."""
    rng = np.random.default_rng(0)
    num_learners, steps, size, rate = 4, 3, 5, 0.01
    config = OptimizerConfig(name="adam", decay=0.9, decay_mean=0.6, eps=1e-3, max_grad_norm=0)
    gradients = rng.normal(size=(num_learners, steps, size)).astype(np.float32)
    theta, m, v, count = rng.normal(size=size), rng.normal(size=size), rng.uniform(size=size), 7
    states = optax.ScaleByAdamState(jnp.int32(count), jnp.float32(m), jnp.float32(v))
    before = AgentState(ActorState(jnp.float32(theta), (), jnp.int32(0)), states, ())

    @jax.vmap
    def learn(gradients):
        optimizer = optimizers.make_optimizer(config)
        params, opt_state = before.actor.params, before.train_state
        for gradient in gradients:
            params, opt_state = optimizers.apply(
                optimizer,
                gradients=gradient,
                opt_state=opt_state,
                params=params,
                learning_rate=rate,
            )
        return AgentState(ActorState(params, (), jnp.int32(steps)), opt_state, ())

    state = merged(config, before, learn(gradients), num_devices, sync_every=steps)
    central = [theta, m, v]
    for learner_gradients in gradients.astype(np.float64):
        local_m, local_v, step_sum, g_sum, g2_sum = m, v, 0.0, 0.0, 0.0
        for i, g in enumerate(learner_gradients):
            local_m, local_v = 0.6 * local_m + 0.4 * g, 0.9 * local_v + 0.1 * g**2
            t = count + i + 1
            corrected = (local_m / (1 - 0.6**t)) / (np.sqrt(local_v / (1 - 0.9**t)) + 1e-3)
            step_sum -= rate * corrected
            g_sum, g2_sum = 0.6 * g_sum + g, 0.9 * g2_sum + g**2
        central[0] = central[0] + step_sum
        central[1] = 0.6**steps * central[1] + 0.4 * g_sum
        central[2] = 0.9**steps * central[2] + 0.1 * g2_sum
    np.testing.assert_allclose(state.actor.params, central[0], rtol=2e-5)
    np.testing.assert_allclose(state.train_state.mu, central[1], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(state.train_state.nu, central[2], rtol=2e-5)
    assert int(state.train_state.count) == count + num_learners * steps


def test_the_steps_that_learners_count_stay_below_32_bits():
    """Adam's correction of a bias divides by 1 - βᵗ: it would be nonsense for a negative t."""
    most = 2**31 - 1
    zero = jnp.float32(0)
    before = AgentState(
        ActorState((), (), jnp.int32(0)),
        optax.ScaleByAdamState(jnp.int32(most - 5), zero, zero),
        (),
    )
    for added, expected in ((2, most - 1), (4, most)):
        counts = jnp.full(2, most - 5 + added, jnp.int32)
        opt_state = optax.ScaleByAdamState(counts, jnp.zeros(2), jnp.zeros(2))
        after = AgentState(ActorState((), (), jnp.zeros(2, jnp.int32)), opt_state, ())
        state = merged(OptimizerConfig(name="adam"), before, after, 1, sync_every=4)
        assert int(state.train_state.count) == expected


@pytest.mark.parametrize("num_devices", [1, 2])
@pytest.mark.parametrize(("seen", "mean"), [(0, 0), (50, 0), (0, 5_000), (50, 5_000)])
def test_statistics_join_to_those_of_all_samples(num_devices, seen, mean):
    rng = np.random.default_rng(seen)
    sizes = (seen, 40, 10, 30, 20)
    first, *rest = (rng.normal(mean + i, 1 + i, (n, 3)) for i, n in enumerate(sizes))

    def add(statistics, x):
        return merge_statistics(statistics, x.mean(0), x.var(0), len(x))

    before = new_statistics((3,))
    before = add(before, first) if seen else before
    learners = jax.tree.map(lambda *x: jnp.stack(x), *(add(before, x) for x in rest))
    mesh = make_mesh(num_devices)
    join = map_over_devices(join_statistics, mesh, (REPLICATED, SHARDED), REPLICATED)
    joined = jax.jit(join)(before, learners)
    everything = np.concatenate([first, *rest])
    assert float(joined.samples) == len(everything)
    np.testing.assert_allclose(joined.mean, everything.mean(0), rtol=1e-5)
    np.testing.assert_allclose(joined.variance, everything.var(0), rtol=2e-4 if mean else 1e-5)


def test_a_plan_of_other_devices_is_refused():
    """Shares of the environments, and merges of learners, would be wrong in silence."""
    config = catch_config(num_envs=6)
    engines = make_engines(planned(config, 2), 2)
    agent = make_agent(resolve(config), engines[0].spec)
    with pytest.raises(ValueError, match="plan is of 1 devices, the mesh has 2"):
        make_program(resolve(config), agent, engines, make_mesh(2))
    three = config.replaced(parallel={"num_learners": 3, "sync_every": 1})
    with pytest.raises(UserError, match="num_learners = 3 does not divide among 2 devices"):
        resolve(three, 2)


# --- in training ---------------------------------------------------------------------------------


# Rounding parts Adam's once a unit lies at its kink in one of them only: at update 9 with seed 1.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "updates"), [({"name": "adam", "eps": 1e-2}, 6), ({"initial_scale": 1.0}, 12)]
)
def test_one_learner_that_merges_after_each_update_is_a_synchronous_one(optimizer, updates):
    config = catch_config(num_envs=4, optimizer={**optimizer, "schedule": "constant"})
    synchronous = train(config, updates)
    merging = train(config.replaced(parallel={"sync_every": 1}), updates)
    close(synchronous.agent, merging.agent, rtol=1e-5, atol=1e-6)
    close(synchronous.metrics, merging.metrics, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(synchronous.games[0].observation, merging.games[0].observation)


def plain(config):
    """Steps in proportion to gradients keep the rounding small."""
    optimizer = OptimizerConfig(learning_rate=1.3e-3, initial_scale=1.0, schedule="constant")
    return dataclasses.replace(config, optimizer=optimizer)


@pytest.mark.slow
def test_learners_learn_the_same_wherever_they_are():
    """Four on one device, and two on each of two; V-trace with its windows, overlapped.

    And they go on with other games, as a resumed run does.
    """
    agent = {"num_minibatches": 2, "window": 4}
    config = plain(
        catch_config("vtrace_cpu", agent, num_envs=8, parallel={"num_learners": 4, "sync_every": 3})
    )
    one = train(config, 12)
    two = train(config.replaced(parallel={"num_devices": 2}), 12)
    np.testing.assert_array_equal(one.games[0].observation, two.games[0].observation)
    close(one.agent.actor, two.agent.actor, rtol=1e-4, atol=1e-6)
    close(one.metrics, two.metrics, rtol=1e-3, atol=1e-5)
    assert int(one.agent.actor.updates) == 12


@pytest.mark.slow
def test_between_merges_learners_go_their_own_ways():
    """Each does what it would do alone, and what they did adds up: θ₀ + Δθ₁ + Δθ₂."""
    config = plain(catch_config(num_envs=4, parallel={"num_learners": 2, "sync_every": 4}))
    both = build(config, make_engines(planned(config)))
    start = both.init()
    before = jax.device_get(start.agent.actor.params)
    after = jax.device_get(both.run(start, np.int32(4)))
    alone = config.replaced(num_envs=2, parallel={"num_learners": 1})
    moved = []
    for learner in range(2):
        games = make_engine(alone, 2, 1, EnvGroup(learner, 2))  # environments 0 and 1, or 2 and 3
        program = build(alone, (games,))
        end = jax.device_get(program.run(program.init(), np.int32(4)))
        played = after.games[0].observation[2 * learner : 2 * learner + 2]
        np.testing.assert_array_equal(end.games[0].observation, played)
        moved.append(jax.tree.map(np.subtract, end.agent.actor.params, before))
    expected = jax.tree.map(lambda x, a, b: x + a + b, before, *moved)
    close(after.agent.actor.params, expected, rtol=1e-4, atol=1e-6)
    largest = [max(np.abs(x).max() for x in jax.tree.leaves(step)) for step in moved]
    assert min(largest) > 1e-4


@pytest.mark.parametrize("recipe", ["a2c_fast", pytest.param("vtrace_cpu", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_learners_go_on_with_new_games(recipe):
    """As a resumed run on EnvPool does; with a memory and without."""
    agent = {"num_minibatches": 2, "window": 4} if recipe == "vtrace_cpu" else {}
    config = catch_config(recipe, agent, num_envs=8, parallel={"num_learners": 4, "sync_every": 3})
    program = build(config, make_engines(planned(config)))
    state = program.init()
    before = jax.device_get(state.agent.actor)
    restarted = jax.device_get(program.restart(state, 5, moved=True))
    jax.tree.map(np.testing.assert_array_equal, before, restarted.agent.actor)


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
def test_learners_solve_catch():
    config = catch_config(total_steps=28_000, parallel={"num_learners": 2, "sync_every": 2})
    program = build(config, make_engines(planned(config)))
    state = program.run(program.init(), np.int32(resolve(config).num_updates))
    assert episode_statistics.summarize(state.games[0].episodes).return_mean >= 0.9 * MAX_SCORE
