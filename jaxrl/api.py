"""The public API: what a script or a notebook imports from `jaxrl`.

Paths may be strings. A run is named by its directory, a folder of runs stands for those in it, and
a policy may be a run, a file of `jaxrl export`, or the name of one that comes with jaxrl.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.config.schema import Config
from jaxrl.config.toml import load_recipe, merge

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

    from jaxrl.evaluation.policy import Policy
    from jaxrl.runs.evaluation_record import Evaluation
    from jaxrl.types import EnvEngine

OnMetrics = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A run that was trained here."""

    directory: Path
    step: int  # agent steps so far
    signal: int | None = None  # that stopped it early; everything is saved

    @property
    def metrics(self) -> "pandas.DataFrame":
        """The lines of metrics.jsonl as a table."""
        return load_runs(self.directory)

    @property
    def evaluation(self) -> "Evaluation":
        """The newest evaluation. Raises `UserError` if there is none."""
        from jaxrl.runs import evaluation_record

        return evaluation_record.read(self.directory)

    def policy(self, checkpoint: int | str | None = None) -> "Policy":
        """Loads the policy of the newest checkpoint, of this agent step, or of the "best"."""
        return load_policy(self.directory, checkpoint)


def load_config(path: str | Path, **changes: Any) -> Config:
    """Reads a configuration, to train from or to change.

    Args:
      path: a TOML file, or the stem of one that comes with jaxrl: "ppo_pong".
      changes: values to replace: `game="breakout"`; a section takes a table of its changes,
        `optimizer={"learning_rate": 1e-4}`.

    Raises `UserError` for an unknown file, key or value.
    """
    loaded: Config = merge(load_recipe(Path(path)), changes)
    return loaded


def train(
    config: Config | str | Path, *, on_metrics: OnMetrics | None = None, **changes: Any
) -> Run:
    """Trains a new run and returns it; progress is shown on standard error.

    Ctrl-C, or a notebook's interrupt, saves and returns; a second one, or one before training
    begins, raises `KeyboardInterrupt`.

    Args:
      config: a configuration, or what `load_config` reads.
      on_metrics: called with every line of metrics.jsonl as it is written; runs between two
        compiled calls.
      changes: as for `load_config`.

    Raises `UserError` before anything is compiled or overwritten; `RunError` where training fails.
    """
    from jaxrl.training import train as training

    config = load_config(config) if isinstance(config, str | Path) else config
    outcome = training.start(merge(config, changes), on_metrics, ends_process=False)
    return Run(outcome.run_dir, outcome.step, outcome.signal)


def resume(
    run: str | Path,
    *,
    num_devices: int | None = None,
    override: str | Iterable[str] = (),
    on_metrics: OnMetrics | None = None,
) -> Run:
    """Continues a run from its newest good checkpoint, and returns it.

    Args:
      run: its directory.
      num_devices: to go on with; default is the configuration's.
      override: a setting that changes, as "total_steps=2e6", or several.
      on_metrics: as for `train`.

    Raises `UserError` and `RunError` as `train` does, `DamagedError` if every checkpoint is.
    """
    from jaxrl.training import train as training

    overrides = (override,) if isinstance(override, str) else tuple(override)
    outcome = training.resume(Path(run), num_devices, overrides, on_metrics, ends_process=False)
    return Run(outcome.run_dir, outcome.step, outcome.signal)


def load_policy(path: str | Path, checkpoint: int | str | None = None) -> "Policy":
    """Loads a trained policy, which answers observations: `act`, `probabilities`, `value`.

    Args:
      path: a run directory, a policy's file, or the name of a policy that comes with jaxrl: "pong".
      checkpoint: agent step of a run's checkpoint, "latest" or "best"; default is the newest.

    Raises `UserError` if there is none, `DamagedError` if it has changed since it was written.
    """
    from jaxrl.evaluation import policy

    return policy.load_policy(path, checkpoint)


def load_runs(paths: str | Path | Iterable[str | Path]) -> "pandas.DataFrame":
    """Returns all lines of the runs' metrics.jsonl as rows of one table.

    Columns: `run`, the directory's name; `game`, `algorithm` and `seed`; the settings in which the
    runs differ, by their keys; every key of the lines; `minutes` of training. Runs of a folder that
    have no line yet are left out. Raises `UserError` if a path is no run, or cannot be read.
    """
    from jaxrl.analysis.tables import load_table
    from jaxrl.runs.metrics import lacks_lines
    from jaxrl.runs.paths import expand, naming_policies

    names = [paths] if isinstance(paths, str | Path) else list(paths)
    with naming_policies():
        return load_table(expand(map(Path, names), lacks_lines))


def make_engine(game: str | Config, num_envs: int) -> "EnvEngine":
    """Returns a batch of environments that compiled programs step, as `jaxrl.types` describes it.

    Args:
      game: its name, or a configuration that holds more than that under `env`.
      num_envs: environments.

    Example:
      engine = jaxrl.make_engine("catch", 8)
      state, step = engine.init(0)  # the seed; a step is a `TimeStep`
      play = jax.jit(lambda state, action: engine.recv(engine.send(state, action)))
      state, step = play(state, jnp.ones(8, jnp.int32))
      print(step.frame.shape, step.reward)  # (8, 84, 84), and eight rewards
      engine.close()

    Raises `UserError` for an unknown game, or one that cannot be played here.
    """
    from jaxrl.config.validation import check_playable
    from jaxrl.envs import engines

    config = Config(game=game) if isinstance(game, str) else game
    config = merge(config, {"num_envs": num_envs})
    check_playable(config)
    engines.check_engine(config.game, engines.choose_engine(config.game, config.env))
    return engines.make_engine(config, config.num_envs)
