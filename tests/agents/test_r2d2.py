import dataclasses
import shutil
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import make_agent
from jaxrl.agents.r2d2 import agent as r2d2
from jaxrl.agents.r2d2.settings import R2D2Config
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.config.validation import check
from jaxrl.envs import make_engine
from jaxrl.envs.catch import MAX_SCORE
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate
from jaxrl.networks.actors import forward
from jaxrl.networks.heads import ActionValueNetwork
from jaxrl.ops.rescaling import rescale, unscale
from jaxrl.program import episode_statistics
from jaxrl.program.program import Program, make_program
from jaxrl.replay import buffer, sequences
from jaxrl.runtime.mesh import make_mesh, map_over_devices
from jaxrl.training import memory_budget
from jaxrl.types import AXIS, Agent, LoopState, RecurrentObservation, Trajectory
from tests.conftest import catch_config, recipe_file
from tests.survival import without_times

FRAMES = {"frame_height": 36, "frame_width": 36}
NETWORK = {"core_units": 8, "normalize_observations": False}
# Two sequences of 6 learned steps per rollout of 4 environments, after a burn-in of 3.
SHORT = {
    "rollout_length": 3, "sequence_length": 6, "burn_in": 3, "sequence_stride": 3, "batch_size": 2,
    "training_intensity": 1.0, "replay_capacity": 96, "learning_starts": 0, "n_step": 3,
    "target_update_interval": 24,
}  # fmt: skip


def config_of(agent=(), network=(), num_envs=4, **changes):
    return catch_config(
        "r2d2_fast",
        num_envs=num_envs,
        env=FRAMES,
        network=NETWORK | dict(network),
        agent=SHORT | dict(agent),
        **changes,
    )


def program_of(config, num_devices=1):
    plan = resolve(config, num_devices)
    engine = make_engine(config, plan.envs_per_device, num_devices)
    agent = make_agent(plan, engine.spec)
    return agent, make_program(plan, agent, (engine,), make_mesh(num_devices))


# --- the loss ------------------------------------------------------------------------------------


def steps(reward, discount=(1.0, 1.0), valid=(True, True)):
    """Two learned steps of one environment, which takes action 0 and then 1."""
    row = lambda x, kind: jnp.asarray([x], kind)  # noqa: E731
    return Trajectory(
        (), row((0, 1), jnp.int32), row(reward, jnp.float32), row(discount, jnp.float32),
        row(valid, bool), (),
    )  # fmt: skip


def outputs(online, target):
    return r2d2.Outputs(jnp.asarray([online], jnp.float32), jnp.asarray([target], jnp.float32))


PLAIN = R2D2Config(gamma=0.5, n_step=2, rescaling=0.0)


def test_rescaling_by_hand_and_back():
    # h(8) = √9 - 1 + 0.001 · 8, h(-3) = -(√4 - 1) - 0.003
    np.testing.assert_allclose(rescale(jnp.array([8.0, -3.0, 0.0]), 1e-3), [2.008, -1.003, 0])
    x = jnp.concatenate([jnp.linspace(-3, 3, 61), jnp.array([-1e6, 40.0, 3e5])])
    for epsilon in (0.0, 1e-3, 1e-2):
        np.testing.assert_allclose(unscale(rescale(x, epsilon), epsilon), x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rescale(x, 1e-3), rlax.signed_hyperbolic(x, 1e-3), rtol=1e-6)
    np.testing.assert_allclose(
        unscale(x[:61], 1e-3), rlax.signed_parabolic(x[:61], 1e-3), atol=1e-3
    )


