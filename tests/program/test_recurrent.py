"""Agents that remember: what acting carried from step to step is what an update unrolls."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.ppo import agent as ppo
from jaxrl.agents.ppo.settings import PPOConfig
from jaxrl.config.plan import resolve
from jaxrl.config.validation import check
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.networks.actors import burn_in, forward
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.ops import batches, distributions
from jaxrl.program import observations, rollout
from jaxrl.program.program import make_program
from jaxrl.replay import minibatches
from jaxrl.runtime.mesh import make_mesh, map_over_devices
from jaxrl.types import Choice, Core, TimeStep
from tests.conftest import catch_config

NETWORK = {"torso": "nips", "core": "lstm", "core_units": 8}
SMALL_FRAMES = {"frame_height": 36, "frame_width": 36}


def config_of(recipe, agent=(), network=(), **changes):
    return catch_config(
        recipe,
        num_envs=4,
        env=SMALL_FRAMES,
        network=NETWORK | dict(network),
        agent=dict(agent),
        **changes,
    )


def playing(config):
    """The network, an actor and 14 steps of play [14, E] with rows of one step each."""
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.init()
    actor, games = state.agent.actor, state.games[0]
    step = jax.jit(lambda actor, games: rollout.step(agent, engine, actor, games))
    rows = []
    for _ in range(14):  # two games of Catch and their resets
        games, row = step(actor, games)
        rows.append(row)
    return PolicyValueNetwork(3, config.network), actor, games, rows


def as_sequences(rows):
    """Rows of one step each as sequences [E, T]."""
    return jax.tree.map(lambda *x: jnp.stack(x, axis=1), *rows)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_what_was_played_equals_an_unroll(core):
    network, actor, games, rows = playing(config_of("a2c_fast", network={"core": core}))
    played = as_sequences(rows)
    assert played.observation.fresh[:, 1:].any(axis=1).all()  # games begin in the middle
    outputs = forward(network, actor.params, actor.statistics, played.observation)
    np.testing.assert_allclose(outputs.value, played.extras.value, atol=1e-5)
    ends = jnp.where(games.observation.fresh[:, None], 0.0, outputs.core)
    np.testing.assert_allclose(games.observation.core, ends, atol=1e-5)
    # From any step on, the stored state leads to the same: it does not depend on what is unrolled.
    later = jax.tree.map(lambda x: x[:, 5:], played.observation)
    values = forward(network, actor.params, actor.statistics, later).value
    np.testing.assert_allclose(values, played.extras.value[:, 5:], atol=1e-5)
    # And a burn-in finds the stored states where the parameters have not changed.
    rest = burn_in(network, actor.params, actor.statistics, played.observation, 5)
    start = jnp.where(rest.fresh[:, 0, None], 0.0, rest.core[:, 0])
    np.testing.assert_allclose(start, later.core[:, 0], atol=1e-5)


@pytest.mark.slow
def test_actions_and_rewards_are_seen_one_step_later():
    _, _, _, rows = playing(config_of("a2c_fast"))
    for before, now in itertools.pairwise(rows):
        fresh = np.asarray(now.observation.fresh)
        np.testing.assert_array_equal(fresh, ~np.asarray(before.valid))  # a reset led here
        expected = np.where(fresh, -1, before.action), np.where(fresh, 0, before.reward)
        np.testing.assert_array_equal(now.observation.last_action, expected[0])
        np.testing.assert_array_equal(now.observation.last_reward, expected[1])
        assert (np.asarray(now.observation.core)[fresh] == 0).all()


@pytest.mark.parametrize(
    ("game_over", "forgets_lives", "fresh"),
    [(True, False, True), (True, True, True), (False, False, False), (False, True, True)],
)
def test_a_lost_life_is_forgotten_where_configured(game_over, forgets_lives, fresh):
    no = jnp.zeros(1, bool)
    zeros = jnp.zeros(1)
    frame = jnp.zeros((1, 36, 36), jnp.uint8)
    previous = TimeStep(frame, zeros, zeros, ~no, no, jnp.array([game_over]), no)
    reset = TimeStep(frame, jnp.ones(1), zeros, no, no, no, ~no)
    choice = Choice(jnp.array([2]), (), jnp.ones((1, 3)))
    stack = jnp.zeros((1, 36, 36, 4), jnp.uint8)
    after = observations.observe(stack, choice, previous, reset, Core(3, forgets_lives))
    assert after.fresh[0] == fresh
    assert (after.core == (0 if fresh else 1)).all()
    assert after.last_action[0] == -1  # a reset ignores the action
    assert after.last_reward[0] == (0 if fresh else 1)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_every_environment_is_in_one_minibatch_of_an_epoch():
    settings = PPOConfig(num_minibatches=4, epochs=3)

    def draw(num_devices):
        def order(key):
            envs = minibatches.order_of_sequences(key, settings, 16 // num_devices)
            return envs + jax.lax.axis_index("device") * (16 // num_devices)

        mesh = make_mesh(num_devices)
        spec = jax.sharding.PartitionSpec
        mapped = map_over_devices(order, mesh, (spec(),), spec(None, "device"))
        return np.asarray(mapped(jax.random.key(3)))

    one = draw(1)
    assert one.shape == (12, 4)
    for epoch in one.reshape(3, 16):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(16))
    assert (one[:4] != one[4:8]).any()
    for devices in (2, 4):
        np.testing.assert_array_equal(one, draw(devices))


def test_ppo_takes_whole_sequences():
    config = config_of("ppo_pong", agent={"rollout_length": 6, "num_minibatches": 2})
    random = np.random.default_rng(0)
    rows = {
        name: jnp.asarray(random.normal(size=(6, 4)))
        for name in ("action", "log_prob", "value", "target", "advantage")
    }
    batch = ppo.Batch(
        observation=jnp.zeros((6, 4, 1)), weight=jnp.ones((6, 4)).at[2, 3].set(0), **rows
    )
    take = jax.vmap(minibatches.take_sequences, (None, None), axis_name="device", axis_size=1)
    got = jax.tree.map(lambda x: x[0], take(batch, jnp.array([3, 1])))
    np.testing.assert_array_equal(got.target, batch.target.T[jnp.array([3, 1])])
    np.testing.assert_allclose(got.weight.sum(), 1, rtol=1e-6)
    assert got.weight[0, 2] == 0
    with pytest.raises(UserError, match=r"num_minibatches = 3 does not divide the 4 environments"):
        check(config.replaced(agent={"num_minibatches": 3}))


@pytest.mark.parametrize("burn", [0, 4])
@pytest.mark.slow
def test_without_learning_windows_have_the_policy_that_played(burn):
    """Stored states and replayed ones are the same, so the ratios of V-trace are 1."""
    config = config_of(
        "vtrace_cpu",
        agent={"window": 8, "num_minibatches": 2, "burn_in": burn},
        optimizer={"learning_rate": 0.0},
        network={"normalize_observations": False},
    )
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.run(program.init(), np.int32(30))
    sums = jax.device_get(state.metrics)
    assert sums["policy/ratio"].number == 30 - (burn + 8 + 3 - 1)  # updates with whole windows
    assert sums["policy/ratio"].total / sums["policy/ratio"].number == pytest.approx(1, abs=1e-4)
    assert sums["loss/gradient_norm"].total > 0
    # The memory holds what was seen, step by step.
    ring = state.agent.memory.ring
    assert ring.recall.core.shape == (4, ring.valid.shape[1], 16)
    assert (np.asarray(ring.recall.core)[np.asarray(ring.recall.fresh)] == 0).all()


def test_settings_that_do_not_fit_a_core_are_refused():
    with pytest.raises(UserError, match=r"network.core = 'lstm': c51 learns from single steps"):
        check(config_of("c51_fast"))
    with pytest.raises(UserError, match=r"agent.burn_in: refreshes the state of a recurrent core"):
        check(config_of("vtrace_cpu", agent={"burn_in": 3}, network={"core": "none"}))
    config = config_of("a2c_fast", agent={"micro_batch": 3})
    with pytest.raises(UserError, match="micro_batch = 3 does not divide the 4 sequences"):
        check(config)


@pytest.mark.slow
def test_learners_of_a_device_carry_their_own_states():
    """Two learners act in their environments as an agent alone does in all."""
    config = config_of("a2c_fast")
    plan = resolve(config)
    engine = make_engine(config, 4)
    agent = make_agent(plan, engine.spec)
    alone = make_program(plan, agent, (engine,), make_mesh(1))
    apart = config.replaced(parallel={"sync_every": 1, "num_learners": 2})
    two = resolve(apart)
    spec = engine.spec._replace(num_envs=two.envs_per_learner)
    learners = make_program(two, make_agent(two, spec), (make_engine(apart, 4),), make_mesh(1))
    # No update differs before the first: the states after one turn are those of one agent.
    ends = [program.run(program.init(), np.int32(1)) for program in (alone, learners)]
    for a, b in zip(*(jax.tree.leaves(end.games[0].observation) for end in ends), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_the_log_probability_of_a_played_action_is_that_of_the_unroll():
    network, actor, _, rows = playing(config_of("ppo_pong"))
    played = as_sequences(rows)
    outputs = forward(network, actor.params, actor.statistics.observation, played.observation)
    log_policy = distributions.log_probabilities(outputs.logits)
    np.testing.assert_allclose(
        distributions.select(log_policy, played.action), played.extras.log_prob, atol=1e-5
    )
    assert batches.stacks(played.observation).shape == (4, 14, 36, 36, 4)


def test_a_run_with_a_core_is_described_by_its_sizes():
    config = config_of("ppo_pong", agent={"rollout_length": 8, "num_minibatches": 2})
    assert resolve(config).batch_per_learner == 2  # sequences
    assert (
        resolve(dataclasses.replace(config, network=catch_config().network)).batch_per_learner == 16
    )
