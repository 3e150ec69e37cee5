"""Host callbacks give what the custom call gives; what fails in one ends training at once."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.cli.main import main
from jaxrl.config.plan import resolve
from jaxrl.config.toml import load
from jaxrl.envs import make_engine
from jaxrl.envs.envpool import engine as envpool_engine
from jaxrl.envs.envpool.callback import host_calls
from jaxrl.errors import EngineError, UserError
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import make_mesh
from tests.conftest import recipe_file
from tests.envs import test_envpool
from tests.envs.test_envpool import play, random_actions
from tests.integration.test_devices import run

BASE = test_envpool.BASE.replaced(env={"max_episode_steps": 150})


@pytest.mark.slow
def test_both_engines_give_the_same_trajectories():
    """Frames, rewards, ends, resets and statistics, over lost lives, ends of games and resets."""
    actions = random_actions(320, 3)
    runs = [
        play(BASE.replaced(env={"interface": engine}), actions) for engine in ("xla", "callback")
    ]
    jax.tree.map(np.testing.assert_array_equal, *runs)
    timesteps = runs[0][1]
    assert timesteps.terminated.any()
    assert timesteps.truncated.any()
    assert timesteps.reset.any()


def trained(interface, num_devices, groups, updates):
    config = BASE.replaced(
        game="pong",
        env={"interface": interface},
        num_envs=8,
        parallel={"num_devices": num_devices, "groups": groups, "order": "overlapped"},
    )
    return run(config, updates)


@pytest.mark.slow
def test_both_engines_train_alike_on_two_devices_and_in_two_groups():
    xla, host = trained("xla", 2, 2, 6), trained("callback", 2, 2, 6)
    observations = [[group.observation for group in state.games] for state in (xla, host)]
    jax.tree.map(np.testing.assert_array_equal, *observations)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, xla.agent.actor, host.agent.actor)


@pytest.mark.parametrize(
    ("platform", "version", "expected"),
    [
        ("cpu", "cpu", 0),
        ("gpu", "PJRT C API\ncuda 12090", 0),
        ("gpu", "PJRT C API\nrocm 70200000", 2),
        ("tpu", "PJRT C API\nTFRT TPU v5 lite", 2),
    ],
)
def test_callbacks_are_taken_where_there_is_no_custom_call(
    monkeypatch, platform, version, expected
):
    made = []

    def count(*arguments):
        made.append(arguments)
        return host_calls(*arguments)

    monkeypatch.setattr(envpool_engine, "host_calls", count)
    client = SimpleNamespace(platform_version=version)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=client)])
    engine = make_engine(BASE, 1, num_local_devices=2)
    engine.init(0)
    engine.close()
    assert len(made) == expected


def test_callbacks_need_jax_to_have_the_cpu(monkeypatch):
    def none(**_):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(jax, "local_devices", none)
    with pytest.raises(UserError, match="JAX_PLATFORMS=cuda,cpu"):
        make_engine(BASE.replaced(env={"interface": "callback"}), 1)


class Failing:
    """A pool that breaks in its third `recv` or `send`."""

    def __init__(self, pool, method):
        self._pool, self._method, self._left = pool, method, 3

    def __getattr__(self, name):
        if name == self._method:
            self._left -= 1
            if self._left <= 0:
                raise OSError("the cartridge\nhas caught fire")
        return getattr(self._pool, name)


@pytest.mark.parametrize("method", ["send", pytest.param("recv", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_error_in_a_callback_ends_training_with_its_own_message(
    tmp_path, monkeypatch, capsys, method
):
    """Two devices meet in an all-reduce: the one whose pool fails must not keep the other there."""
    real, made = host_calls, []

    def breaking(pool, *arguments):
        made.append(pool)
        return real(Failing(pool, method) if len(made) == 2 else pool, *arguments)

    monkeypatch.setattr(envpool_engine, "host_calls", breaking)
    path = tmp_path / "x"
    arguments = ["train", "--config", str(recipe_file("a2c_fast")), "--game", "pong",
                 "--num-envs", "4", "--parallel.num-devices", "2", "--env.interface", "callback",
                 "--env.random-start-steps", "0", "--env.engine", "envpool"]  # fmt: skip
    assert main([*arguments, "--run-dir", str(path)]) == EngineError.status
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "jaxrl: EnvPool failed while it played pong: OSError: the cartridge has caught fire"
    )
    assert not list((path / "checkpoints").iterdir())  # what came after is not kept


def test_the_engine_raises_the_error_until_it_is_restarted(monkeypatch):
    real = host_calls
    monkeypatch.setattr(
        envpool_engine, "host_calls", lambda p, *rest: real(Failing(p, "recv"), *rest)
    )
    engine = make_engine(BASE.replaced(env={"interface": "callback"}), 2)
    state, _ = engine.init(0)
    step = jax.jit(lambda state, action: engine.recv(engine.send(state, action)))
    for _ in range(2):
        state, timestep = jax.block_until_ready(step(state, np.zeros(2, np.int32)))
        engine.check()
    assert timestep.frame.any()
    for _ in range(2):
        state, timestep = jax.block_until_ready(step(state, np.zeros(2, np.int32)))
        with pytest.raises(EngineError, match="played space_invaders: OSError"):
            engine.check()
    assert not timestep.frame.any()
    engine.init(0)
    engine.check()
    engine.close()


class Counting:
    """A pool that counts its answers."""

    def __init__(self, pool):
        self._pool, self.answers = pool, 0

    def __getattr__(self, name):
        self.answers += name == "recv"
        return getattr(self._pool, name)


@pytest.mark.slow
def test_a_restarted_program_steps_its_new_pools(monkeypatch):
    """A trace holds the address of its pool; of the first one nothing is left."""
    real, made = host_calls, []

    def counting(pool, *rest):
        made.append(Counting(pool))
        return real(made[-1], *rest)

    monkeypatch.setattr(envpool_engine, "host_calls", counting)
    config = load(recipe_file("a2c_fast")).replaced(
        num_envs=2, env={"engine": "envpool", "interface": "callback", "random_start_steps": 0}
    )
    engine = make_engine(config, 2)
    agent = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), agent, (engine,), make_mesh(1))
    state = program.restart(program.init(), 7)
    jax.block_until_ready(program.run(state, np.int32(2)))
    engine.check()
    assert [pool.answers for pool in made] == [0, 2 * config.agent.rollout_length]
    engine.close()
