"""The rollout against a plain Python loop that does the same by hand, in both orders."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import distribute, rollout
from jaxrl.agents import make_agent
from jaxrl.envs import make_engine
from jaxrl.program import make_program, steps_played
from jaxrl.types import AXIS, TimeStep, Trajectory
from tests.conftest import catch_config


def build(**changes):
    config = catch_config(num_envs=4, **changes)
    engine = make_engine(config, 4)
    agent = make_agent(config, engine.spec)
    return agent, engine, make_program(config, agent, engine, distribute.make_mesh(1))


def timestep_of(reset, game_over, frame=7):
    no = jnp.zeros(1, bool)
    return TimeStep(
        jnp.full((1, 84, 84), frame, jnp.uint8), jnp.zeros(1), jnp.zeros(1), no, no,
        jnp.array([game_over]), jnp.array([reset]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ended_game", "reset", "expected"),
    [(True, True, [7, 7, 7, 7]), (False, True, [2, 3, 4, 7]), (False, False, [2, 3, 4, 7])],
)
def test_stack_is_refilled_by_a_new_game_and_shifted_otherwise(ended_game, reset, expected):
    stack = jnp.broadcast_to(jnp.arange(1, 5, dtype=jnp.uint8), (1, 84, 84, 4))
    after = rollout.stack_frames(stack, timestep_of(False, ended_game), timestep_of(reset, False))
    np.testing.assert_array_equal(after[0, 0, 0], expected)


def by_hand(agent, engine, state, order, turns):
    """One environment step, one update at a time, on the host."""
    act = jax.jit(agent.act)
    answer = jax.jit(lambda env, action: engine.recv(engine.send(env, action)))
    lead = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
    update = jax.jit(
        lambda *a: jax.tree.map(
            lambda x: x[0],
            jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS)(
                lead(a[0]), lead(a[1]), a[2]
            ),
        )
    )
    learner, games, key, pending = state.agent, state.rollout, state.key, state.pending
    played = []
    for _ in range(turns):
        key, update_key = jax.random.split(key)
        rows = []
        for step in range(agent.rollout_length):
            keys = jax.vmap(jax.random.split)(games.keys)
            action, extras = act(learner.actor, games.observation, keys[:, 0])
            if order == "overlapped" and step == 0:
                # The action is chosen; the update comes before its answer.
                learner, _ = update(learner, pending, update_key)
            env, timestep = answer(games.env, action)
            stack = rollout.stack_frames(games.observation, games.timestep, timestep)
            rows.append(
                Trajectory(
                    games.observation,
                    action,
                    timestep.reward,
                    1.0 - timestep.terminated,
                    ~timestep.reset,
                    extras,
                )
            )
            games = games._replace(env=env, timestep=timestep, observation=stack, keys=keys[:, 1])
        trajectory = jax.tree.map(lambda *x: jnp.stack(x), *rows)
        trajectory = trajectory._replace(
            observation=jnp.concatenate([trajectory.observation, games.observation[None]])
        )
        if order == "strict":
            learner, _ = update(learner, trajectory, update_key)
        pending = trajectory
        played.append(trajectory)
    return learner, games, played


@pytest.mark.parametrize("order", ["strict", "overlapped"])
def test_the_compiled_program_equals_the_loop_by_hand(order):
    agent, engine, program = build(order=order)
    state = program.init()
    copy = jax.tree.map(jnp.copy, state)
    learner, games, played = by_hand(agent, engine, copy, order, turns=6)
    after = program.run(state, np.int32(6))
    np.testing.assert_array_equal(after.rollout.observation, games.observation)
    np.testing.assert_array_equal(after.rollout.timestep.reset, games.timestep.reset)
    assert not np.all([t.valid for t in played])
    ours, theirs = jax.tree.leaves(after.agent.actor.params), jax.tree.leaves(learner.actor.params)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    if order == "overlapped":
        np.testing.assert_array_equal(after.pending.action, played[-1].action)


def test_steps_count_what_was_played_before_the_first_update():
    assert steps_played(build(order="strict")[2], 3) == 3 * 20
    assert steps_played(build(order="overlapped")[2], 3) == 4 * 20


def test_two_calls_equal_one_and_runs_repeat_bit_for_bit():
    _, _, program = build()
    once = program.run(program.init(), np.int32(8))
    twice = program.run(program.run(program.init(), np.int32(3)), np.int32(5))
    for a, b in zip(jax.tree.leaves(once.agent), jax.tree.leaves(twice.agent), strict=True):
        np.testing.assert_array_equal(a, b)
    jax.tree.map(np.testing.assert_array_equal, once.metrics, twice.metrics)


def test_the_compiled_program_sends_then_updates_then_receives():
    # XLA's scheduled program is a list in the order of execution; EnvPool's calls stand in it.
    config = catch_config(game="pong", num_envs=4, order="overlapped", random_start_steps=0)
    engine = make_engine(config, 4)
    agent = make_agent(config, engine.spec)
    program = make_program(config, agent, engine, distribute.make_mesh(1))
    text = program.run.lower(program.init(), np.int32(1)).compile().as_text()
    engine.close()
    lines = text.splitlines()

    def places(pattern):
        return [i for i, line in enumerate(lines) if re.search(pattern, line)]

    # The step whose answer the update does not wait for stands in the outer loop.
    (send,) = places(r"_send\".*op_name=\"jit\(run\)/while/body/ffi_call")
    (recv,) = places(r"_recv\".*op_name=\"jit\(run\)/while/body/ffi_call")
    mean_of_gradients = max(places(r" all-reduce\("))
    gradient = [i for i in places(r" dot\(.*transpose\(jvp") if send - 1000 < i < recv + 1000]
    assert send < mean_of_gradients < recv
    assert gradient
    assert send < min(gradient) <= max(gradient) < mean_of_gradients
