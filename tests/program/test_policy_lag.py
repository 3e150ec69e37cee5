import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.config.validation import check
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.program.policy_lag import delayed
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import ActorState, Agent, AgentState
from tests.conftest import catch_config


def counting():
    """An agent whose parameters are the number of its updates; so are its actions."""

    def act(actor, observation, key):
        return jnp.broadcast_to(actor.params.astype(jnp.int32), (len(key),)), ()

    def update(state, trajectory, key):
        seen = {"learned_from": state.actor.params, "learner": state.train_state}
        actor = ActorState(state.actor.params + 1, (), state.actor.updates + 1)
        return AgentState(actor, state.train_state + 10, state.memory), seen

    init = lambda key: AgentState(ActorState(jnp.float32(0), (), jnp.int32(0)), 0, ())  # noqa: E731
    return Agent(init, act, update, None, 1)


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_what_acts_is_so_many_updates_old_and_what_learns_is_the_newest(lag):
    agent = delayed(counting(), lag)
    state = agent.init(jax.random.key(0))
    for updates in range(8):
        action, _ = agent.act(state.actor, None, jax.random.split(jax.random.key(0), 3))
        assert action.tolist() == [max(0, updates - lag)] * 3
        state, metrics = agent.update(state, None, None)
        assert float(metrics["learned_from"]) == updates
        assert int(metrics["learner"]) == 10 * updates


def test_no_lag_is_the_agent_itself():
    agent = counting()
    assert delayed(agent, 0) is agent


def run(updates, **changes):
    config = catch_config("a2c_fast", num_envs=8, **changes)
    engine = make_engine(config, 8)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.run(program.init(), np.int32(updates))
    return jax.device_get((state.agent.actor.params, state.agent.train_state))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["strict", "overlapped"])
def test_acting_parameters_of_a_program_lag(order):
    """The first updates do not depend on the lag: all act by the parameters of the start."""
    first, _ = run(1, parallel={"order": order})
    acts, (_, waiting) = run(3, parallel={"order": order, "lag": 3})
    initial, _ = run(0, parallel={"order": order})
    for a, b in zip(jax.tree.leaves(acts), jax.tree.leaves(initial), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(jax.tree.leaves(waiting.params), jax.tree.leaves(first), strict=True):
        np.testing.assert_array_equal(a[0], b)
        assert (a[0] != a[1]).any()


def test_learners_have_no_lag():
    with pytest.raises(UserError, match="lag: separate learners have none"):
        check(catch_config(parallel={"lag": 2, "sync_every": 1}))
