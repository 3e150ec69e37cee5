"""Numbers that are none stop training, or are skipped; neither ever becomes a checkpoint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.learner import TrainState
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.toml import load
from jaxrl.envs import make_engine
from jaxrl.errors import NotFiniteError
from jaxrl.networks.core import first_observation
from jaxrl.ops import batches
from jaxrl.program import nonfinite
from jaxrl.program.program import make_program
from jaxrl.runs import checkpoint_files
from jaxrl.runs import metrics as run_metrics
from jaxrl.runs.metrics import read
from jaxrl.runtime.mesh import REPLICATED, make_mesh, map_over_devices
from jaxrl.training import train
from jaxrl.types import AXIS, ActorState, Agent, AgentState, Count, EnvSpec, Mean, Trajectory
from tests.agents.test_c51 import SPEC, trajectory
from tests.config.test_configs import FILES, few_environments
from tests.conftest import catch_config
from tests.survival import SMALL

NAN, INF = float("nan"), float("inf")


def test_each_quantity_is_named():
    state = AgentState(
        ActorState({"Dense_0": {"kernel": jnp.array([1.0, NAN])}}, (), jnp.int32(0)),
        {"nu": jnp.array([INF]), "count": jnp.int32(3)},
        (),
    )
    assert nonfinite.faults(state) == [
        "parameters Dense_0.kernel have nan",
        "optimizer nu have infinity",
    ]
    learned = TrainState({"nu": jnp.array([NAN])}, {"w": jnp.array([INF])})
    assert nonfinite.faults(state._replace(train_state=learned))[1:] == [
        "optimizer nu have nan",
        "target_params w have infinity",
    ]
    means = {"loss/value": NAN, "loss/policy": 1.0, "loss/none": None, "policy/ratio": INF}
    assert nonfinite.lost(means) == ["loss/value is nan"]


@pytest.mark.parametrize("poison", [NAN, INF])
@pytest.mark.slow
def test_a_skipped_update_leaves_no_trace_but_in_the_count(poison):
    """Parameters 1, 2, 3, poison: after the fourth update they are 3 still."""

    def update(state, trajectory, key):
        params = {"w": jnp.where(state.actor.updates == 3, poison, state.actor.params["w"] + 1)}
        actor = ActorState(params, (), state.actor.updates + 1)
        metrics = {"loss/value": params["w"], "loss/some": Mean(params["w"], jnp.float32(1))}
        return AgentState(actor, {"m": params["w"] * 2}, {"seen": trajectory}), metrics

    agent = nonfinite.guarded(Agent(None, None, update, None, 1), skip=True)
    state = AgentState(ActorState({"w": jnp.zeros(())}, (), jnp.int32(0)), {"m": jnp.zeros(())}, ())
    mesh = make_mesh(1)
    spec = REPLICATED
    step = map_over_devices(agent.update, mesh, (spec, spec, spec), (spec, spec))
    sums = None
    for number in range(5):
        state, new = step(state, jnp.float32(number), jax.random.key(0))
        sums = new if sums is None else jax.tree.map(jnp.add, sums, new)
        assert state.memory["seen"] == number  # what was played is remembered
    assert state.actor.updates == 5
    assert state.actor.params["w"] == 4
    assert state.train_state["m"] == 8
    means = run_metrics.means(sums, 5)
    assert means[nonfinite.SKIPPED] == 1
    assert means["loss/value"] == means["loss/some"] == (1 + 2 + 3 + 4) / 4


def test_counts_are_sums():
    assert run_metrics.means({"n": Count(np.float32(3))}, 10) == {"n": 3.0}


def test_devices_skip_together():
    """One device's loss is not a number: both keep their parameters, which stay the same."""

    def update(state, trajectory, key):
        broken = jax.lax.axis_index("device") == 1
        actor = ActorState({"w": state.actor.params["w"] + 1}, (), state.actor.updates + 1)
        loss = jnp.where(broken, NAN, 1.0)
        return AgentState(actor, (), ()), {"loss/value": loss}

    agent = nonfinite.guarded(Agent(None, None, update, None, 1), skip=True)
    state = AgentState(ActorState({"w": jnp.zeros(())}, (), jnp.int32(0)), (), ())
    spec = REPLICATED
    mesh = make_mesh(2)
    step = map_over_devices(agent.update, mesh, (spec, spec, spec), (spec, spec))
    state, sums = jax.jit(step)(state, jnp.float32(0), jax.random.key(0))
    assert [float(s.data) for s in state.actor.params["w"].addressable_shards] == [0, 0]
    assert float(sums[nonfinite.SKIPPED].total) == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES)
def test_every_recipe_can_skip_updates(path):
    """Also one with a constant learning rate, which is no array by itself."""
    config = few_environments(load(path)).replaced(game="catch", parallel={"num_learners": 0})
    shape, size = config.env.frame_shape, 3  # frames of a stack, of which other tests have four
    spec = EnvSpec(4, 3, ("LEFT", "NOOP", "RIGHT"), "catch", shape, size)
    agent = nonfinite.guarded(make_agent(resolve(config), spec), skip=True)
    length = agent.rollout_length
    stacks = jax.ShapeDtypeStruct((length + 1, 4, *shape, size), jnp.uint8)

    def turn(key, stacks):
        state = agent.init(key)
        keys = jax.random.split(key, 4)
        observation = jax.vmap(lambda stack: first_observation(stack, agent.core))(stacks)
        before = batches.at(observation, slice(-1))
        extras = jax.vmap(lambda o: agent.act(state.actor, o, keys)[1])(before)
        rows = jnp.zeros((length, 4))
        played = Trajectory(observation, rows.astype(int), rows, rows, rows > 0, extras)
        return agent.update(state, played, key)

    mapped = jax.vmap(turn, in_axes=(None, None), axis_name=AXIS, axis_size=1)
    _, metrics = jax.eval_shape(mapped, jax.random.key(0), stacks)
    assert metrics[nonfinite.SKIPPED].total.shape == (1,)


