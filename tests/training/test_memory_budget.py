"""A lack of memory is reported with figures and keys, where possible before training."""

import dataclasses
import resource
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget
from tests.conftest import large_catch_config, planned
from tests.survival import ROOT, SMALL, begin, environment, finish


def set_free(monkeypatch, size):
    monkeypatch.setattr(memory_budget, "free_host_memory", lambda: int(size))


def test_emulators_that_do_not_fit_are_refused(monkeypatch):
    """4.4 MB each: of 3 GB, and a tenth for all else, 613."""
    config = large_catch_config(game="pong", num_envs=1000, env={"engine": "envpool"})
    set_free(monkeypatch, 3e9)
    message = r"num_envs = 1000: the emulators need 4\.4 GB .* and 3\.0 GB are free: about 613"
    with pytest.raises(UserError, match=message):
        memory_budget.check_memory(planned(config), make_mesh(1))
    fewer = dataclasses.replace(config, num_envs=613)
    memory_budget.check_memory(planned(fewer), make_mesh(1))


def test_rollouts_that_do_not_fit_are_refused(monkeypatch):
    """129 observations of 28,224 bytes of 1,000 environments: 3.6 GB, on two CPU devices too."""
    config = large_catch_config("ppo_pong", agent={"rollout_length": 128}, num_envs=1000)
    for devices in (1, 2):
        plan = planned(config, devices)
        set_free(monkeypatch, 3.6e9)
        with pytest.raises(UserError, match=r"a rollout needs 3\.6 GB of .* and 3\.6 GB are free"):
            memory_budget.check_memory(plan, make_mesh(devices))
        set_free(monkeypatch, 3.7e9)
        memory_budget.check_memory(plan, make_mesh(devices))


@pytest.mark.slow
def test_a_compiled_program_is_refused_by_what_it_needs(monkeypatch):
    config = large_catch_config(num_envs=4)
    engine = make_engine(config, 4)
    mesh = make_mesh(1)
    plan = planned(config)
    program = make_program(plan, make_agent(plan, engine.spec), (engine,), mesh)
    compiled = program.run.lower(program.init(), np.int32(1)).compile()
    need = compiled.memory_analysis().temp_size_in_bytes
    assert need > 1e6
    set_free(monkeypatch, need)
    memory_budget.check_compiled(compiled, plan, mesh)
    set_free(monkeypatch, need - 1)
    with pytest.raises(
        UserError, match=r"an update of 4 environments needs .* take fewer of num_e"
    ):
        memory_budget.check_compiled(compiled, plan, mesh)


def limit(size):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (int(size), int(size)))


@pytest.mark.slow
def test_a_limit_of_the_shell_counts(tmp_path):
    """As `ulimit -v` sets it; nothing is compiled, nothing is made."""
    arguments = ["--num-envs", "2048", "--agent.rollout-length", "512"]
    process = begin("train", *SMALL, *arguments, "--run-dir", tmp_path / "x",
                    preexec_fn=limit(20e9))  # fmt: skip
    status, errors = finish(process)
    assert status == 2, errors
    assert "num_envs = 2048 and agent.rollout_length = 512: a rollout needs 29.7 GB" in errors
    assert not (tmp_path / "x").exists()


RUNS_OUT = """
import resource, sys
import jax, jax.numpy as jnp, psutil
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget
from tests.conftest import large_catch_config, planned
jax.devices()
most = psutil.Process().memory_info().vms + 10**9
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    jax.block_until_ready(jax.jit(lambda: jnp.ones((30_000, 30_000)))())
except jax.errors.JaxRuntimeError as error:
    print(memory_budget.out_of_memory(error, planned(large_catch_config()), make_mesh(1)))
"""


def test_memory_that_runs_out_is_reported_with_the_keys():
    done = subprocess.run(
        [sys.executable, "-c", RUNS_OUT], capture_output=True, text=True, cwd=ROOT,
        env=environment(), check=False,
    )  # fmt: skip
    assert done.stdout.startswith("memory ran out for 3600000000 bytes while "), done.stderr
    assert "take fewer of num_envs, a shorter agent.rollout_length" in done.stdout


def test_a_lag_keeps_copies_that_could_be_fewer():
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 10 bytes")
    mesh, plan = make_mesh(1), planned(large_catch_config(parallel={"lag": 9}))
    assert "a smaller lag" in str(memory_budget.out_of_memory(error, plan, mesh))
    plan = planned(large_catch_config())
    assert "lag" not in str(memory_budget.out_of_memory(error, plan, mesh))


def test_other_errors_are_left_alone():
    error = jax.errors.JaxRuntimeError("INTERNAL: something else")
    plan = planned(large_catch_config())
    assert memory_budget.out_of_memory(error, plan, make_mesh(1)) is None


def test_an_algorithm_with_a_memory_and_no_words_for_it_is_refused_in_a_line():
    class Remembering(A2CConfig):
        def remembered(self, num_envs):
            return 10**9

    with pytest.raises(UserError, match=r"memory needs .* GB here, and 1.0 GB are free"):
        memory_budget.check_fits(
            Config(agent=Remembering()), free_bytes=int(1e9), share=1.0, where="here"
        )
