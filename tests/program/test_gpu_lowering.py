"""Lowering for NVIDIA GPUs, where there is none: what the compiler is given.

JAX lowers for a platform that is absent. Nothing runs, so the sizes are those of the recipes, and
their memories are never allocated.
"""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.schema import Config, EnvConfig
from jaxrl.config.toml import load
from jaxrl.envs import make_engine, make_engines
from jaxrl.envs.atari2600 import build_gpu, gpu_library, library
from jaxrl.envs.atari2600 import engine as emulator
from jaxrl.envs.atari2600.engine import plays_on_gpu
from jaxrl.envs.engines import check_engine, choose_engine
from jaxrl.envs.envpool.engine import make_pool
from jaxrl.errors import UserError
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import SHARDED, make_mesh, map_over_devices
from tests.conftest import CONFIGS, planned, recipe_file

RECIPES = sorted(path.stem for path in CONFIGS.glob("*/*.toml"))
# One of each algorithm; vtrace_cpu is overlapped, rainbow_fast has all that Rainbow adds,
# and btr what Beyond the Rainbow does.
ONE_OF_EACH = (
    "a2c_fast", "ppo_pong", "vtrace_cpu", "nstep_q_fast", "pqn_fast", "dqn_fast", "rainbow_fast",
    "btr",
)  # fmt: skip
QUICK = ("a2c_fast", "dqn_fast")  # on-policy, and from a replay


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch):
    """The code chooses as it does there."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def recipe(name, **changes):
    config = load(recipe_file(name))
    env = {"num_threads": 1, "random_start_steps": 0} | changes.pop("env", {})
    parallel = {"num_devices": 1} | changes.pop("parallel", {})
    return config.replaced(**{"game": "catch"} | changes, env=env, parallel=parallel)


def pong(engine, interface, num_devices, **parallel):
    """A2C on four games of Pong, by an interface of an engine."""
    env = {"engine": engine, "interface": interface}
    parallel["num_devices"] = num_devices
    return recipe("a2c_fast", game="pong", num_envs=4, parallel=parallel, env=env)


class Parts:
    """Of a recipe's program, with the shapes of its state."""

    def __init__(self, config):
        self.mesh = make_mesh(config.parallel.num_devices)
        plan = planned(config, self.mesh.size)
        self.engines = make_engines(plan, self.mesh.size)
        spec = self.engines[0].spec._replace(num_envs=plan.envs_per_learner)
        self.agent = make_agent(plan, spec)
        self.program = make_program(plan, self.agent, self.engines, self.mesh)
        self.state = jax.eval_shape(self.program.init)

    def close(self):
        for engine in self.engines:
            engine.close()


def lower(function, *arguments):
    traced = jax.jit(function).trace(*arguments)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def program(config):
    """The text of acting, the engine's calls and the update, as one."""
    parts = Parts(config)
    text = lower(parts.program.run, parts.state, jax.ShapeDtypeStruct((), jnp.int32))
    parts.close()
    return text


def custom_calls(text):
    return re.findall(r"stablehlo\.custom_call @([\w.]+)", text)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in ONE_OF_EACH],
)
def test_the_program_of_every_algorithm_lowers(name):
    text = program(recipe(name))
    assert custom_calls(text) == []  # nothing that one platform has and another lacks
    assert "stablehlo.convolution" in text  # cuDNN's, where a CPU multiplies blocks


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*RECIPES} - {*ONE_OF_EACH}))
def test_the_program_of_every_recipe_lowers(name):
    assert custom_calls(program(recipe(name))) == []


@pytest.mark.slow
@pytest.mark.parametrize("value_loss", ["hl_gauss", "two_hot"])
def test_distributions_and_simplices_lower(value_loss):
    """The Gaussian's integral needs no custom call."""
    network = {"torso": "gamma_hadamax", "dueling": True, "simplicial_groups": 64}
    config = recipe("pqn_hadamax", network=network, agent={"value_loss": value_loss})
    assert custom_calls(program(config)) == []