@pytest.mark.parametrize("recipe", ["nstep_q", pytest.param("dqn", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_skipped_update_still_copies_the_target(recipe):
    """The rewards of update 2 are not finite, and the target is copied in every second update."""
    agent = {"target_update_interval": 32, "rollout_length": 4, "epsilon_spread": False}
    if recipe == "dqn":
        agent |= {"learning_starts": 0, "batch_size": 32}
    config = catch_config(recipe, num_envs=4, agent=agent)
    guarded = nonfinite.guarded(make_agent(resolve(config), SPEC), skip=True)
    state = jax.tree.map(lambda x: x[None], guarded.init(jax.random.key(0)))
    mapped = jax.jit(jax.vmap(guarded.update, in_axes=(0, 0, None), axis_name=AXIS))
    params, targets, skipped = [], [], []
    for i in range(3):
        data = jax.tree.map(lambda x: x[None], trajectory(i))
        if i == 2:
            data = data._replace(reward=jnp.full_like(data.reward, NAN))
        params.append(state.actor.params)
        state, sums = mapped(state, data, jax.random.key(i))
        targets.append(state.train_state.target_params)
        skipped.append(float(sums[nonfinite.SKIPPED].total[0]))
    assert skipped == [0, 0, 1]
    assert differing(state.actor.params, params[2]) == 0
    assert differing(targets[1], params[0]) == 0
    assert differing(targets[2], params[2]) == 0  # by the update that was left out
    assert differing(params[2], params[0]) > 0


def differing(a, b):
    """How many arrays are not the same."""
    same = jax.tree.map(lambda x, y: bool((x == y).all()), a, b)
    return sum(not x for x in jax.tree.leaves(same))


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_training_that_goes_wrong_stops_and_says_why(tmp_path, capsys):
    run_dir = tmp_path / "x"
    arguments = [*SMALL, "--log.interval", "200", "--total-steps", "4000"]
    wild = ["--optimizer.learning-rate", "1e18", "--optimizer.max-grad-norm", "0"]
    status = main(["train", *arguments, *wild, "--run-dir", str(run_dir)])
    assert status == NotFiniteError.status
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("jaxrl: training went wrong by step ")
    assert "loss/" in line or "parameters" in line
    assert "--override optimizer.on_nonfinite=skip" in line
    assert checkpoint_files.steps(run_dir) == []
    assert main(["train", *arguments, *wild, "--optimizer.on-nonfinite", "skip",
                 "--run-dir", str(tmp_path / "y")]) == NotFiniteError.status  # fmt: skip
    assert "were skipped: nothing is learned" in capsys.readouterr().err
    assert checkpoint_files.steps(tmp_path / "y") == []


def poisoned(make_agent, first, last):
    """Agents whose parameters and losses are nan after the updates first..last."""

    def make(plan, spec):
        agent = make_agent(plan, spec)

        def update(state, trajectory, key):
            new, sums = agent.update(state, trajectory, key)
            bad = (state.actor.updates >= first) & (state.actor.updates <= last)
            params = jax.tree.map(lambda x: jnp.where(bad, NAN, x), new.actor.params)
            actor = new.actor._replace(params=params)
            return new._replace(actor=actor), sums

        return agent._replace(update=update)

    return make


@pytest.mark.slow
def test_poisoned_parameters_are_found_before_a_checkpoint(tmp_path, monkeypatch, capsys):
    """Losses are still numbers when the last update of an interval breaks the parameters."""
    monkeypatch.setattr(train, "make_agent", poisoned(train.make_agent, 19, 19))
    run_dir = tmp_path / "x"
    arguments = [*SMALL, "--log.interval", "200", "--checkpoint.interval", "200"]
    arguments += ["--total-steps", "1000", "--run-dir", str(run_dir)]
    assert main(["train", *arguments]) == NotFiniteError.status
    line = capsys.readouterr().err.splitlines()[-1]
    assert "went wrong by step 400: parameters " in line
    assert ".kernel have nan, " in line
    assert " more; " in line
    assert "the newest checkpoint, of step 200, is from before" in line
    assert checkpoint_files.survey(run_dir) == checkpoint_files.Survey([200], {})
    assert [row["step"] for row in read(run_dir)] == [200]


@pytest.mark.slow
def test_skipped_updates_are_counted_and_training_ends_well(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "make_agent", poisoned(train.make_agent, 12, 14))
    run_dir = tmp_path / "x"
    arguments = [*SMALL, "--log.interval", "200", "--total-steps", "600"]
    assert (
        main(["train", *arguments, "--optimizer.on-nonfinite", "skip", "--run-dir", str(run_dir)])
        == 0
    )
    rows = read(run_dir)
    assert [row[nonfinite.SKIPPED] for row in rows] == [0, 3, 0]
    assert all(np.isfinite(row["loss/gradient_norm"]) for row in rows)


@pytest.mark.slow
def test_the_guard_changes_nothing_where_all_is_finite():
    """The same parameters with and without it."""
    ends = []
    for choice in ("stop", "skip"):
        config = catch_config(num_envs=4, optimizer={"on_nonfinite": choice})
        engine = make_engine(config, 4)
        agent = train.make_agent(resolve(config), engine.spec)
        program = make_program(resolve(config), agent, (engine,), make_mesh(1))
        ends.append(program.run(program.init(), np.int32(3)).agent.actor.params)
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
