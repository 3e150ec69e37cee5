"""Settings of JAX that nothing would run with are refused in one line, wherever JAX is begun."""

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.runs import metrics
from jaxrl.runtime import jax_settings
from tests.survival import SMALL, begin, environment, finish

CONTEXTS = {
    "JAX_ENABLE_X64": lambda: jax.enable_x64(True),
    "JAX_DISABLE_JIT": lambda: jax.disable_jit(True),
    "JAX_NUMPY_RANK_PROMOTION": lambda: jax.numpy_rank_promotion("raise"),
    "JAX_NUMPY_DTYPE_PROMOTION": lambda: jax.numpy_dtype_promotion("strict"),
    "JAX_DEBUG_KEY_REUSE": lambda: jax.debug_key_reuse(True),
    "JAX_TRANSFER_GUARD": lambda: jax.transfer_guard("disallow"),
}


@pytest.mark.parametrize("variable", CONTEXTS)
def test_training_is_refused_before_it_makes_a_directory(variable, tmp_path, capsys):
    words = ["train", "--config", "a2c_fast", "--game", "catch", "--run-dir", str(tmp_path / "r")]
    with CONTEXTS[variable]():
        assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("jaxrl: jax_")
    assert f": unset {variable}, or call jax.config.update('{variable.lower()}', " in line
    assert not any(tmp_path.iterdir())
    jax_settings.check()  # with what JAX has by itself


def test_policies_and_engines_blame_the_setting_and_no_file():
    policy = jaxrl.load_policy("pong")
    observation = np.zeros((60, 60, 4), np.uint8)
    with jax.enable_x64(True):
        for call in (
            lambda: jaxrl.load_policy("pong"),
            lambda: jaxrl.make_engine("catch", 2),
            lambda: policy.act(observation, 0),
            lambda: policy.value(observation),
        ):
            with pytest.raises(UserError, match="jax_enable_x64 = True: jaxrl computes in 32 bits"):
                call()


def test_checks_of_values_that_run_are_none():
    with jax.debug_nans(True), jax.debug_infs(True), jax.transfer_guard("log"):
        jax_settings.check()


@pytest.mark.slow
def test_training_runs_with_checks_of_values(tmp_path):
    """Two updates of 4 environments and 5 steps, in which nothing is a NaN or infinite."""
    values = environment(JAX_DEBUG_NANS="1", JAX_DEBUG_INFS="1")
    words = ["--total-steps", "40", "--log.interval", "20", "--run-dir", str(tmp_path / "r")]
    status, errors = finish(begin("train", *SMALL, *words, env=values))
    assert status == 0, errors
    rows = metrics.read(tmp_path / "r")
    assert [(row["step"], row["updates"]) for row in rows] == [(20, 1), (40, 2)]
    assert all(row["loss/gradient_norm"] > 0 for row in rows)


@pytest.mark.slow
def test_a_setting_of_the_environment_ends_training_in_one_line(tmp_path):
    values = environment(JAX_ENABLE_X64="1")
    words = ["train", *SMALL, "--run-dir", str(tmp_path / "r")]
    status, errors = finish(begin(*words, env=values))
    assert (status, errors.splitlines()) == (2, [
        "jaxrl: jax_enable_x64 = True: jaxrl computes in 32 bits: unset JAX_ENABLE_X64, or call "
        "jax.config.update('jax_enable_x64', False)"
    ])  # fmt: skip
    assert not any(tmp_path.iterdir())
