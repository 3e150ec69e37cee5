import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import scipy.stats

from jaxrl.agents import make_agent, q_learning
from jaxrl.agents.c51 import agent as c51
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.evaluation import protocols
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import ActionValueNetwork, NetworkConfig
from jaxrl.ops import distributions
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import AXIS, EnvSpec, Trajectory
from tests.conftest import catch_config

SPEC = EnvSpec(4, 3, ("LEFT", "NOOP", "RIGHT"), "catch")
ATOMS = distributions.support(-1.0, 1.0, 3)  # -1, 0, 1


def logits_of(probabilities):
    return jnp.log(jnp.array(probabilities))


def hand_target(table, selector, reward, discount):
    """Of one transition; logits [A, N]."""
    bootstrap = q_learning.bootstrap(c51.method(ATOMS), table[None], selector[None])
    return c51.target(jnp.array([reward]), jnp.array([discount]), bootstrap, ATOMS)[0]


def test_hand_worked_target():
    # Means 0.5 and -0.25: action 0 is best. Atoms 0.5 + 0.5 z: 0, 0.5, 1.
    table = logits_of([[0.1, 0.3, 0.6], [0.5, 0.25, 0.25]])
    target = hand_target(table, table, 0.5, 0.5)
    # 0.1 on 0; 0.3 on 0.5, half to 0 and half to 1; 0.6 on 1
    np.testing.assert_allclose(target, [0.0, 0.25, 0.75], atol=1e-6)
    # After a termination only the reward is left.
    target = hand_target(table, table, 0.5, 0.0)
    np.testing.assert_allclose(target, [0.0, 0.5, 0.5], atol=1e-6)


def test_double_q_takes_the_action_of_the_other_network():
    table = logits_of([[0.1, 0.3, 0.6], [0.5, 0.25, 0.25]])
    selector = table[::-1]  # prefers action 1
    target = hand_target(table, selector, 0.0, 1.0)
    np.testing.assert_allclose(target, [0.5, 0.25, 0.25], atol=1e-6)


@pytest.mark.parametrize("double", [pytest.param(False, marks=pytest.mark.slow), True])
def test_loss_equals_rlax(double):
    random = np.random.default_rng(0)
    draw = lambda: jnp.asarray(random.normal(size=(16, 4, 51)), jnp.float32)  # noqa: E731
    online, target_logits, selector_logits = draw(), draw(), draw()
    atoms = distributions.support(-10, 10, 51)
    action = jnp.asarray(random.integers(0, 4, 16))
    reward = jnp.asarray(random.normal(size=16) * 5, jnp.float32)
    discount = jnp.asarray(random.choice([0.0, 0.99], 16), jnp.float32)
    selector = selector_logits if double else target_logits
    bootstrap = q_learning.bootstrap(c51.method(atoms), target_logits, selector)
    target = c51.target(reward, discount, bootstrap, atoms)
    rows = q_learning.Batch(jnp.zeros(16), action, target, jnp.full(16, 1 / 16), jnp.ones(16), None)
    total, (parts, divergence) = q_learning.loss(c51.method(atoms), online, rows)
    oracle = jax.vmap(rlax.categorical_double_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0, 0))(
        atoms, online, action, reward, discount, atoms, target_logits,
        jax.nn.softmax(selector) @ atoms,
    )  # fmt: skip
    assert float(total) == pytest.approx(float(oracle.mean()), rel=1e-5)
    chosen = jax.nn.softmax(online[jnp.arange(16), action])
    np.testing.assert_allclose(
        divergence, scipy.stats.entropy(np.asarray(target), np.asarray(chosen), axis=1), rtol=1e-3
    )
    values = (jax.nn.softmax(online) @ atoms)[jnp.arange(16), action]
    assert float(parts["value/q"]) == pytest.approx(float(values.mean()), rel=1e-4)


def test_a_row_without_weight_does_not_count():
    logits = logits_of([[[0.2, 0.3, 0.5]], [[0.6, 0.2, 0.2]]])
    target = jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    rows = q_learning.Batch(
        jnp.zeros(2), jnp.zeros(2, int), target, jnp.array([1.0, 0.0]), jnp.ones(2), None
    )
    assert float(q_learning.loss(c51.method(ATOMS), logits, rows)[0]) == pytest.approx(
        -np.log(0.3), rel=1e-5
    )


def trajectory(seed, steps=4, envs=4):
    random = np.random.default_rng(seed)
    return Trajectory(
        observation=jnp.asarray(random.integers(0, 256, (steps + 1, envs, 84, 84, 4)), jnp.uint8),
        action=jnp.asarray(random.integers(0, 3, (steps, envs)), jnp.int32),
        reward=jnp.asarray(random.normal(size=(steps, envs)), jnp.float32),
        discount=jnp.ones((steps, envs)),
        valid=jnp.ones((steps, envs), bool),
        extras=(),
    )


def started(config):
    """Returns the first state of the agent on one device, and its compiled update."""
    agent = make_agent(resolve(config), SPEC)
    state = jax.tree.map(lambda x: x[None], agent.init(jax.random.key(0)))
    return state, jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))


