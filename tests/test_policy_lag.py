"""The study of policy lag in docs/examples: it trains what is missing, and draws."""

import importlib.util
import types
from pathlib import Path

import matplotlib.image
import pytest

from jaxrl import cli, plotting, runs
from tests.conftest import CONFIGS

FILE = Path(__file__).parents[1] / "docs" / "examples" / "policy_lag.py"


@pytest.fixture
def study():
    spec = importlib.util.spec_from_file_location("policy_lag", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_that_are_missing_are_trained_and_all_are_drawn(study, tmp_path, monkeypatch, capsys):
    ran = []

    def run(command, check):
        assert not check
        ran.append(command)  # the first three words are python -m jaxrl
        few = ["--num-devices", "1"] if command[3] == "train" else []
        return types.SimpleNamespace(returncode=cli.main([*command[3:], *few]))

    monkeypatch.setattr(study, "subprocess", types.SimpleNamespace(run=run))
    options = {
        "config": CONFIGS / "a2c_fast.toml",
        "total_steps": 1600,
        "lags": (0, 2),
        "root": tmp_path / "lag",
        "options": ("order=overlapped", "num-envs=8"),
    }
    study.main(**options, seeds=(1,))
    assert len(ran) == 2
    for lag in (0, 2):
        config = runs.load_config(tmp_path / "lag" / f"catch-lag{lag}-seed1")
        assert (config.lag, config.order, config.game) == (lag, "overlapped", "catch")
    picture = tmp_path / "lag" / "policy_lag_catch.png"
    assert matplotlib.image.imread(picture).shape[2] >= 3
    assert str(picture) in capsys.readouterr().out
    study.main(**options, seeds=(1,))
    assert len(ran) == 2
    stopped = tmp_path / "lag" / "catch-lag2-seed1"
    (stopped / plotting.FILE).unlink()
    study.main(**options, seeds=(1,))
    assert ran[2][3:] == ["resume", str(stopped)]
    with pytest.raises(SystemExit, match="differ in total_steps: take another --root"):
        study.main(**options | {"total_steps": 3200}, seeds=(1,))
    fails = types.SimpleNamespace(run=lambda *_, **__: types.SimpleNamespace(returncode=2))
    monkeypatch.setattr(study, "subprocess", fails)
    with pytest.raises(SystemExit, match="stopped with status 2; the same command goes on"):
        study.main(**options, seeds=(2,))


def test_the_score_is_of_the_share_that_is_asked_for(study, tmp_path):
    lines = [(100, None), (200, -1.0), (300, 1.0), (400, 3.0)]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(
            f'{{"step": {step}, "frames": 1, "seconds": 1, "return_mean": '
            f"{'null' if value is None else value}}}\n"
            for step, value in lines
        )
    )
    assert study.score(tmp_path, 1.0) == 1.0
    assert study.score(tmp_path, 0.5) == 2.0
