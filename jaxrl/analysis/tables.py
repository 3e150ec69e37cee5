"""Metrics of several runs as one table."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.analysis.groups import distinct_names
from jaxrl.config.diff import differences
from jaxrl.errors import UserError
from jaxrl.runs.directory import load_config

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


def load_table(run_dirs: Iterable[Path]) -> "pandas.DataFrame":
    """Returns all lines of the runs' metrics.jsonl as rows of one table; needs pandas.

    Columns: `run`, the directory's name, with parent folders where two are equal; `game`,
    `algorithm` and `seed`; the settings in which the runs differ, by their keys
    (`optimizer.learning_rate`); every key of the lines; `minutes`, which is `seconds` / 60. Missing
    values and those that are not finite numbers are NaN. Raises `UserError` if a directory is not a
    run directory or cannot be read.
    """
    import pandas

    from jaxrl.runs import metrics

    run_dirs = list(run_dirs)
    if not run_dirs:
        raise UserError("a table needs at least one run directory")
    configs = [load_config(run_dir) for run_dir in run_dirs]
    rows: list[dict[str, Any]] = []
    columns = dict.fromkeys(["run", "game", "algorithm", "seed"])
    parts = zip(run_dirs, distinct_names(run_dirs), configs, differences(configs), strict=True)
    for run_dir, name, config, settings in parts:
        about = {"run": name, "game": config.game, "algorithm": config.algorithm}
        about |= {"seed": config.seed} | settings
        about.pop("run_dir", None)
        columns |= dict.fromkeys(about)
        for line in metrics.read(run_dir):
            figures = {k: float("nan") if value is None else value for k, value in line.items()}
            rows.append(figures | about | {"minutes": line["seconds"] / 60})
    columns |= dict.fromkeys(["step", "frames", "seconds", "minutes", "return_mean"])
    columns |= dict.fromkeys(key for row in rows for key in row)
    return pandas.DataFrame(rows, columns=list(columns))
