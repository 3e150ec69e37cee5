"""The lines that a session shows before it trains."""

from collections.abc import Sequence
from pathlib import Path

from jaxrl.config.effects import without_effect
from jaxrl.networks.convolution import dtype_of_layers, multiplies_bfloat16
from jaxrl.runtime import processes
from jaxrl.training.session import TrainingSession


def headline(sessions: Sequence[TrainingSession], where: Path) -> str:
    """Returns the lines that say what is trained, on which devices, for how long and where to."""
    session = sessions[0]
    config, total = session.config, session.plan.total_steps
    mesh = session.mesh
    devices = describe_devices(mesh.size, mesh.devices.flat[0].device_kind)
    if processes.count() > 1:
        devices += f" of {processes.count()} processes"
    rounded = f" ({total - config.total_steps:,} more, to end with a whole update)"
    runs = ""
    if len(sessions) > 1:
        seeds = ", ".join(str(member.config.seed) for member in sessions)
        runs = f" with seeds {seeds} at once, each with"
    lines = [
        f"{config.algorithm} on {config.game}{runs or ':'} {config.num_envs} environments, "
        f"{devices}, {total:,} steps{rounded * (total > config.total_steps)}, into {where}"
    ]
    # As without --config.
    if all(part == type(part)() for part in (config.agent, config.network, config.optimizer)):
        lines.append(
            f"these are the defaults of {config.algorithm}: `jaxrl configs` lists tuned settings"
        )
    lines += without_effect(config)
    dtype = config.network.dtype
    if multiplies_bfloat16(dtype) or dtype_of_layers(dtype) == "bfloat16":
        lines.append("the network multiplies in bfloat16")
    learners, every = config.parallel.num_learners, config.parallel.sync_every
    if learners:
        often = "update" if every == 1 else f"{every} updates"
        lines.append(f"{learners} learners, which merge after every {often}")
    rate, start = config.optimizer.learning_rate, session.plan.learning_rate
    if start != rate:
        lines.append(
            f"learning rate {start:.3g}: {rate:g} for {config.optimizer.recipe_envs} environments, "
            f"scaled ({config.optimizer.lr_scaling})"
        )
    if (first := config.agent.first_learning_step(config.num_envs)) >= total:
        lines.append(
            f"nothing will be learned: the first {first:,} agent steps fill the replay "
            "(agent.learning_starts), and total_steps is not above them"
        )
    return "\n".join(lines)


def describe_devices(count: int, kind: str = "") -> str:
    """Returns "1 device", "2 devices" or "2 cpu devices"."""
    return " ".join(filter(None, [str(count), kind, "device" + "s" * (count > 1)]))
