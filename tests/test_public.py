"""The public names of `jaxrl`, which are imported when they are first used."""

import subprocess
import sys
from pathlib import Path

import pytest

import jaxrl
from jaxrl.config.plan import scaled_learning_rate


def test_every_public_name_is_there():
    assert sorted(jaxrl._PLACES) == jaxrl.__all__
    for name in jaxrl.__all__:
        assert callable(getattr(jaxrl, name)), name
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        jaxrl.trane  # noqa: B018


def test_import_starts_nothing():
    code = "import sys, jaxrl; jaxrl.load_config; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_learning_rate_scales_from_the_environments_of_the_file(tmp_path):
    """As `jaxrl train` does: four times as many, so that linear scaling is 4 x 0.02."""
    (tmp_path / "mine.toml").write_text("num_envs = 8\n[optimizer]\nlearning_rate = 0.02\n")
    config = jaxrl.load_config(tmp_path / "mine.toml")
    more = config.replaced(num_envs=32, optimizer={"lr_scaling": "linear"})
    assert scaled_learning_rate(more) == pytest.approx(0.08)


def test_the_example_of_the_docstring(tmp_path):
    config = jaxrl.load_config(Path("a2c_fast")).replaced(
        game="catch",
        num_envs=4,
        total_steps=80,
        run_dir=str(tmp_path / "x"),
        parallel={"num_devices": 1},
        log={"interval": 40},
        evaluation={"episodes": 2},
    )
    assert jaxrl.train(config).step == 80
    assert list(jaxrl.load_table([tmp_path / "x"])["step"]) == [40, 80]
