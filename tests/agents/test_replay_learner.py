"""The gradient steps of an update on a replay."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import replay_learner
from jaxrl.agents.learner import TrainState
from jaxrl.agents.replay_learner import ReplaySizes
from jaxrl.types import ActorState, AgentState


def test_every_gradient_step_has_a_key_of_its_own(monkeypatch):
    """They draw other transitions, other noise and other levels of quantiles."""
    monkeypatch.setattr(replay_learner, "_log", lambda *_: {})
    monkeypatch.setattr(replay_learner, "next_actor", lambda _, actor, params, __: params)
    setup = SimpleNamespace(
        replay=ReplaySizes(num_envs=1, num_batches=3, target_interval=1),
        settings=SimpleNamespace(learning_starts=0),
        learner=SimpleNamespace(network=None),
    )
    drawn = jnp.zeros(())
    memory = SimpleNamespace(steps=jnp.ones(1, jnp.int32), priorities=())
    memory._replace = lambda priorities: priorities
    state = AgentState(ActorState(drawn, (), jnp.int32(0)), TrainState((), drawn), memory)

    def step(learned, key):
        return learned._replace(params=learned.params + jax.random.uniform(key))

    key = jax.random.key(4)
    after, _ = replay_learner.learn_from(setup, step, state, None, jnp.bool_(True), key, ())
    each = [float(jax.random.uniform(own)) for own in jax.random.split(key, 3)]
    assert len(set(each)) == 3
    np.testing.assert_allclose(after.actor, sum(each), rtol=1e-6)