@pytest.mark.slow
@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    "name",
    [
        # Those that GPUs train with the networks of the papers, and large batches.
        *("vtrace", "rainbow", "c51_large", "dqn_large"),
        # Every algorithm and every torso.
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (*ONE_OF_EACH, "impala", "pqn_gamma", "pqn_hadamax")
        ),
    ],
)
def test_every_algorithm_lowers_in_half_precision(name):
    network = dataclasses.replace(load(recipe_file(name)).network, dtype="bfloat16")
    assert "bf16" in program(recipe(name, network=network))


@pytest.mark.slow
@pytest.mark.parametrize(("order", "groups"), [("strict", 2), ("overlapped", 1)])
def test_both_orders_of_catch_lower(order, groups):
    text = program(recipe("a2c_fast", parallel={"order": order, "groups": groups}))
    # Beside the data that orders the calls there is a barrier, which GPUs keep longer than CPUs.
    assert "stablehlo.optimization_barrier" in text


def test_acting_lowers_with_images_as_they_are():
    """NHWC all through, so that nothing need be transposed before cuDNN is called."""
    parts = Parts(recipe("a2c_fast"))
    games = parts.state.games[0]
    text = lower(parts.agent.act, parts.state.agent.actor, games.observation, games.keys)
    assert len(re.findall(r"stablehlo\.convolution", text)) == 2  # of the NIPS network
    assert text.count("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]") == 2


def test_a_gradient_is_taken_of_all_rows_at_once():
    """Micro-batches are for the caches of CPUs."""
    config = recipe("a2c_fast")
    rows = config.num_envs * config.agent.rollout_length
    assert f"tensor<{rows}x84x84x4xf32>" in program(config)


@pytest.mark.slow
@pytest.mark.rotating(1)
@pytest.mark.parametrize("num_devices", [1, 2])
def test_envpool_lowers_to_a_typed_call(num_devices):
    """A pool of its own for each device."""
    config = pong("envpool", "xla", num_devices)
    calls = [line for line in program(config).splitlines() if "EnvPool_" in line]
    for name in ("recv", "send"):
        matching = [line for line in calls if f"_{name}(" in line]
        assert len({re.search(r"handle = (\d+)", line)[1] for line in matching}) == num_devices
        for line in matching:
            # Attributes are of the typed interface; the old one had a string.
            assert "mhlo.backend_config = {handle =" in line
            assert "has_side_effect = true" in line
            assert "output_operand_aliases" in line  # the token is not copied


@pytest.mark.slow
@pytest.mark.rotating(1)
@pytest.mark.parametrize("num_devices", [1, 2])
def test_our_emulator_lowers_to_one_call_that_keeps_its_arrays(num_devices, monkeypatch):
    """With two devices each has separate games, by the same call."""
    monkeypatch.setattr(build_gpu, "kernels", lambda: build_gpu.Kernels(b"of no card", "no file"))
    config = pong("atari2600", "xla", num_devices, order="strict")
    calls = [line for line in program(config).splitlines() if gpu_library.STEP in line]
    (attributes,) = {re.search(r"program = (\d+)", line)[1] for line in calls}
    assert int(attributes) > 0
    for line in calls:
        assert "has_side_effect = true" not in line
        # The second and the third argument, games and frames, are updated in place.
        for result, operand in ((0, 1), (1, 2)):
            alias = rf"output_tuple_indices = \[{result}\],\s*operand_index = {operand}"
            assert re.search(alias, line)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_threads_lower_to_calls_on_the_stream(num_devices, monkeypatch):
    """Each device has a separate engine; the token stays in place, and no callback is left."""
    client = SimpleNamespace(platform_version="cuda 12090")
    devices = [SimpleNamespace(client=client)]
    with monkeypatch.context() as patch:
        patch.setattr(jax, "devices", lambda: devices)
        check_engine("pong", choose_engine("pong", EnvConfig(interface="stream")))
    monkeypatch.setattr(emulator, "has_nvidia_gpu", lambda: True)
    pinned = []
    monkeypatch.setattr(library.Engine, "pin", lambda self, device: pinned.append(self.number))
    config = pong("atari2600", "stream", num_devices)
    text = program(config)
    assert {*custom_calls(text)} <= {library.SEND, library.RECV, "Sharding"}
    for name in (library.SEND, library.RECV):
        matching = [line for line in text.splitlines() if f"@{name}(" in line]
        assert len({re.search(r"engine = (\d+)", line)[1] for line in matching}) == num_devices
        for line in matching:
            assert "has_side_effect = true" in line
            assert re.search(r"output_operand_alias", line)
        assert {re.search(r"engine = (\d+)", line)[1] for line in matching} == {*map(str, pinned)}