def test_hand_worked_targets():
    # h with ε = 0: h(x) = √(x + 1) - 1 and back (y + 1)² - 1: 1 <-> 3, 2 <-> 8.
    both = outputs([[0, 1], [2, 1], [1, 2]], [[9, 9], [1, 2], [9, 1]])
    # Best by the online network: 1, 0, 1; by the target network these have 9, 1, 1: 99, 3, 3.
    # t = 1: one step is left: 2 + 0.5 · 3 = 3.5.  t = 0: 4 + 0.5 · 2 + 0.25 · 3 = 5.75.
    double = r2d2.targets(PLAIN, both, steps((4, 2)))
    np.testing.assert_allclose(double[0], np.sqrt([6.75, 4.5]) - 1, rtol=1e-5)
    # One step each: 4 + 0.5 · 3, and as before.
    one = r2d2.targets(dataclasses.replace(PLAIN, n_step=1), both, steps((4, 2)))
    np.testing.assert_allclose(one[0], np.sqrt([6.5, 4.5]) - 1, rtol=1e-5)
    # Without double Q-learning the target network's own best: 8, then 99 = (9 + 1)² - 1.
    single = r2d2.targets(dataclasses.replace(PLAIN, double_q=False), both, steps((4, 2)))
    np.testing.assert_allclose(
        single[0], np.sqrt([5 + 0.25 * 99 + 1, 2 + 0.5 * 99 + 1]) - 1, rtol=1e-5
    )
    # A termination: 4 + 0.5 · 2, and no more.
    ends = r2d2.targets(PLAIN, both, steps((4, 2), discount=(1, 0)))
    np.testing.assert_allclose(ends[0], np.sqrt([6, 3]) - 1, rtol=1e-5)
    # Row 1 is a reset: the true last frame bootstraps, 4 + 0.5 · 3.
    cut = r2d2.targets(PLAIN, both, steps((4, 2), valid=(True, False)))
    assert float(cut[0, 0]) == pytest.approx(np.sqrt(6.5) - 1, rel=1e-5)


def test_hand_worked_loss():
    both = outputs([[0, 1], [2, 1], [1, 2]], [[9, 9], [1, 2], [9, 1]])
    batch = r2d2.Batch((), jnp.array([[0.25, 0.5]]), jnp.array([0.5]))
    config = dataclasses.replace(PLAIN, sequence_length=2)
    total, (sums, priorities) = r2d2.loss(config, both, steps((4, 2)), batch)
    # q of the actions taken: 0 and 1.
    first, second = np.sqrt(6.75) - 1, np.sqrt(4.5) - 2
    square = 0.5 * (0.25 * first**2 + 0.5 * second**2)
    assert float(sums["loss/squared_error"]) == pytest.approx(square, rel=1e-5)
    assert float(total) == pytest.approx(0.5 * 2 * square, rel=1e-5)
    assert float(sums["value/q"]) == pytest.approx(0.25 * 0 + 0.5 * 3, rel=1e-5)
    mean = (first + abs(second)) / 2
    np.testing.assert_allclose(priorities, [0.9 * first + 0.1 * mean], rtol=1e-5)
    # The gradient is that of the chosen values alone: L · w · (q - target).
    slope = jax.grad(lambda x: r2d2.loss(config, both._replace(online=x), steps((4, 2)), batch)[0])
    expected = np.zeros((1, 3, 2))
    expected[0, 0, 0], expected[0, 1, 1] = -2 * 0.125 * first, -2 * 0.25 * second
    np.testing.assert_allclose(slope(both.online), expected, atol=1e-6)


