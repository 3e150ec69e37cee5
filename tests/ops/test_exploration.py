import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents.c51.settings import C51Config
from jaxrl.agents.nstep_q.settings import NStepQConfig
from jaxrl.config.plan import resolve
from jaxrl.config.toml import load
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.ops import exploration
from tests.conftest import recipe_file


def test_epsilon_falls_linearly_by_step():
    config = C51Config(epsilon_start=1.0, epsilon_end=0.1, epsilon_decay_steps=1000)
    epsilons = [exploration.epsilon(config, jnp.float32(s), 2) for s in (0, 500, 1000, 5000)]
    np.testing.assert_allclose(epsilons, [[1.0] * 2, [0.55] * 2, [0.1] * 2, [0.1] * 2], rtol=1e-6)


def test_epsilon_falls_geometrically():
    """What is left to the end is divided by e in every epsilon_decay_steps."""
    config = C51Config(epsilon_end=0.1, epsilon_decay_steps=1000, epsilon_schedule="geometric")
    epsilons = [float(exploration.epsilon(config, jnp.float32(s), 1)[0]) for s in (0, 1000, 2000)]
    np.testing.assert_allclose(epsilons, [1, 0.1 + 0.9 / np.e, 0.1 + 0.9 / np.e**2], rtol=1e-5)
    # As a step that leaves the share 1 - 1 / 1000 of the rest, taken a thousand times.
    assert epsilons[1] == pytest.approx(0.1 + 0.9 * (1 - 1 / 1000) ** 1000, rel=1e-3)


def test_epsilon_falls_by_the_steps_of_all_environments():
    agent = C51Config(rollout_length=4, epsilon_end=0.0, epsilon_decay_steps=1000)
    schedule = exploration.schedule(agent, steps_per_update=4 * 10)
    # An update has 4 · 10 steps, 10 updates have 400 of 1000.
    np.testing.assert_allclose(schedule(jnp.int32(10), 2), [0.6] * 2, rtol=1e-6)


def test_epsilon_ends_elsewhere_in_some_environments():
    """Mnih 2016: 0.1, 0.01 and 0.5 with probabilities 0.4, 0.3 and 0.3."""
    config = NStepQConfig(epsilon_start=1.0, epsilon_spread=True, epsilon_decay_steps=1000)
    ends = exploration.epsilon(config, jnp.float32(2000), 10)
    np.testing.assert_allclose(ends, [0.1] * 4 + [0.01] * 3 + [0.5] * 3, rtol=1e-5)
    half = exploration.epsilon(config, jnp.float32(500), 10)
    np.testing.assert_allclose(half, [0.55] * 4 + [0.505] * 3 + [0.75] * 3, rtol=1e-5)
    for number in (10, 16, 17, 20):
        ends = np.asarray(exploration.epsilon(config, jnp.float32(2000), number))
        for end, share in ((0.1, 0.4), (0.01, 0.3), (0.5, 0.3)):
            assert abs(np.isclose(ends, end).mean() - share) < 1 / number


def test_too_few_environments_for_their_shares_are_refused():
    """Shares are of those that are answered together: 16 on four devices would be other ones."""
    resolve(load(recipe_file("sarsa")), 1)
    few, leave = "8 environments of a device are too few", "leave parallel.groups at 1"
    for key, message in (("num_devices", few), ("groups", leave)):
        changes = {"parallel": {key: 2}}
        config = load(recipe_file("sarsa")).replaced(**changes)
        with pytest.raises(UserError, match=message):
            check(config)


def test_epsilon_greedy_is_greedy_but_for_epsilon():
    keys = jax.random.split(jax.random.key(0), 20_000)
    values = jnp.tile(jnp.array([[0.0, 2.0, 1.0]]), (20_000, 1))
    action = exploration.epsilon_greedy(keys, values, jnp.full(20_000, 0.3))
    assert action.dtype == jnp.int32
    # 0.7 + 0.3 / 3 for the best, 0.3 / 3 for each other
    np.testing.assert_allclose(np.bincount(action) / 20_000, [0.1, 0.8, 0.1], atol=0.015)
    assert (exploration.epsilon_greedy(keys[:50], values[:50], jnp.zeros(50)) == 1).all()