@pytest.mark.slow
def test_learning_starts_when_enough_is_played_and_the_target_network_lags():
    settings = {"learning_starts": 48, "target_update_interval": 32, "batch_size": 32}
    config = catch_config("c51_fast", num_envs=4, agent=settings)
    state, mapped = started(config)
    history = [state]
    for i in range(5):  # 16 steps an update
        data = jax.tree.map(lambda x: x[None], trajectory(i))
        state, metrics = mapped(history[-1], data, jax.random.key(i))
        history.append(state)
        assert (float(metrics["loss/cross_entropy"].number[0]) > 0) == (i >= 2)
        assert (float(metrics["loss/cross_entropy"].total[0]) > 0) == (i >= 2)
        assert float(metrics["replay/transitions"][0]) == 16 * (i + 1)

    def same(a, b):
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        return all((x == y).all() for x, y in pairs)

    params = [s.actor.params for s in history]
    targets = [s.train_state.target_params for s in history]
    assert same(params[0], params[2])
    assert not same(params[2], params[3])
    # Copies are taken before updates 0, 2 and 4.
    assert same(targets[3], params[2])
    assert same(targets[4], params[2])
    assert same(targets[5], params[4])
    assert not same(params[4], params[2])


@pytest.mark.slow
def test_training_intensity_is_transitions_trained_per_transition_played():
    """Gradient steps are counted by Adam: 8 x 16 steps played = 4 batches of 32."""
    settings = {"learning_starts": 0, "batch_size": 32, "training_intensity": 8.0}
    config = catch_config("c51_fast", num_envs=4, agent=settings)
    state, mapped = started(config)
    for i in range(3):
        data = jax.tree.map(lambda x: x[None], trajectory(i))
        state, _ = mapped(state, data, jax.random.key(i))
    counts = {
        int(leaf[0])
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.train_state.opt_state)
        if "count" in jax.tree_util.keystr(path)
    }
    # The first update has 4 steps of each environment: too few for a stack and a window of 3.
    assert counts == {2 * 4}


@pytest.mark.slow
def test_evaluation_explores_as_it_says():
    config = catch_config("c51_fast", agent={"evaluation_epsilon": 0.0})
    played = protocols.protocol_config(config, "noop")
    assert played.agent.epsilon_start == played.agent.epsilon_end == 0.0
    agent = make_agent(resolve(played), SPEC)
    actor = (
        make_agent(resolve(config), SPEC).init(jax.random.key(0)).actor
    )  # no update yet: epsilon 1
    observation = jnp.asarray(np.random.default_rng(0).integers(0, 256, (4, 84, 84, 4)), jnp.uint8)
    keys = jax.random.split(jax.random.key(0), (8, 4))
    actions = [agent.act(actor, observation, k)[0].tolist() for k in keys]
    assert all(a == actions[0] for a in actions)


@pytest.mark.parametrize("torso", ["nips", pytest.param("impala", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dueling", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_action_values_of_every_kind(torso, dueling):
    config = NetworkConfig(torso=torso, dueling=dueling)
    x = jnp.asarray(np.random.default_rng(0).random((2, 84, 84, 4)), jnp.float32)
    for atoms, shape in ((1, (2, 3)), (5, (2, 3, 5))):
        network = ActionValueNetwork(3, atoms, config)
        params = init_params(network, jax.random.key(0))
        outputs = jax.jit(network.apply)({"params": params}, x)
        assert outputs.shape == shape
        assert np.isfinite(np.asarray(outputs)).all()
        assert ("Dense_1" in params) == dueling


def outputs_of_layers(**settings):
    """Outputs of an action-value network for random stacks, and those of its layers by name."""
    network = ActionValueNetwork(3, 1, NetworkConfig(torso="nips", **settings))
    params = init_params(network, jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).random((2, 84, 84, 4)), jnp.float32)
    outputs, captured = network.apply({"params": params}, x, capture_intermediates=True)
    return outputs, captured["intermediates"]


@pytest.mark.slow
def test_dueling_is_the_value_plus_the_centred_advantage():
    outputs, layers = outputs_of_layers(dueling=True)
    value = layers["Dense_1"]["__call__"][0]
    # The mean over actions is the state's value.
    np.testing.assert_allclose(outputs.mean(axis=1, keepdims=True), value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("c51_fast", {"rollout_length": 2, "batch_size": 32, "learning_starts": 4000}),
        ("vtrace_cpu", {"rollout_length": 2, "window": 8, "num_minibatches": 2}),
    ],
)
def test_new_games_do_not_continue_those_in_the_replay(recipe, settings):
    """As a resumed run on EnvPool begins them; on two devices, with actions under way."""
    config = catch_config(
        recipe, num_envs=4, parallel={"num_devices": 2, "order": "overlapped"}, agent=settings
    )
    mesh = make_mesh(2)
    engine = make_engine(config, 2, 2)
    program = make_program(
        resolve(config), make_agent(resolve(config), engine.spec), (engine,), mesh
    )
    state = program.run(program.init(), np.int32(3))  # 6 steps of each environment
    valid = np.array(state.agent.memory.ring.valid)  # the state is donated
    restarted = program.restart(state, 7)
    after = np.asarray(restarted.agent.memory.ring.valid)
    np.testing.assert_array_equal(after[:, :5], valid[:, :5])
    assert not after[:, 5].any()
    continued = program.run(restarted, np.int32(1))
    assert (np.asarray(continued.agent.memory.steps) == 8).all()
    assert not np.asarray(continued.agent.memory.ring.valid)[:, 5].any()
