"""A stand-in for MLflow with the calls of docs/examples/mlflow_sink.py; its runs are one file."""

import json
from pathlib import Path
from types import SimpleNamespace


def _change(change):
    file = Path("mlflow.json")
    runs = json.loads(file.read_text()) if file.exists() else {}
    change(runs)
    file.write_text(json.dumps(runs))
    return runs


def log_metrics(values, step, run_id):
    assert all(type(value) in (int, float) for value in values.values())
    assert values["step"] == step
    _change(lambda runs: runs[run_id]["steps"].append(step))


class MlflowClient:
    def create_run(self, experiment_id, run_name):
        assert experiment_id == "0"
        _change(lambda runs: runs.setdefault(run_name, {"steps": []}))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def get_run(self, run_id):
        steps = _change(lambda runs: None)[run_id]["steps"]
        metrics = {"step": float(steps[-1])} if steps else {}
        return SimpleNamespace(data=SimpleNamespace(metrics=metrics))

    def update_run(self, run_id, status):
        _change(lambda runs: runs[run_id].update(status=status))

    def set_terminated(self, run_id):
        self.update_run(run_id, "FINISHED")
