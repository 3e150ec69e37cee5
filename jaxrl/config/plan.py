"""A configuration resolved: what follows from it, from the number of devices and the machine."""

import dataclasses
import math
from dataclasses import dataclass

from jaxrl.config.algorithm_base import Sizes, check_one_of, divisors
from jaxrl.config.bounds import EXACT_FRAMES
from jaxrl.config.schema import Config, EnvConfig
from jaxrl.errors import UserError


@dataclass(frozen=True)
class Plan:
    """The answers that a configuration leaves open; agents, program and loop read them here."""

    config: Config
    env: EnvConfig  # its section, with the engine and the interface that play on this machine
    num_devices: int
    num_learners: int  # over all devices; each plays and learns with its share
    envs_per_device: int
    envs_per_learner: int
    steps_per_update: int  # agent steps over all devices
    num_updates: int  # updates of the whole run, in whole merges
    total_steps: int  # agent steps of these updates: total_steps of the configuration or more
    gradient_steps: int  # gradient steps of an update
    batch_per_learner: int  # rows of a learner's gradient; V-trace's windows, or sequences
    learning_rate: float  # at the start, scaled as `optimizer.lr_scaling` says
    updates_per_merge: int  # updates between merges of learners that learn apart; else 1
    updates_per_line: int  # updates between lines of metrics.jsonl
    rollout_bytes: int  # bytes of a rollout's observations, on each device

    def of(self, config: Config) -> "Plan":
        """Returns the plan of a configuration with the same sizes, as of another seed."""
        return dataclasses.replace(self, config=config)


