"""Four simulated CPU devices for every test; a mesh of one takes the first of them."""

import contextlib
import ctypes
import gc
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest

from jaxrl.config.plan import Plan, resolve
from jaxrl.config.schema import Config, EnvConfig
from jaxrl.config.toml import load
from jaxrl.envs import choose_engine
from jaxrl.runtime.mesh import simulate_cpu_devices
from tests import cpu_times, rotation

simulate_cpu_devices(4)
# Many tests compile the same program of Catch: they find it here, also in the next session.
CACHE = str(Path(__file__).parents[1] / ".pytest_cache/jax")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# Most tests compile for longer than they run, and so do the programs that they start. Of a
# compilation, XLA's newer code generator, which users get, takes two thirds. Later versions have no
# other, and would end the process at an unknown flag.
OLDER_GENERATOR = "--xla_cpu_use_fusion_emitters=false"
AS_USERS_COMPILE = os.environ.get("JAXRL_AS_USERS_COMPILE") == "1" or jax.__version_info__ >= (
    0,
    11,
)
if not AS_USERS_COMPILE:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {OLDER_GENERATOR}"
QUICK = "jax_disable_most_optimizations"


def _compile_quickly(quick: bool) -> None:
    jax.config.update(QUICK, quick)
    os.environ[QUICK.upper()] = str(int(quick))


_compile_quickly(True)

CONFIGS = Path(__file__).parents[1] / "configs"
CROWDED_GB = 0.8  # above it, a worker frees memory after a test
MOST_GB = {"not slow": 2.0}  # peaks at which a worker of a tier fails
MOST_GB_OF_ALL = 3.0


def pytest_configure(config):
    """Registers plugins: a session's fixtures call no hook of a conftest that lies in a folder."""
    for plugin in (cpu_times, rotation):
        config.pluginmanager.register(plugin)


def recipe_file(stem: str) -> Path:
    """Returns the file of configs/ with this stem."""
    (path,) = CONFIGS.glob(f"*/{stem}.toml")
    return path


def catch_config(recipe: str = "a2c_fast", agent: Any = (), **changes: Any) -> Config:
    """A recipe for small machines, on Catch and on one device; `agent` changes its own settings.

    Its board has three rows and columns: a quarter of the work of `large_catch_config`'s seven.
    PPO and PQN play shorter rollouts, and value-based agents start, explore and copy on the scale
    of Catch.
    """
    config = load(recipe_file(recipe))
    explores = {"epsilon_decay_steps": 3000}
    copies = explores | {"target_update_interval": 400}
    replays = copies | {"replay_capacity": 4000, "learning_starts": 500}
    fitting: dict[str, dict[str, Any]] = {
        "ppo_pong": {"rollout_length": 32},
        "c51_fast": replays,
        "qr_dqn_fast": replays,
        "btr": replays,
        "btr_fast": replays,
        "dqn": replays,
        "iqn": replays | {"batch_size": 32},
        "rainbow": replays | {"batch_size": 64},
        "r2d2_fast": {
            "target_update_interval": 640,
            "replay_capacity": 20_000,
            "learning_starts": 500,
        },
        "nstep_q": copies,
        "one_step_q": copies,
        "sarsa": copies,
        "pqn": explores | {"rollout_length": 16, "num_minibatches": 4},
        "pqn_hadamax": explores | {"rollout_length": 16, "num_minibatches": 4},
    }
    defaults: dict[str, Any] = {
        "game": "catch",
        "total_steps": 20_000,
        "env": {"frame_height": 44, "frame_width": 44} | changes.pop("env", {}),
        "parallel": {"num_devices": 1} | changes.pop("parallel", {}),
        "log": {"interval": 1000} | changes.pop("log", {}),
        "agent": fitting.get(recipe, {}) | dict(agent),
    }
    return config.replaced(**defaults | changes)


def large_catch_config(recipe: str = "a2c_fast", agent: Any = (), **changes: Any) -> Config:
    """That of `catch_config` with a board of seven rows and columns, as users have it."""
    env = {"frame_height": 84, "frame_width": 84} | changes.pop("env", {})
    return catch_config(recipe, agent, env=env, **changes)


def chosen(config: Config) -> EnvConfig:
    """The settings of the games, with the engine that plays them on this machine."""
    return choose_engine(config.game, config.env)


def planned(config: Config, num_devices: int | None = None) -> Plan:
    """The plan of a configuration that is played on this machine."""
    return resolve(config, num_devices, chosen(config))


_held_gb = 0.0  # what was left when memory was last freed


def _resident_gb() -> float:
    return psutil.Process().memory_info().rss / 1e9


def _resident_gb_when_freed() -> float:
    """Gives free memory back to the system; returns what this process still holds."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _resident_gb()


_rises: dict[str, float] = {}  # of the peak, in gigabytes, by test


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


@pytest.fixture(autouse=True)
def _compiles_quickly(request):
    """Leaves out what LLVM optimizes, but where a test trains for long (`optimized`).

    Only here: fixtures of a module and of a session are made before, and compile as other tests do.
    """
    _compile_quickly(request.node.get_closest_marker("optimized") is None)
    yield
    _compile_quickly(True)


@pytest.fixture(autouse=True)
def _frees_host_memory(request):
    """Compilers leave free memory in the arenas of their threads, and JAX keeps every program."""
    before = _peak_gb()
    yield
    if (rise := _peak_gb() - before) > 0.2:
        _rises[request.node.nodeid] = rise
    global _held_gb
    # Only where something came since: freeing takes half a second, and most tests hold nothing.
    if _resident_gb() > max(CROWDED_GB, _held_gb + 0.1):
        _held_gb = _resident_gb_when_freed()
        if _held_gb > CROWDED_GB:
            jax.clear_caches()
            _held_gb = _resident_gb_when_freed()


@pytest.fixture(autouse=True, scope="session")
def _keeps_host_memory_small(request):
    """Two workers must fit beside what else runs on a machine of 8 GB."""
    yield
    most = MOST_GB.get(request.config.getoption("-m"), MOST_GB_OF_ALL)
    assert _peak_gb() < most, f"this test worker took {_peak_gb():.1f} GB: {_rises}"


@pytest.fixture
def strict_shapes():
    """Broadcasting between ranks is an error."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of Catch with one checkpoint, at step 400; not to be changed."""
    from jaxrl.cli.main import main
    from tests.survival import SMALL

    path = tmp_path_factory.mktemp("runs") / "x"
    arguments = ["train", *SMALL, "--log.interval", "200", "--total-steps", "400"]
    assert main([*arguments, "--run-dir", str(path)]) == 0
    return path


@pytest.fixture
def run_dir(trained, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "x"))
