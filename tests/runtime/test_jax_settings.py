"""Settings of JAX that nothing would run with are refused in one line, wherever JAX is begun."""

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.cli.main import main
from jaxrl.errors import UserError
from jaxrl.runtime import jax_settings

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
    observation = np.zeros((84, 84, 4), np.uint8)
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
    """Training and evaluation were tried with them."""
    with jax.debug_nans(True), jax.debug_infs(True), jax.transfer_guard("log"):
        jax_settings.check()