def resolve(config: Config, num_devices: int | None = None, env: EnvConfig | None = None) -> Plan:
    """Returns the plan of a configuration.

    Args:
      config: the configuration of a run to train, or of a run that was trained anywhere.
      num_devices: to train on; 0 where they are not counted yet, which refuses only what no number
        would mend. A reader of a finished run leaves it out: nothing is refused, and steps and
        updates are the same on every number of devices.
      env: the section as `envs.choose_engine` returns it; who plays nothing leaves it out.

    Raises `UserError`, which names the nearest sizes that divide.
    """
    if num_devices is not None:
        _check_sizes(config, num_devices)
    num_devices = num_devices or config.parallel.num_devices or 1
    sizes = _sizes(config, num_devices)
    agent, merge = config.agent, max(config.parallel.sync_every, 1)
    steps = config.num_envs * agent.rollout_length
    num_updates = -(-config.total_steps // (steps * merge)) * merge
    return Plan(
        config=config,
        env=env or config.env,
        num_devices=num_devices,
        num_learners=sizes.num_learners,
        envs_per_device=config.num_envs // num_devices,
        envs_per_learner=sizes.envs_per_learner,
        steps_per_update=steps,
        num_updates=num_updates,
        total_steps=num_updates * steps,
        gradient_steps=agent.gradient_steps(config.num_envs),
        batch_per_learner=agent.batch_per_learner(sizes),
        learning_rate=scaled_learning_rate(config),
        updates_per_merge=merge,
        updates_per_line=merge * max(1, round(config.log.interval / (steps * merge))),
        rollout_bytes=_rollout_bytes(config) // num_devices,
    )


def _rollout_bytes(config: Config) -> int:
    """Returns the bytes of a rollout's observations, over all devices."""
    pixels = math.prod(config.env.frame_shape) * config.env.stack
    rows = (config.agent.rollout_length + 1) * config.num_envs
    return rows * (pixels + 4 * config.network.core_size)


def scaled_learning_rate(config: Config) -> float:
    """Returns the learning rate at the start, scaled as `optimizer.lr_scaling` says."""
    optimizer = config.optimizer
    factor = config.num_envs / (optimizer.recipe_envs or config.num_envs)
    power = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[optimizer.lr_scaling]
    return optimizer.learning_rate * factor**power


def with_learners(config: Config, num_devices: int) -> Config:
    """Returns the configuration with one learner on each device, where their number is open."""
    if not config.parallel.sync_every or config.parallel.num_learners:
        return config
    return config.replaced(parallel={"num_learners": num_devices})


def _sizes(config: Config, num_devices: int) -> Sizes:
    """Returns the environments and the devices or learners that share them."""
    num_learners = config.parallel.num_learners
    return Sizes(
        num_envs=config.num_envs,
        num_devices=num_devices,
        num_learners=num_learners or num_devices,
        groups=config.parallel.groups,
        owner="learner" if num_learners else "device",
        sequences=config.network.remembers,
    )


def _check_sizes(config: Config, num_devices: int) -> None:
    """Refuses environments that do not divide among devices, learners, groups or minibatches."""
    num_learners, groups = config.parallel.num_learners, config.parallel.groups
    # What divides among many devices divides for one, so one stands for an unknown number.
    sizes = _sizes(config, num_devices or 1)
    if num_learners % sizes.num_devices:
        fitting = max(1, round(num_learners / num_devices)) * num_devices
        raise UserError(
            f"parallel.num_learners = {num_learners} does not divide among {num_devices} devices: "
            f"take {fitting}, or 0 for one on each"
        )
    _check_shares(sizes)
    if groups > 1 and sizes.num_learners > num_devices > 0:
        raise UserError(
            "parallel.groups: several learners of a device play in one group; leave it at 1"
        )
    check_one_of("parallel.groups", groups, divisors(sizes.envs_per_learner), sizes.whole)
    _check_batches(config, sizes)
    _check_length(config)
    # Where each device has a learner, its environments are known with the devices.
    if num_devices or num_learners or not config.parallel.sync_every:
        _check_statistics(config, sizes)


def _check_batches(config: Config, sizes: Sizes) -> None:
    """Refuses rollouts that are too large, and batches that do not divide."""
    agent = config.agent
    steps = config.num_envs * agent.rollout_length
    if steps >= 2**31:
        raise UserError(f"num_envs x agent.rollout_length = {steps}: must be below 2147483648")
    agent.check_sizes(sizes)
    if agent.micro_batch:
        batch = agent.batch_per_learner(sizes)
        unit = "sequences" if sizes.sequences else agent.batch_unit
        whole = f"the {batch} {unit} of a gradient"
        check_one_of("agent.micro_batch", agent.micro_batch, divisors(batch), whole)


def _check_length(config: Config) -> None:
    """Refuses runs whose steps of every environment a program could not count in 32 bits."""
    merge = max(config.parallel.sync_every, 1) * config.agent.rollout_length
    if merge >= 2**31:
        raise UserError(
            f"parallel.sync_every x agent.rollout_length = {merge}: must be below 2147483648"
        )
    most = (2**31 - 1) // merge * merge * config.num_envs
    if config.total_steps > most:
        raise UserError(
            f"total_steps = {config.total_steps}: {config.num_envs} environments play at most "
            f"{most}; take that, and stop the run when you like"
        )


def _check_statistics(config: Config, sizes: Sizes) -> None:
    """Refuses steps of more frames than running statistics add up exactly in 32 bits."""
    most = EXACT_FRAMES * (sizes.num_learners if config.parallel.sync_every else 1)
    if config.network.normalize_observations and config.num_envs > most:
        raise UserError(
            f"num_envs = {config.num_envs}: network.normalize_observations counts at most {most} "
            "exactly; take that, or --network.no-normalize-observations"
        )


def _check_shares(sizes: Sizes) -> None:
    """Refuses environments that do not divide among the learners."""
    num_envs, parts, owner = sizes.num_envs, sizes.num_learners, sizes.owner
    if num_envs < parts:
        raise UserError(
            f"num_envs = {num_envs} is too few for {parts} {owner}s: take "
            f"{parts}, or --parallel.num-{owner}s {max(num_envs, 1)}"
        )
    if num_envs % parts:
        below = num_envs // parts * parts
        raise UserError(
            f"num_envs = {num_envs} does not divide among {parts} {owner}s: "
            f"take {below} or {below + parts}"
        )
