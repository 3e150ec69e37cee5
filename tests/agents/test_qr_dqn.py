from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxrl.agents import q_learning
from jaxrl.agents.dqn import agent as dqn
from jaxrl.agents.iqn import agent as iqn
from jaxrl.agents.iqn.settings import IQNConfig
from jaxrl.agents.qr_dqn import agent as qr_dqn
from jaxrl.agents.qr_dqn.settings import QRDQNConfig
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.networks.heads import Quantiles
from jaxrl.ops import quantiles
from tests.agents.test_dqn import updated
from tests.conftest import catch_config

METHOD = qr_dqn.method()


def test_hand_worked_target_and_loss():
    there = jnp.array([[[1.0, 3.0], [0.0, 1.0]]])  # means 2 and ½
    bootstrap = q_learning.bootstrap(METHOD, there, there)
    target = qr_dqn.target(jnp.array([1.0]), jnp.array([0.5]), bootstrap)
    np.testing.assert_allclose(target, [[1.5, 2.5]])
    losses, priorities = qr_dqn.error(target, jnp.array([[1.5, 1.5]]))
    # δ = 0, 1 of both quantiles, at the levels ¼ and ¾: (¼ · ½ + ¾ · ½) / 2
    np.testing.assert_allclose(losses, [0.25])
    np.testing.assert_allclose(priorities, [0.5])


@pytest.mark.parametrize("double", [False, True])
def test_loss_equals_rlax(double):
    random = np.random.default_rng(0)
    draw = lambda: jnp.asarray(random.normal(size=(16, 4, 9)) * 2, jnp.float32)  # noqa: E731
    online, there, selector = draw(), draw(), draw()
    action = jnp.asarray(random.integers(0, 4, 16))
    reward = jnp.asarray(random.normal(size=16), jnp.float32)
    discount = jnp.asarray(random.choice([0.0, 0.99], 16), jnp.float32)
    selector = selector if double else there
    target = qr_dqn.target(reward, discount, q_learning.bootstrap(METHOD, there, selector))
    rows = q_learning.Batch(jnp.zeros(16), action, target, jnp.full(16, 1 / 16), jnp.ones(16), None)
    total, _ = q_learning.loss(METHOD, online, rows)
    columns = lambda x: jnp.swapaxes(x, 1, 2)  # noqa: E731
    oracle = jax.vmap(
        lambda *row: rlax.quantile_q_learning(row[0], quantiles.midpoints(9), *row[1:], 1.0)
    )(columns(online), action, reward, discount, columns(selector), columns(there))
    assert float(total) == pytest.approx(float(oracle.mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        pytest.param(dqn.method(), (), id="dqn"),
        pytest.param(METHOD, (3,), id="qr_dqn"),
        pytest.param(iqn.method(IQNConfig()), (3,), id="iqn"),
    ],
)
def test_the_learning_pass_adds_to_every_number_of_a_rows_target(method, numbers, monkeypatch):
    """Loss, priorities and gradients are those of targets to which each row's bonus was added."""
    random = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape), jnp.float32)  # noqa: E731
    outputs, target = draw(3, 3, *numbers), draw(3, *numbers)
    if method.draws:
        outputs = Quantiles(outputs, jnp.asarray(random.random((3, 3, 3)), jnp.float32))
    action, weight = jnp.array([2, 0, 1]), jnp.full(3, 1 / 3)
    batch = q_learning.Batch(jnp.zeros(3), action, target, weight, jnp.ones(3), None)
    settings = QRDQNConfig(
        munchausen_scale=0.9, munchausen_temperature=0.5, munchausen_network="online"
    )
    learner = SimpleNamespace(network=None)
    setup = SimpleNamespace(settings=settings, method=method, learner=learner)
    # The network's outputs are its parameters.
    monkeypatch.setattr(q_learning, "forward", lambda network, params, *_: params)
    raised = []
    for values, taken, row in zip(method.values(outputs), action, target, strict=True):
        log_policy = 0.5 * jax.nn.log_softmax(values / 0.5)[taken]
        raised.append(row + 0.9 * jnp.clip(log_policy, -1, 0))

    def loss(params, right):
        if right:
            return q_learning.loss(method, params, batch._replace(target=jnp.stack(raised)))
        return q_learning.objective(setup, (), params, batch)

    ours, expected = (
        jax.value_and_grad(loss, has_aux=True)(outputs, right) for right in (False, True)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), ours, expected)
    assert float(jnp.abs(jnp.stack(raised) - target).min()) > 0.1


@pytest.mark.slow
def test_an_update_with_munchausen_targets_has_another_loss():
    settings = {"n_step": 1, "rollout_length": 4, "training_intensity": 2.0}
    settings |= {"munchausen_network": "target"}
    losses = []
    for scale in (0.0, 0.9):
        state, metrics = updated("qr_dqn_fast", munchausen_scale=scale, **settings)
        loss = metrics["loss/quantile"]
        losses.append(float(loss.total[0] / loss.number[0]))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.actor.params))
    assert losses[0] != losses[1]
    assert min(losses) > 0


def test_munchausen_targets_have_no_best_action():
    config = catch_config("qr_dqn_fast")
    with pytest.raises(UserError, match=r"agent.double_q = true: Munchausen targets"):
        check(config.replaced(agent={"double_q": True}))
    check(config)
    with pytest.raises(UserError, match=r"munchausen_clip = 1.0: must be at most 0$"):
        check(config.replaced(agent={"munchausen_clip": 1.0}))
    alone = {"munchausen_scale": 0.0, "munchausen_network": "online"}
    with pytest.raises(UserError, match="munchausen_network = 'online': nothing is added"):
        check(config.replaced(agent=alone))
