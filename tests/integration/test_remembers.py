"""Agents with a core solve the game whose ball must be remembered; without one none can."""

import jax
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.evaluation import evaluate
from jaxrl.program import episode_statistics
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import catch_config

CHANCE = -5 / 7  # one column of seven is caught
# Inside the root, eps outweighs the squared gradients.
FAST = {
    "learning_rate": 1.3e-3,
    "eps_inside_root": False,
    "initial_scale": 0.0,
    "schedule": "constant",
}
PPO = {"rollout_length": 16, "num_minibatches": 2}


def score(recipe, steps, network=(), **changes):
    """Returns the mean of 200 games after at most `steps`; of chance, the deviation is 0.05."""
    config = catch_config(
        recipe,
        game="catch_memory",
        num_envs=16,
        total_steps=steps,
        env={"frame_height": 36, "frame_width": 36},
        network={"torso": "nips", "core_units": 32, **dict(network)},
        **changes,
    )
    plan = resolve(config)
    engine = make_engine(config, plan.envs_per_device)
    agent = make_agent(plan, engine.spec._replace(num_envs=plan.envs_per_learner))
    program = make_program(plan, agent, (engine,), make_mesh(1))
    state = program.init()
    for _ in range(20):
        state = program.run(state, np.int32(-(-plan.num_updates // 20)))
        if (episode_statistics.summarize(state.games[0].episodes).return_mean or 0) > 0.8:
            break
    actor = jax.device_put(jax.device_get(state.agent.actor), jax.local_devices()[0])
    return evaluate.evaluate(config, actor, "noop", 200).mean


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
@pytest.mark.parametrize(
    ("recipe", "steps", "changes"),
    [
        pytest.param("a2c_fast", 200_000, {"network": {"core": "lstm"}}, id="a2c"),
        pytest.param("a3c_lstm", 400_000, {"optimizer": FAST, "parallel": {"num_learners": 2}},
                     id="a3c"),
        pytest.param("ppo_lstm", 100_000,
                     {"agent": PPO, "optimizer": {"learning_rate": 1e-3, "schedule": "constant"}},
                     id="ppo"),
        # With an entropy of 0.01 it stops to explore, and may never learn some of the columns.
        pytest.param("vtrace_lstm_cpu", 100_000,
                     {"agent": {"num_minibatches": 2, "burn_in": 4, "entropy_coef": 0.03,
                                "entropy_schedule": "constant"},
                      "network": {"core": "gru"},
                      "optimizer": {"learning_rate": 1e-3, "schedule": "constant"}},
                     id="vtrace-gru-burn-in"),
        pytest.param("impala_lstm", 200_000,
                     {"optimizer": {"learning_rate": 2e-3, "max_grad_norm": 0.5}}, id="impala"),
    ],
)  # fmt: skip
def test_an_agent_with_a_core_remembers(recipe, steps, changes):
    assert score(recipe, steps, **changes) > 0.5  # 0.6 to 1, by the rounding of the machine


@pytest.mark.slow
@pytest.mark.rotating(6, group="learning")
@pytest.mark.optimized
def test_an_agent_without_one_catches_no_more_than_chance():
    assert score("a2c_fast", 60_000) < CHANCE + 0.2
