"""Policies as scripts use them: one observation or a batch, on the host."""

import jax
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation import evaluate
from jaxrl.evaluation.policy import Policy, load_policy
from jaxrl.program import rollout
from jaxrl.runs import evaluation_record
from tests.conftest import large_catch_config


def untrained(recipe, **changes):
    config = large_catch_config(recipe, **changes)
    agent = make_agent(resolve(config), make_engine(config, 1).spec)
    return Policy(config, agent.init(jax.random.key(0)).actor, 0)


@pytest.fixture(scope="module")
def observations():
    return np.random.default_rng(0).integers(0, 256, (5, 84, 84, 4), np.uint8)


@pytest.mark.parametrize("recipe", ["a2c_fast", pytest.param("dqn", marks=pytest.mark.slow)])
def test_a_policy_sees_as_many_frames_as_in_training(recipe, observations):
    policy = untrained(recipe, env={"stack": 2})
    assert policy.value(observations[..., :2]).shape == (5,)
    with pytest.raises(UserError, match=r"not uint8\[84, 84, 2\]"):
        policy.value(observations)


def test_one_observation_is_a_batch_of_one(trained, observations):
    policy = load_policy(str(trained))
    assert policy.step == 400
    assert policy.action_names == ("LEFT", "NOOP", "RIGHT")
    for method in (policy.probabilities, policy.value):
        batch = method(observations)
        assert len(batch) == 5
        np.testing.assert_allclose(method(observations[2]), batch[2], rtol=1e-5)
    assert policy.value(observations[0]).shape == ()
    np.testing.assert_allclose(policy.probabilities(observations).sum(1), 1, rtol=1e-5)


@pytest.mark.slow
def test_actions_are_drawn_by_their_probabilities(trained, observations):
    """Standard deviation of a share of 4,000 draws: below 0.008."""
    policy = load_policy(trained)
    many = np.repeat(observations[:1], 4000, 0)
    actions = policy.act(many, seed=3)
    np.testing.assert_array_equal(actions, policy.act(many, seed=3))
    assert (actions != policy.act(many, seed=4)).any()
    shares = np.bincount(actions, minlength=3) / 4000
    np.testing.assert_allclose(shares, policy.probabilities(observations[0]), atol=0.04)
    assert policy.act(observations[0], seed=0).shape == ()


@pytest.mark.slow
def test_distributions_of_returns(observations):
    policy = untrained("c51_fast")
    returns, probabilities = policy.distribution(observations)
    atoms = policy.config.agent.num_atoms
    assert returns.shape == (atoms,)
    assert probabilities.shape == (5, 3, atoms)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    best = (probabilities @ returns).max(-1)
    np.testing.assert_allclose(policy.value(observations), best, rtol=1e-4, atol=1e-5)
    assert policy.distribution(observations[0]).probabilities.shape == (3, atoms)
    with pytest.raises(UserError, match="a2c learns none; c51 does"):
        untrained("a2c_fast").distribution(observations)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros((84, 84, 4), np.float32), r"observation is float32\[84, 84, 4\], not uint8"),
        (np.zeros((4, 84, 84), np.uint8), "np.moveaxis"),
        (np.zeros((2, 4, 84, 84), np.uint8), "np.moveaxis"),
        (np.zeros((84, 84), np.uint8), "or a batch of them"),
    ],
)
def test_other_observations_are_refused(trained, observation, message):
    with pytest.raises(UserError, match=message):
        load_policy(trained).act(observation, 0)


def test_evaluations_that_nobody_can_play_are_refused(trained):
    policy = load_policy(trained)
    for protocol in ("nop", ""):
        with pytest.raises(UserError, match=f"protocol '{protocol}': must be one of noop, sticky"):
            policy.evaluate(protocol)
    with pytest.raises(UserError, match="episodes = 0: must be at least 1"):
        policy.evaluate("noop", episodes=0)


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_its_evaluation_is_that_of_the_command(trained):
    config, actor, step = evaluate.load_actor(trained, None)
    expected = evaluate.evaluate(config, actor, "noop", 4, 7, step)
    assert load_policy(trained).evaluate(episodes=4, seed=7) == expected
    assert evaluation_record.protocol_of(config) == "noop"


@pytest.mark.slow
def test_a_policy_with_a_core_remembers_what_its_state_saw():
    """Played by hand in the games of an evaluation, it acts as the rollout does."""
    network = {"core": "gru", "core_units": 8, "torso": "nips"}
    policy = untrained("a2c_fast", network=network, env={"random_start_steps": 0})
    agent, _ = policy._made
    engine = make_engine(policy.config, 2)
    state = evaluate.start_games(agent, engine, 0)
    recalled = policy.new_state(2)
    assert policy.remembers
    for _ in range(9):  # beyond the end of a game
        seen = state.observation
        expected = agent.predict(policy.actor, seen)
        np.testing.assert_allclose(policy.value(seen.stack, recalled), expected.value, atol=1e-5)
        policy.act(np.asarray(seen.stack), 0, recalled)
        before = state.timestep
        state, row = rollout.step(agent, engine, policy.actor, state)
        # The rollout has drawn by other keys: the memory is told what was done.
        recalled.steps = recalled.steps._replace(last_action=row.action)
        recalled.observe(row.reward, state.timestep.reset & before.game_over)
    policy.act(np.asarray(seen.stack), 0, recalled)
    with pytest.raises(UserError, match=r"act: call state.observe\(reward, new_game\)"):
        policy.act(np.asarray(seen.stack), 0, recalled)
    with pytest.raises(UserError, match=r"observe: \(3,\) values for a state of 2 games"):
        recalled.observe(np.zeros(3), False)
    other = untrained("a2c_fast", network=network | {"core_units": 9}).new_state(2)
    with pytest.raises(UserError, match="is not one of this policy's"):
        policy.value(np.asarray(seen.stack), other)
    with pytest.raises(UserError, match="this policy is not recurrent; leave it out"):
        untrained("a2c_fast").value(np.zeros((2, 84, 84, 4), np.uint8), other)
    assert len(repr(other)) < 200
    with pytest.raises(UserError, match=r"state is missing.*new_state\(2\)"):
        policy.act(np.asarray(seen.stack), 0)
    with pytest.raises(UserError, match=r"state is of 2 games, not 1.*new_state\(1\)"):
        policy.value(np.asarray(seen.stack)[0], recalled)
    with pytest.raises(UserError, match="this policy is not recurrent"):
        untrained("a2c_fast").new_state()
