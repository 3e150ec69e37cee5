"""`jaxrl train` and `jaxrl resume`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from jaxrl.cli.outcome import exit_status, run_together
from jaxrl.cli.parsing import Recipe, RunDir, at_least
from jaxrl.runtime.launch import Launch, check_launch
from jaxrl.runtime.parent import end_with_parent


@dataclass(frozen=True)
class Train(Recipe):
    """Train an agent and leave a run directory.

    The options under agent are those of --config's algorithm.
    Example: jaxrl train --config a2c --game pong --total-steps 3e6 --seed 1
    """

    first_options: ClassVar[tuple[str, ...]] = (  # shown first in the help
        "--config",
        "--game",
        "--seed",
        "--total-steps",
        "--num-envs",
        "--run-dir",
        "--env.engine",
        "--parallel.num-devices",
        "--optimizer.learning-rate",
        "--log.interval",
        "--checkpoint.interval",
        "--evaluation.episodes",
    )
    seeds: tuple[int, ...] = ()
    """train a run with each of these seeds, all in one program, in RUN_DIR/seedSEED"""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = field(default_factory=Launch)


def train(arguments: Train) -> int:
    """Trains an agent, alone or together with other processes."""
    end_with_parent()
    check_launch(arguments.launch)
    config = arguments.settings
    if arguments.seeds:
        return _train_population(arguments)

    def work(alone: bool) -> int:
        from jaxrl.runs.directory import check_new_run

        if alone and config.run_dir:  # mistakes are reported before JAX is imported
            check_new_run(config)
        from jaxrl.training.train import start

        return exit_status(start(config))

    return run_together(arguments.launch, work)


def _train_population(arguments: Train) -> int:
    """Trains a run with each of --seeds, in this process."""
    from jaxrl.runs import population

    config, seeds = arguments.settings, arguments.seeds
    # Mistakes are reported before JAX is imported.
    configs = population.configs_of(config, seeds, Path(config.run_dir))
    if config.run_dir:
        population.check_new(Path(config.run_dir), configs)

    def work(_: bool) -> int:
        from jaxrl.training.train import start_population

        return exit_status(start_population(config, seeds))

    return run_together(arguments.launch, work)


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest checkpoint, with the configuration it was started with.

    The directory of several seeds (train --seeds) goes on with all of them.
    Everything continues exactly, the games too; EnvPool's cannot be saved, and new ones begin.
    The configuration must be that of the checkpoint, except for the keys that --override names.
    Example: jaxrl resume runs/x --override total_steps=20e6
    """

    run: RunDir
    """run directory"""
    num_devices: int | None = None
    """devices to go on with, 0 for every accelerator; default is num_devices of the run's
    configuration"""
    override: tuple[str, ...] = ()
    """keys that change, as KEY=VALUE, or KEY for the value that config.toml has now"""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = field(default_factory=Launch)


def resume(arguments: Resume) -> int:
    """Continues a run, alone or together with other processes."""
    end_with_parent()
    check_launch(arguments.launch)
    if arguments.num_devices is not None:
        at_least("num_devices", arguments.num_devices, 0)

    def work(_: bool) -> int:
        from jaxrl.training.train import resume as resume_run

        return exit_status(resume_run(arguments.run, arguments.num_devices, arguments.override))

    return run_together(arguments.launch, work)
