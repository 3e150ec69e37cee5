"""`jaxrl train` and `jaxrl resume`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.cli.outcome import run_together, status_of
from jaxrl.cli.parsing import RunDir, at_least, parse, parse_settings
from jaxrl.config.schema import Config
from jaxrl.runtime.launch import Launch, check_launch


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train an agent and leave a run directory.

    The options under agent are those of --config's algorithm.
    Example: jaxrl train --config configs/a2c/a2c.toml --game pong --total-steps 3e6 --seed 1
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """TOML file that the other options override"""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Launch)


def train(arguments: list[str]) -> int:
    """Train an agent and leave a run directory."""
    parsed = parse_settings(TrainArguments, "train", arguments)
    check_launch(parsed.launch)
    config: Config = parsed.settings
    from jaxrl.runs.directory import check_new_run, default_run_dir

    if not config.run_dir:
        config = dataclasses.replace(config, run_dir=default_run_dir(config))

    def work(alone: bool) -> int:
        if alone:
            check_new_run(config)
        from jaxrl.training.train import start

        return status_of(start(config))

    return run_together(parsed.launch, work)


def resume(arguments: list[str]) -> int:
    """Continue a run from its newest checkpoint, with the configuration it was started with."""

    def command(
        run: RunDir,
        num_devices: int | None = None,
        override: tuple[str, ...] = (),
        launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch(),  # noqa: B008
    ) -> tuple[Path, int | None, tuple[str, ...], Launch]:
        """Continue a run from its newest checkpoint, with the configuration it was started with.

        Emulators cannot be saved, so new games begin; everything learned goes on as it was.
        The configuration must be that of the checkpoint, but for the keys that --override names.
        Example: jaxrl resume runs/x --override total_steps=20e6

        Args:
            run: run directory
            num_devices: devices to go on with, 0 for every accelerator; default is what the run's
                configuration says
            override: keys that change, as KEY=VALUE, or KEY for what config.toml says now
            launch: how this process finds those that train with it
        """
        return run, num_devices, override, launch

    run_dir, num_devices, override, launch = parse(command, "resume", arguments)
    check_launch(launch)
    if num_devices is not None:
        at_least("num_devices", num_devices, 0)

    def work(_: bool) -> int:
        from jaxrl.training.train import resume as resume_run

        return status_of(resume_run(run_dir, num_devices, override))

    return run_together(launch, work)
