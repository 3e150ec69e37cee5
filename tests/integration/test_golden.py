"""Runs that an older jaxrl has left must load in this one, and go on.

golden/ holds one of each algorithm on Catch, written by `python -m tests.integration.test_golden`
when format 6 was made, from which on every later version reads what an earlier one wrote. Every
number in them is one of a few, so that they are small. Do not write them anew: where this test
fails, the format has changed, and needs another number and a way to read this one.
"""

import dataclasses
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.program.program import make_program
from jaxrl.runs import checkpoint, checkpoint_files, metrics
from jaxrl.runs.checkpoint_files import Progress
from jaxrl.runs.directory import load_config, write_config
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import LoopState
from tests.conftest import catch_config
from tests.runs.test_checkpoint import tree
from tests.survival import check_metrics

GOLDEN = Path(__file__).parent / "golden"
AGENTS = {
    "a2c_fast": {},
    "ppo_pong": {"rollout_length": 10, "num_minibatches": 2},
    "vtrace_cpu": {"num_minibatches": 2, "window": 5},
    "c51_fast": {"rollout_length": 2, "learning_starts": 300, "replay_capacity": 640},
}
STEP = 400


def config_of(recipe: str) -> Config:
    config = catch_config(
        recipe,
        AGENTS[recipe],
        num_envs=4,
        total_steps=800,
        run_dir=recipe,
        log={"interval": 200},
        checkpoint={"interval": 400},
        evaluation={"episodes": 0},
    )
    if recipe == "c51_fast":
        agent = dataclasses.replace(config.agent, batch_size=16, training_intensity=2.0)
        config = dataclasses.replace(config, agent=agent)
    return config


def program_of(config):
    engine = make_engine(config, config.num_envs)
    return make_program(
        resolve(config), make_agent(resolve(config), engine.spec), (engine,), make_mesh(1)
    )


def few_numbers(state: LoopState) -> LoopState:
    """Each array of parameters and optimizer holds one number: its place among them."""
    learned = (state.agent.actor.params, state.agent.train_state)
    leaves, shape = jax.tree.flatten(learned)
    marked = [
        jnp.full_like(x, (place + 1) / 1024) if jnp.issubdtype(x.dtype, jnp.floating) else x
        for place, x in enumerate(leaves)
    ]
    params, train_state = jax.tree.unflatten(shape, marked)
    actor = state.agent.actor._replace(params=params)
    return state._replace(agent=state.agent._replace(actor=actor, train_state=train_state))


def write_golden() -> None:
    for recipe in AGENTS:
        run_dir, config = GOLDEN / recipe, config_of(recipe)
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.mkdir(parents=True)
        write_config(run_dir, config)
        program = program_of(config)
        updates = STEP // program.steps_per_update
        state = few_numbers(program.run(program.init(), np.int32(updates)))
        log = metrics.open_sink(run_dir, [], print)
        for step in (STEP // 2, STEP):
            log.write({"step": step, "frames": 4 * step, "seconds": step / 100, "updates": updates,
                       "episodes": 9, "return_mean": -0.5, "wall_seconds": step / 50})  # fmt: skip
        log.close()
        state = state._replace(metrics=jax.tree.map(jnp.zeros_like, state.metrics))
        checkpoints = checkpoint.Checkpoints(run_dir, config)
        checkpoints.save(state, Progress(STEP, updates, 4.0, 9), -0.5)
        checkpoints.close()
        for path in run_dir.glob("events.out.*"):
            path.unlink()


QUICK, *OTHERS = AGENTS


@pytest.fixture(params=[QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def recipe(request):
    return request.param


@pytest.fixture
def run_dir(recipe, tmp_path):
    return shutil.copytree(GOLDEN / recipe, tmp_path / recipe)


def test_an_old_checkpoint_is_read_number_by_number(recipe, run_dir):
    assert checkpoint_files.survey(run_dir) == checkpoint_files.Survey([STEP], {})
    config = load_config(run_dir)
    template = program_of(config).init()
    expected = few_numbers(template).agent
    marks = [
        np.array(x).copy() for x in jax.tree.leaves((expected.actor.params, expected.train_state))
    ]
    checkpoints = checkpoint.Checkpoints(run_dir, config)
    state, description, level = checkpoints.restore(program_of(config).init(), STEP)
    checkpoints.close()
    assert level is checkpoint.RestoreLevel.GAMES
    assert description.progress == Progress(STEP, int(state.agent.actor.updates), 4.0, 9)
    found = jax.tree.leaves((state.agent.actor.params, state.agent.train_state))
    for mark, x in zip(marks, found, strict=True):
        if np.issubdtype(x.dtype, np.floating):
            np.testing.assert_array_equal(x, mark)
    if recipe == "c51_fast":
        assert state.agent.memory.steps[0] == STEP // config.num_envs


@pytest.mark.slow
def test_an_old_run_goes_on(run_dir):
    assert main(["resume", str(run_dir)]) == 0
    assert checkpoint_files.steps(run_dir) == [STEP, 2 * STEP]
    assert [row["step"] for row in check_metrics(run_dir)] == [200, 400, 600, 800]


@pytest.mark.slow
def test_an_old_policy_plays(run_dir):
    before = tree(run_dir / "checkpoints")
    assert main(["evaluate", str(run_dir), "--episodes", "2"]) == 0
    assert tree(run_dir / "checkpoints") == before


if __name__ == "__main__":
    sys.exit(write_golden())
