"""A sink that sends metrics to MLflow; a resumed run goes on in the same run there."""

from pathlib import Path

import mlflow

from jaxrl import Config
from jaxrl.runs.sinks import Row, Sink


class MlflowSink:
    """Sends each row as it is written, and each step once."""

    def __init__(self, run_dir: Path, rows: list[Row]) -> None:
        self.client, file = mlflow.MlflowClient(), run_dir / "mlflow.txt"
        if not file.exists():
            file.write_text(self.client.create_run("0", run_name=run_dir.name).info.run_id)
        self.run_id = file.read_text()
        self.client.update_run(self.run_id, "RUNNING")
        self.sent = self.client.get_run(self.run_id).data.metrics.get("step", -1)
        for row in rows:  # new to a sink that a resume adds
            self.write(row)

    def write(self, row: Row) -> None:
        """Sends a row, unless it is of a step that a kill has undone and that was sent before."""
        if row["step"] > self.sent:
            values = {key: value for key, value in row.items() if value is not None}
            mlflow.log_metrics(values, step=row["step"], run_id=self.run_id)

    def flush(self) -> None:
        """Does nothing: a row is safe when `write` returns."""

    def close(self) -> None:
        """Ends the run there."""
        self.client.set_terminated(self.run_id)


def make(config: Config, run_dir: Path, rows: list[Row]) -> Sink:
    """Returns the sink of a run."""
    return MlflowSink(run_dir, rows)