def test_a_priority_is_of_the_rows_that_are_transitions():
    error, valid = (
        jnp.array([[3.0, -4.0, 99.0], [1.0, 1.0, 1.0]]),
        jnp.array([[1, 1, 0], [0, 0, 0]]),
    )
    # 0.9 · 4 + 0.1 · 3.5; without a row 0
    np.testing.assert_allclose(r2d2.priority(error, valid > 0, 0.9), [3.95, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    "n_step", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
def test_errors_equal_rlax(n_step):
    random = np.random.default_rng(n_step)
    size, length, actions = 6, 9, 4
    draw = lambda *shape: jnp.asarray(random.normal(size=shape) * 3, jnp.float32)  # noqa: E731
    both = r2d2.Outputs(draw(size, length + 1, actions), draw(size, length + 1, actions))
    rows = Trajectory(
        (), jnp.asarray(random.integers(0, actions, (size, length))), 20 * draw(size, length),
        jnp.asarray(random.random((size, length)) > 0.2, jnp.float32),
        jnp.ones((size, length), bool), (),
    )  # fmt: skip
    config = R2D2Config(gamma=0.9, n_step=n_step, rescaling=1e-3)
    oracle = jax.vmap(
        partial(rlax.transformed_n_step_q_learning, n=n_step, tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)
    )
    errors = oracle(
        both.online[:, :-1], rows.action, both.target[:, 1:], both.online[:, 1:].argmax(-1),
        rows.reward, 0.9 * rows.discount,
    )  # fmt: skip
    chosen = jnp.take_along_axis(both.online[:, :-1], rows.action[..., None], -1)[..., 0]
    np.testing.assert_allclose(r2d2.targets(config, both, rows) - chosen, errors, atol=2e-3)


# --- what is stored and replayed -----------------------------------------------------------------


class Played(NamedTuple):
    config: Config
    agent: Agent
    program: Program
    states: list[LoopState]  # after every one of 7 rollouts
    on_mesh: LoopState  # the last of them, which the program takes without compiling again


@pytest.fixture(scope="module")
def played():
    """An agent whose learning rate is 0, as it has played."""
    config = config_of(optimizer={"learning_rate": 0.0})
    agent, program = program_of(config)
    state, states = program.init(), []
    for _ in range(7):
        state = program.run(state, np.int32(1))
        states.append(jax.tree.map(jnp.asarray, jax.device_get(state)))  # the state is donated
    return Played(config, agent, program, states, state)


@pytest.mark.slow
def test_stored_states_are_those_that_an_unroll_finds(played):
    """Sequence by sequence, as parameters do not change, across the games' ends too."""
    config, state = played.config, played.states[-1]
    memory, form = state.agent.memory, sequences.Form(3, 6, 3)
    assert int(memory.steps[0]) == 21
    network = ActionValueNetwork(3, 1, config.network)
    env, number = (x.ravel() for x in np.meshgrid(np.arange(4), np.arange(1, 4)))
    got = sequences.read(memory, buffer.Place(jnp.asarray(env), jnp.asarray(3 * number)), form)
    assert np.asarray(got.observation.fresh).any()
    params = state.agent.actor.params
    first = jax.tree.map(lambda x: x[:, :3], got.observation)
    ends = jax.jit(lambda x: forward(network, params, (), x).core)(first)
    # Where a game begins the stored state is zero.
    expected = memory.states[env, number + 1]
    ends = np.where(got.observation.fresh[:, 3, None], 0.0, ends)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(ends, expected, atol=1e-5)


@pytest.mark.slow
def test_the_target_network_is_copied_every_second_update(played):
    state, params = played.on_mesh, played.states[-1].agent.actor.params
    other = state.agent.train_state._replace(target_params=jax.tree.map(lambda x: x + 1, params))
    other = jax.device_put(other, state.key.sharding)
    state = jax.tree.map(jnp.copy, state)
    state = state._replace(agent=state.agent._replace(train_state=other))
    for copied in (False, True):  # in update 7, then 8
        state = played.program.run(state, np.int32(1))
        target = jax.tree.leaves(state.agent.train_state.target_params)
        same = [bool((a == b).all()) for a, b in zip(target, jax.tree.leaves(params), strict=True)]
        assert all(same) == copied


@pytest.mark.slow
def test_a_step_is_seen_with_the_action_and_the_reward_before_it(played):
    state = played.states[-1]
    ring = state.agent.memory.ring
    fresh = np.asarray(ring.recall.fresh)[:, 1:21]
    before = np.asarray(ring.action, np.int32)[:, :20], np.asarray(ring.reward)[:, :20]
    np.testing.assert_array_equal(ring.recall.last_action[:, 1:21], np.where(fresh, -1, before[0]))
    np.testing.assert_array_equal(ring.recall.last_reward[:, 1:21], np.where(fresh, 0, before[1]))
    assert fresh.any()


@pytest.mark.slow
def test_neither_the_burn_in_nor_the_target_has_a_gradient(played):
    """It equals the gradient with the refreshed state and the targets held as numbers."""
    config, agent, state = played.config, played.agent, played.states[-1]
    setup = agent.update.args[0]
    memory, params = state.agent.memory, state.agent.actor.params
    others = jax.tree.map(lambda x: 1.1 * x, params)
    place = buffer.Place(jnp.array([0, 2]), jnp.array([3, 6]))
    batch = r2d2.Batch(place, jnp.full((2, 6), 1 / 12), jnp.ones(2))
    gradient = jax.jit(jax.grad(lambda p: r2d2.objective(setup, (), memory, others, p, batch)[0]))(
        params
    )
    steps = sequences.read(memory, place, setup.form)
    first = jax.tree.map(lambda x: x[:, :3], steps.observation)
    rest = jax.tree.map(lambda x: x[:, 3:], steps.observation)
    network = ActionValueNetwork(3, 1, config.network)
    refreshed = jax.jit(lambda p: forward(network, p, (), first).core[:, None])
    values = jax.jit(lambda p, core: forward(network, p, (), rest._replace(core=core)).values)
    core = refreshed(params)
    both = r2d2.Outputs(values(params, core), values(others, refreshed(others)))
    target = r2d2.targets(config.agent, both, steps)

    @jax.jit
    @jax.grad
    def by_hand(params):
        online = values(params, core)[:, :-1]
        chosen = jnp.take_along_axis(online, steps.action[..., None], -1)[..., 0]
        return 0.5 * 6 * jnp.mean(jnp.square(target - chosen))

    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6)
    jax.tree.map(close, gradient, by_hand(params))
    assert max(np.abs(x).max() for x in jax.tree.leaves(gradient)) > 1e-3


@pytest.mark.slow
def test_dueling_streams_follow_the_core():
    """Values are V + A - mean A; a stream has a hidden layer of the core's size."""
    config = config_of().network
    network = ActionValueNetwork(3, 1, config)
    observation = RecurrentObservation(
        jnp.zeros((1, 2, 36, 36, 4)), jnp.zeros((1, 2, 16)), jnp.zeros((1, 2), jnp.int32),
        jnp.zeros((1, 2)), jnp.zeros((1, 2), bool),
    )  # fmt: skip
    params = jax.jit(network.init)(jax.random.key(0), observation)["params"]
    shapes = {name: params[name]["Dense_0"]["kernel"].shape for name in params if "Dense" in name}
    assert sorted(shapes.values()) == [(8, 1), (8, 3), (8, 8), (8, 8)]
    apply = jax.jit(lambda p: network.apply({"params": p}, observation).values)
    outputs = apply(params)
    bias = {name: params[name]["Dense_0"]["bias"] for name in params if "Dense" in name}
    (head,) = (name for name, shape in shapes.items() if shape == (8, 3))
    moved = jax.tree.map(lambda x: x, params)
    moved[head]["Dense_0"]["bias"] = bias[head] + 5.0  # the same for all actions: no difference
    np.testing.assert_allclose(apply(moved), outputs, atol=1e-5)
    plain = ActionValueNetwork(3, 1, dataclasses.replace(config, dueling=False))
    one = jax.eval_shape(lambda: plain.init(jax.random.key(0), observation))["params"]
    assert sum("Dense" in name for name in one) == 1


# --- play ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_devices", [1, 2, 4])
def test_environments_explore_by_their_number(num_devices):
    config, size = config_of({"batch_size": 4}, num_envs=8), 8 // num_devices
    spec = make_engine(config, size, num_devices).spec
    epsilon = make_agent(resolve(config, num_devices), spec).act.args[0].epsilon
    specs = (jax.sharding.PartitionSpec(),), jax.sharding.PartitionSpec(AXIS)
    mapped = map_over_devices(lambda _: epsilon(size), make_mesh(num_devices), *specs)
    np.testing.assert_allclose(mapped(0), 0.4 ** (1 + 7 * np.arange(8) / 7), rtol=1e-5)
    agent = config.agent.for_evaluation()
    assert (agent.epsilon_base, agent.epsilon_exponent) == (agent.evaluation_epsilon, 0)


@pytest.mark.slow
def test_predicted_values_are_in_units_of_the_reward(played):
    config, agent, state = played.config, played.agent, played.states[-1]
    actor, observation = state.agent.actor, state.games[0].observation
    prediction = jax.jit(agent.predict)(actor, observation)
    network = ActionValueNetwork(3, 1, config.network)
    play = jax.jit(lambda x: forward(network, actor.params, (), x).values)
    values = np.asarray(play(observation))
    np.testing.assert_allclose(
        prediction.value, rlax.signed_parabolic(values.max(1), 1e-3), atol=1e-3
    )
    np.testing.assert_array_equal(prediction.probabilities.argmax(1), values.argmax(1))


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": {"rollout_length": 2}}, r"agent.rollout_length = 2 does not divide agent.seq"),
        ({"agent": {"sequence_stride": 9}}, r"sequence_stride = 9: leaves out steps"),
        ({"agent": {"replay_capacity": 40}}, r"replay_capacity = 40: 4 environments need .* 72"),
        ({"agent": {"training_intensity": 0.7}}, r"the 1.4 sequences to train on .* take 0.5"),
        ({"agent": {"batch_size": 3}}, r"batch_size = 3 does not divide the 2 sequences"),
        ({"network": {"core": "none"}}, r"network.core = 'none': r2d2 .* take network.core = 'ls"),
        ({"network": {"noisy": True}}, r"network.noisy = true: r2d2 explores otherwise"),
        ({"parallel": {"sync_every": 2}}, r"parallel.sync_every: r2d2 keeps one target network"),
        ({"parallel": {"groups": 2}}, r"agent.epsilon_exponent: is of all environments at once"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(changes, message):
    check(config_of())
    with pytest.raises(UserError, match=message):
        check(config_of(**changes))


def test_a_replay_is_measured_with_its_states():
    config = load(recipe_file("r2d2"))
    fits = partial(memory_budget.check_fits, config, share=1)
    # 84 x 84 + 8 + 9 bytes and 4,096 / 40 of a state, of a million transitions and a tenth more
    need = (7056 + 17 + 102.4) * 1e6 / 0.9
    fits(free_bytes=need * 1.001)
    with pytest.raises(UserError, match=r"needs 7\.2 GB, and 8\.0 GB are free: 990000 would fit"):
        fits(free_bytes=need * 0.999)


def test_the_files_are_what_they_say():
    config = load(recipe_file("r2d2"))
    plan = resolve(config)
    assert plan.gradient_steps == 1
    assert config.agent.target_update_interval / plan.steps_per_update == 2500
    assert not config.env.reward_clip
    assert not config.env.episodic_life


@pytest.mark.slow
def test_learning_begins_where_the_host_expects_it(played):
    config, states = played.config, played.states
    # The sequence at step 3 ends with step 12: five rollouts of 4 environments.
    assert config.agent.first_learning_step(4) == 4 * 15
    assert dataclasses.replace(config.agent, learning_starts=80).first_learning_step(4) == 80
    counts = [int(state.metrics["loss/squared_error"].number) for state in states]
    assert counts == [0, 0, 0, 0, 1, 2, 3]
    assert states[-1].metrics["loss/gradient_norm"].total > 0
    # Every priority that was drawn is an error now, of three batches of two.
    power = np.asarray(states[-1].agent.memory.priorities.power)
    assert 2 <= np.count_nonzero((power != 1) & (power != 0)) <= 6


# --- devices, time, and whether it learns --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.rotating(5, group="resumed")
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path):
    arguments = [
        "--config", str(recipe_file("r2d2_fast")), "--game", "catch", "--num-envs", "4",
        "--parallel.num-devices", "1", "--env.frame-height", "36", "--env.frame-width", "36",
        "--network.core-units", "8", "--agent.replay-capacity", "800", "--agent.batch-size", "2",
        "--agent.training-intensity", "1", "--agent.learning-starts", "200",
        "--agent.target-update-interval", "120", "--evaluation.episodes", "0",
        "--log.interval", "200", "--checkpoint.interval", "200", "--total-steps", "600",
    ]  # fmt: skip
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", *arguments, "--run-dir", str(whole)]) == 0
    shutil.copytree(whole, cut)
    for step in ("400", "600"):
        shutil.rmtree(cut / "checkpoints" / step)
    assert main(["resume", str(cut)]) == 0
    assert without_times(cut) == without_times(whole)
    assert without_times(whole)[-1]["loss/squared_error"] > 0


@pytest.mark.slow
def test_new_games_do_not_continue_those_in_the_replay():
    """As a resumed run on EnvPool begins them."""
    config = config_of()
    _, program = program_of(config)
    state = program.run(program.init(), np.int32(3))  # 9 steps of each environment
    state = program.run(program.restart(state, 7), np.int32(1))
    ring = state.agent.memory.ring
    assert not np.asarray(ring.valid)[:, 8].any()
    assert np.asarray(ring.recall.fresh)[:, 9].all()
    assert (np.asarray(state.agent.memory.states)[:, 3] == 0).all()  # the sequence at step 9


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
@pytest.mark.parametrize(("game", "steps"), [("catch", 28_000), ("catch_memory", 70_000)])
def test_solves_catch(game, steps):
    """Without a core -5/7 is the best of `catch_memory`.

    The greedy policy misses a column or two for long, so it is evaluated after each tenth of
    `steps`, and may take all.
    """
    config = catch_config(
        "r2d2_fast",
        num_envs=16,
        game=game,
        total_steps=steps,
        env=FRAMES,
        network={"core_units": 64},
        optimizer={"learning_rate": 1e-3},
        agent={
            "batch_size": 16, "training_intensity": 4.0, "replay_capacity": 20_000,
            "learning_starts": 500, "target_update_interval": 640,
            "epsilon_base": 0.4, "epsilon_exponent": 2.0,
        },
    )  # fmt: skip
    _, program = program_of(config)
    state = program.run(program.init(), np.int32(resolve(config).num_updates // 10))
    # Not solved yet.
    assert episode_statistics.summarize(state.games[0].episodes).return_mean < 0.5
    scores: list[float] = []
    while not scores or scores[-1] <= 0.8 * MAX_SCORE:
        assert len(scores) < 9, f"not solved after {steps} steps: {scores}"
        state = program.run(state, np.int32(resolve(config).num_updates // 10))
        actor = jax.device_put(jax.device_get(state.agent.actor), jax.local_devices()[0])
        scores.append(evaluate.evaluate(config, actor, "noop", 40).mean)