def test_our_emulator_plays_evaluations_on_threads(monkeypatch):
    """Their starts are ALE's own, which the kernels do not play."""
    monkeypatch.setattr(build_gpu, "kernels", lambda: build_gpu.Kernels(b"of no card", "no file"))
    env = {"engine": "atari2600", "interface": "xla", "exact_resets": True, "num_threads": 1}
    config = Config(game="pong").replaced(env=env)
    engine = make_engine(config, 1)
    assert engine.save is not None
    assert engine.pack is None


@pytest.mark.parametrize("exact", [False, True])
def test_auto_takes_threads_where_kernels_could_play(exact, monkeypatch):
    """Nor are they compiled to decide it."""
    monkeypatch.delattr(build_gpu, "kernels")
    names = {
        interface: choose_engine("pong", EnvConfig(interface=interface, exact_resets=exact)).engine
        for interface in ("auto", "callback", "xla")
    }
    assert names == {"auto": "atari2600", "callback": "atari2600", "xla": "envpool"}


def test_kernels_that_are_asked_for_and_cannot_be_had_are_an_error(monkeypatch):
    def none():
        raise UserError("NVRTC is not installed")

    monkeypatch.setattr(build_gpu, "kernels", none)
    config = Config(game="pong").replaced(env={"engine": "atari2600", "interface": "xla"})
    with pytest.raises(UserError, match="NVRTC is not installed"):
        choose_engine(config.game, config.env)
    # Threads play these: nothing is compiled.
    choose_engine(config.game, dataclasses.replace(config.env, exact_resets=True))


def test_a_gpu_of_amd_has_no_kernels(monkeypatch):
    client = SimpleNamespace(platform_version="rocm 70000")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=client)])
    config = Config(game="pong").replaced(env={"engine": "atari2600", "interface": "xla"})
    assert not plays_on_gpu(config.env)
    with pytest.raises(UserError, match="for CPUs and NVIDIA GPUs"):
        choose_engine(config.game, config.env)


def test_envpool_has_a_handler_for_gpus():
    pool = make_pool("pong", recipe("a2c_fast").env, 2, 0, num_threads=1)
    for _, (_, _, (cpu, gpu)) in pool._xla():
        assert type(cpu).__name__ == type(gpu).__name__ == "PyCapsule"
    pool.close()


def test_the_call_lowers_alone_and_on_the_mesh():
    """As evaluations take it, and as the loop does."""
    envpool = {"engine": "envpool", "interface": "xla"}
    parts = Parts(recipe("a2c_fast", game="pong", num_envs=2, env=envpool))
    (engine,) = parts.engines
    env = parts.state.games[0].env

    def step(env):
        return engine.recv(engine.send(env, jnp.zeros(2, jnp.int32)))

    mapped = map_over_devices(step, parts.mesh, (SHARDED,), SHARDED)
    for one in (step, mapped):
        assert len(custom_calls(lower(one, env))) == 2
    parts.close()
