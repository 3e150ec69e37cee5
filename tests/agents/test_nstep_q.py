import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import make_agent
from jaxrl.agents.nstep_q import agent as nstep_q
from jaxrl.agents.nstep_q.settings import NStepQConfig
from jaxrl.config.plan import resolve
from jaxrl.networks.heads import ActionValueNetwork
from jaxrl.networks.running_statistics import normalize
from jaxrl.types import AXIS, Trajectory
from tests.agents.test_c51 import SPEC, trajectory
from tests.conftest import catch_config


def one(reward, discount, valid):
    """A trajectory of one environment."""
    column = lambda x, kind: jnp.asarray(x, kind)[:, None]  # noqa: E731
    return Trajectory(
        observation=jnp.zeros((len(reward) + 1, 1)),
        action=jnp.zeros((len(reward), 1), jnp.int32),
        reward=column(reward, jnp.float32),
        discount=column(discount, jnp.float32),
        valid=column(valid, bool),
        extras=(),
    )


# Values of two actions at s₀ .. s₃, and the actions taken there.
VALUES = jnp.array([[[1.0, 5.0]], [[2.0, 0.0]], [[4.0, 8.0]], [[-2.0, 6.0]]])
ACTION = jnp.array([[0], [1], [0], [0]])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # R = r + γ R', the last one's by max q(s₃) = 6
        ("n_step", [1 + 0.5 * (2 + 0.5 * (3 + 0.5 * 6)), 2 + 0.5 * (3 + 0.5 * 6), 3 + 0.5 * 6]),
        # r + γ max q(s'): maxima 2, 8, 6
        ("one_step", [1 + 0.5 * 2, 2 + 0.5 * 8, 3 + 0.5 * 6]),
        # r + γ q(s', a'): 0 by action 1, 4 by action 0, -2 by action 0
        ("sarsa", [1 + 0.5 * 0, 2 + 0.5 * 4, 3 + 0.5 * -2]),
    ],
)
def test_hand_worked_targets(target, expected):
    config = NStepQConfig(gamma=0.5, target=target)
    rows = one([1, 2, 3], [1, 1, 1], [1, 1, 1])
    np.testing.assert_allclose(nstep_q.targets(config, VALUES, ACTION, rows)[:, 0], expected)


@pytest.mark.parametrize("target", ["n_step", "one_step", "sarsa"])
def test_games_that_end(target):
    config = NStepQConfig(gamma=0.5, target=target)
    # Terminated after row 0; row 1 is the reset, whose action was ignored.
    targets = nstep_q.targets(config, VALUES, ACTION, one([1, 0, 3], [0, 1, 1], [1, 0, 1]))[:, 0]
    assert float(targets[0]) == 1
    assert float(targets[2]) == (2 if target == "sarsa" else 6)
    # Cut by the time limit instead: the value of the last frame stands for the rest.
    cut = nstep_q.targets(config, VALUES, ACTION, one([1, 0, 3], [1, 1, 1], [1, 0, 1]))[:, 0]
    assert float(cut[0]) == 1 + 0.5 * (0 if target == "sarsa" else 2)


@pytest.mark.parametrize("target", ["n_step", "one_step", "sarsa"])
def test_targets_equal_rlax(target):
    random = np.random.default_rng(0)
    values = random.normal(size=(6, 4)).astype(np.float32)
    reward, action = random.normal(size=5).astype(np.float32), random.integers(0, 4, 6)
    discount = 0.9 * random.choice([0.0, 1.0], 5, p=[0.2, 0.8]).astype(np.float32)
    chosen = values[np.arange(6), action] if target == "sarsa" else values.max(-1)
    lambda_ = 1.0 if target == "n_step" else 0.0
    oracle = rlax.lambda_returns(jnp.asarray(reward), discount, chosen[1:], lambda_)
    rows = one(reward, discount / 0.9, np.ones(5))
    targets = nstep_q.targets(
        NStepQConfig(gamma=0.9, target=target), jnp.asarray(values)[:, None],
        jnp.asarray(action)[:, None], rows,
    )  # fmt: skip
    np.testing.assert_allclose(targets[:, 0], oracle, rtol=1e-5, atol=1e-6)


def test_hand_worked_loss():
    rows = nstep_q.Batch(
        jnp.zeros(2), jnp.array([1, 0]), jnp.array([3.0, 1.0]), jnp.array([0.5, 0.5])
    )
    total, parts = nstep_q.loss(jnp.array([[9.0, 1.0], [2.0, 9.0]]), rows)
    assert float(total) == 0.5 * 4 + 0.5 * 1
    assert float(parts["value/q"]) == 1.5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_sarsa_ends_with_the_value_of_a_draw_from_the_policy(epsilon):
    explores = {"epsilon_start": epsilon, "epsilon_end": epsilon, "epsilon_spread": False}
    config = catch_config("sarsa", num_envs=4, agent={"rollout_length": 4} | explores)
    made, played = make_agent(resolve(config), SPEC), trajectory(0)
    state = made.init(jax.random.key(0))
    network = ActionValueNetwork(SPEC.num_actions, 1, config.network)
    observation = played.observation.reshape(-1, *played.observation.shape[2:])
    seen = normalize(observation, state.actor.statistics)
    values = network.apply({"params": state.actor.params}, seen).reshape(5, 4, -1)
    weight = played.valid / played.valid.sum()

    def expected(last):
        action = jnp.concatenate([played.action, last[None]])
        return float(jnp.sum(weight * nstep_q.targets(config.agent, values, action, played)))

    def result(key):
        update = jax.vmap(made.update, in_axes=(0, 0, None), axis_name=AXIS)
        one_device = jax.tree.map(lambda x: x[None], (state, played))
        return update(*one_device, key)[1]["value/target"][0]

    best = expected(values[-1].argmax(-1))
    of_keys = jax.jit(lambda keys: jax.lax.map(result, keys))(
        jax.random.split(jax.random.key(1), 64)
    )
    if epsilon == 0:
        np.testing.assert_allclose(of_keys, best, rtol=1e-4)
        return
    mean = np.mean([expected(jnp.full(4, a)) for a in range(SPEC.num_actions)])
    error = of_keys.std() / 8
    assert abs(of_keys.mean() - mean) < 4 * error
    assert best - mean > 8 * error


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_the_target_network_is_a_copy_that_lags():
    agent = {"target_update_interval": 32, "rollout_length": 4, "epsilon_spread": False}
    config = catch_config("nstep_q", num_envs=4, agent=agent)
    made = make_agent(resolve(config), SPEC)
    state = jax.tree.map(lambda x: x[None], made.init(jax.random.key(0)))
    mapped = jax.jit(jax.vmap(made.update, in_axes=(0, 0, None), axis_name=AXIS))
    params, targets = [state.actor.params], [state.train_state.target_params]
    for i in range(4):  # 16 steps an update: copies before updates 0 and 2
        state, _ = mapped(state, jax.tree.map(lambda x: x[None], trajectory(i)), jax.random.key(i))
        params.append(state.actor.params)
        targets.append(state.train_state.target_params)

    def same(a, b):
        return all(
            (x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        )

    assert same(targets[1], params[0])
    assert same(targets[2], params[0])
    assert same(targets[3], params[2])
    assert same(targets[4], params[2])
    assert not same(params[2], params[0])
