"""The plan of a run is that of the configuration which the run writes down."""

from jaxrl.runs.directory import load_config
from jaxrl.training import train
from tests.conftest import catch_config


def test_engines_have_the_time_limit_that_is_written_down(tmp_path, monkeypatch):
    """An open one is half an hour of the console, 108,000 frames; a resumed run reads it."""
    requests = []
    monkeypatch.setattr(train, "_train", lambda request, *_: requests.append(request))
    train.start(catch_config(run_dir=str(tmp_path / "x")))
    (plan,) = requests[0].plans
    assert plan.env.max_episode_steps == 27_000
    assert plan.config == load_config(tmp_path / "x")
    assert plan.config.env.max_episode_steps == 27_000
