"""The rollout against a plain Python loop that does the same by hand, in both orders."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine, make_engines
from jaxrl.program import episode_statistics, observations
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import AXIS, TimeStep, Trajectory
from tests.conftest import catch_config, planned


def build(**changes):
    config = catch_config(num_envs=4, **changes)
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    return agent, engine, make_program(resolve(config), agent, (engine,), make_mesh(1))


def timestep_of(reset, game_over, frame=7):
    no = jnp.zeros(1, bool)
    return TimeStep(
        jnp.full((1, 84, 84), frame, jnp.uint8), jnp.zeros(1), jnp.zeros(1), no, no,
        jnp.array([game_over]), jnp.array([reset]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ended_game", "reset", "expected"),
    [
        *[(True, True, [7, 7, 7, 7]), (False, True, [2, 3, 4, 7]), (False, False, [2, 3, 4, 7])],
        *[(True, True, [7, 7, 7]), (False, True, [2, 3, 7]), (False, False, [7])],
    ],
)
def test_stack_is_refilled_by_a_new_game_and_shifted_otherwise(ended_game, reset, expected):
    size = len(expected)
    stack = jnp.broadcast_to(jnp.arange(1, size + 1, dtype=jnp.uint8), (1, 84, 84, size))
    after = observations.stack_frames(
        stack, timestep_of(False, ended_game), timestep_of(reset, False)
    )
    np.testing.assert_array_equal(after[0, 0, 0], expected)


@pytest.mark.parametrize(("reset", "expected"), [(True, [7, 7, 7, 7]), (False, [2, 3, 4, 7])])
def test_a_game_that_ends_during_a_reset_refills_the_stack(reset, expected):
    """Where the reset after a lost life ended it; else the last frame of a game joins the stack."""
    stack = jnp.broadcast_to(jnp.arange(1, 5, dtype=jnp.uint8), (1, 84, 84, 4))
    after = observations.stack_frames(stack, timestep_of(False, False), timestep_of(reset, True))
    np.testing.assert_array_equal(after[0, 0, 0], expected)


def by_hand(agent, engine, state, order, turns):
    """One environment step, one update at a time, on the host.

    Overlapped, an action has been chosen before the update that it is answered after.
    """
    act, send, recv = jax.jit(agent.act), jax.jit(engine.send), jax.jit(engine.recv)
    lead = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
    update = jax.jit(
        lambda *a: jax.tree.map(
            lambda x: x[0],
            jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS)(
                lead(a[0]), lead(a[1]), a[2]
            ),
        )
    )
    learner, (games,), key = state.agent, state.games, state.key

    def choose():
        keys = jax.vmap(jax.random.split)(games.keys)
        choice = act(learner.actor, games.observation, keys[:, 0])
        return games._replace(env=send(games.env, choice.action), keys=keys[:, 1]), choice

    played, choice = [], games.sent
    for _ in range(turns):
        key, update_key = jax.random.split(key)
        rows = []
        for _ in range(agent.rollout_length):
            if order == "strict":
                games, choice = choose()
            env, timestep = recv(games.env)
            rows.append(
                Trajectory(
                    games.observation,
                    choice[0],
                    timestep.reward,
                    1.0 - timestep.terminated,
                    ~timestep.reset,
                    choice[1],
                )
            )
            stack = observations.stack_frames(games.observation, games.timestep, timestep)
            games = games._replace(env=env, timestep=timestep, observation=stack)
            if order == "overlapped":
                games, choice = choose()
        trajectory = jax.tree.map(lambda *x: jnp.stack(x), *rows)
        trajectory = trajectory._replace(
            observation=jnp.concatenate([trajectory.observation, games.observation[None]])
        )
        learner, _ = update(learner, trajectory, update_key)
        played.append(trajectory)
    return learner, games, choice, played


@pytest.mark.slow
@pytest.mark.rotating(1)
@pytest.mark.parametrize("order", ["strict", "overlapped"])
def test_the_compiled_program_equals_the_loop_by_hand(order):
    agent, engine, program = build(parallel={"order": order})
    state = program.init()
    copy = jax.tree.map(jnp.copy, state)
    learner, games, choice, played = by_hand(agent, engine, copy, order, turns=6)
    after = program.run(state, np.int32(6))
    np.testing.assert_array_equal(after.games[0].observation, games.observation)
    np.testing.assert_array_equal(after.games[0].timestep.reset, games.timestep.reset)
    assert not np.all([t.valid for t in played])
    ours, theirs = jax.tree.leaves(after.agent.actor.params), jax.tree.leaves(learner.actor.params)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    if order == "overlapped":
        np.testing.assert_array_equal(after.games[0].sent.action, choice[0])
    else:
        assert after.games[0].sent == ()


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize("order", ["strict", "overlapped"])
def test_two_groups_play_and_learn_what_one_does(order):
    ends = []
    for groups in (1, 2):
        config = catch_config(num_envs=8, parallel={"order": order, "groups": groups})
        # Rounding would grow where a running mean of squares begins at 0.
        optimizer = dataclasses.replace(config.optimizer, initial_scale=1.0)
        config = dataclasses.replace(config, optimizer=optimizer)
        engines = make_engines(planned(config))
        agent_ = make_agent(resolve(config), engines[0].spec._replace(num_envs=8))
        program = make_program(resolve(config), agent_, engines, make_mesh(1))
        ends.append(program.run(program.init(), np.int32(12)))
    one, two = ends
    assert len(two.games) == 2
    for a, b in zip(jax.tree.leaves(one.agent), jax.tree.leaves(two.agent), strict=True):
        # float32: a smaller batch of images is multiplied in another order.
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(
        one.games[0].observation, np.concatenate([g.observation for g in two.games])
    )
    counts = [episode_statistics.summarize(*(g.episodes for g in end.games)) for end in ends]
    assert counts[0] == counts[1]
    assert counts[0].episodes > 0


@pytest.mark.slow
def test_two_calls_equal_one_and_runs_repeat_bit_for_bit():
    _, _, program = build()
    once = program.run(program.init(), np.int32(8))
    twice = program.run(program.run(program.init(), np.int32(3)), np.int32(5))
    for a, b in zip(jax.tree.leaves(once.agent), jax.tree.leaves(twice.agent), strict=True):
        np.testing.assert_array_equal(a, b)
    jax.tree.map(np.testing.assert_array_equal, once.metrics, twice.metrics)


@pytest.mark.slow
def test_the_compiled_program_sends_before_it_updates():
    """XLA's scheduled program is a list in the order of execution; EnvPool's calls stand in it."""
    config = catch_config(
        "vtrace_cpu",
        game="pong",
        num_envs=4,
        env={"random_start_steps": 0},
        agent={"num_minibatches": 2, "micro_batch": 1},
    )
    assert config.parallel.order == "overlapped"
    engine = make_engine(config, 4)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    text = program.run.lower(program.init(), np.int32(1)).compile().as_text()
    engine.close()
    lines = text.splitlines()

    def places(pattern):
        return [i for i, line in enumerate(lines) if re.search(pattern, line)]

    # All in the body of the one loop over updates.
    (recv,) = places(r"_recv\".*op_name=\"jit\(run\)/while/body/jit\(turn\)/ffi_call")
    (send,) = places(r"_send\".*op_name=\"jit\(run\)/while/body/jit\(turn\)/ffi_call")
    (gradients,) = places(
        r" while\(.*op_name=\"jit\(run\)/while/body/jit\(turn\)/while/body/\w+/while\""
    )
    reduced = max(places(r" all-reduce\("))
    assert recv < send < gradients < reduced


def recorded(engines, agent):
    """Engines and agent, and what happens in the order of execution."""
    events = []

    def note(what, value):
        """`value`, after `what` is noted; by data alone, as all that orders the program."""

        def call(x):
            events.append(what)
            return x

        return io_callback(call, jax.ShapeDtypeStruct(value.shape, value.dtype), value)

    def noted(number, engine):
        def send(env, action):
            return engine.send(env._replace(paddle=note(f"send {number}", env.paddle)), action)

        def recv(env):
            return engine.recv(env._replace(paddle=note(f"receive {number}", env.paddle)))

        return engine._replace(send=send, recv=recv)

    def update(state, trajectory, key):
        state, metrics = agent.update(
            state, trajectory._replace(observation=note("update", trajectory.observation)), key
        )
        leaves, structure = jax.tree.flatten(state.actor.params)
        params = jax.tree.unflatten(structure, [note("updated", leaves[0]), *leaves[1:]])
        return state._replace(actor=state.actor._replace(params=params)), metrics

    engines = tuple(noted(number, engine) for number, engine in enumerate(engines))
    return engines, agent._replace(update=update), events


def order_of_events(recipe, groups, turns, **changes):
    config = catch_config(recipe, num_envs=4, parallel={"groups": groups}, **changes)
    engines = make_engines(planned(config))
    agent = make_agent(resolve(config), engines[0].spec._replace(num_envs=4))
    engines, agent, events = recorded(engines, agent)
    program = make_program(resolve(config), agent, engines, make_mesh(1))
    jax.block_until_ready(program.run(program.init(), np.int32(turns)))
    return events


@pytest.mark.parametrize("groups", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
@pytest.mark.rotating(2)
def test_updates_run_while_all_environments_step(groups):
    events = order_of_events("vtrace_cpu", groups, 3, agent={"num_minibatches": 2})
    each = [f"{what} {n}" for n in range(groups) for what in ("receive", "send")]
    turn = [*each, "update", "updated"]
    assert events == [*(f"send {n}" for n in range(groups)), *turn, *turn, *turn]


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2])
def test_of_two_groups_one_always_steps_while_the_other_is_answered(length):
    events = order_of_events("a2c_fast", 2, 2, agent={"rollout_length": length})
    between = ["receive 0", "send 0", "receive 1", "send 1"] * (length - 1)
    turn = ["send 0", "send 1", *between, "receive 0", "receive 1", "update", "updated"]
    assert events == [*turn, *turn]
