"""Checks that training fits into free memory, before it runs out."""

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from jaxrl.config.memory import USABLE, bytes_per_transition, memory_bytes, saves_memory
from jaxrl.config.plan import Plan
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.runtime.mesh import free_device_memory, free_host_memory, num_local_devices

# Bytes of one environment by engine; Pong, EnvPool 1.2.5.
EMULATOR_BYTES = {"envpool": 4_400_000, "atari2600": 50_000, "catch": 0}


def check_fits(
    config: Config, *, free_bytes: int | float, share: float, copies: int = 1, where: str = ""
) -> None:
    """Raises `UserError`, with a size that fits, if an agent's memory needs more than is free.

    Args:
      config: with the algorithm's settings and the number of environments.
      free_bytes: free memory of the host or the device that holds the transitions.
      share: fraction of all devices' transitions that it holds.
      copies: copies of the transitions, 2 where a checkpoint passes through the same memory.
      where: the place's name, for the message.
    """
    need = copies * share * memory_bytes(config)
    if need > USABLE * free_bytes:
        fits = int(USABLE * free_bytes / (copies * share * bytes_per_transition(config)))
        needed = f"{need / 1e9:.1f} GB{where and ' ' + where}"
        raise config.agent.memory_refused(needed, f"{free_bytes / 1e9:.1f} GB", fits)


def _on_cpu(mesh: Mesh) -> bool:
    return mesh.local_devices[0].platform == "cpu"


def _free(mesh: Mesh) -> tuple[float, int]:
    """Returns the bytes free for arrays, and how many of this process's devices share them."""
    free = None if _on_cpu(mesh) else free_device_memory(mesh)
    if free is not None:
        return free, 1
    return free_host_memory(), num_local_devices(mesh)


def _gigabytes(need: float, free: float) -> str:
    return f"{need / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"


def _remedies(plan: Plan) -> str:
    """Returns the settings that make a program smaller, for messages."""
    remedies, config = ["fewer of num_envs"], plan.config
    if config.agent.rollout_length > 1:
        remedies.append("a shorter agent.rollout_length")
    remedies += config.agent.memory_savers
    if config.parallel.lag:
        remedies.append("a smaller lag (each update of lag keeps a copy of the parameters)")
    return ", ".join([*remedies, "a smaller agent.micro_batch"])


def _check_play(plan: Plan, mesh: Mesh, members: int) -> None:
    """Raises `UserError` if the emulators, or the rollouts alone, do not fit."""
    num_envs, host = plan.config.num_envs, free_host_memory()
    emulator = EMULATOR_BYTES.get(plan.env.engine, 0)
    emulators = members * plan.envs_per_device * num_local_devices(mesh) * emulator
    if emulators > host:
        raise UserError(
            f"num_envs = {num_envs}: the emulators need {_gigabytes(emulators, host)}: "
            f"about {int(USABLE * host / emulator / members)} would fit"
        )
    free, sharing = _free(mesh)
    need = members * plan.rollout_bytes * sharing
    if need > free:
        length = plan.config.agent.rollout_length
        raise UserError(
            f"num_envs = {num_envs} and agent.rollout_length = {length}: a rollout "
            f"needs {_gigabytes(need, free)}: take {_remedies(plan)}"
        )


def check_compiled(compiled: Any, plan: Plan, mesh: Mesh) -> None:
    """Raises `UserError` if the intermediate results of the compiled program do not fit."""
    analysis = compiled.memory_analysis()
    if analysis is None:  # not every platform has one
        return
    free, sharing = _free(mesh)
    need = analysis.temp_size_in_bytes * sharing
    if need > free:
        raise UserError(
            f"an update of {plan.config.num_envs} environments needs {_gigabytes(need, free)}: "
            f"take {_remedies(plan)}"
        )


def out_of_memory(error: jax.errors.JaxRuntimeError, plan: Plan, mesh: Mesh) -> UserError | None:
    """Returns an error that names the settings to change if memory ran out, else None."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text:
        return None
    match = re.search(r"allocat\w+ ([\d.]+\s?[KMGT]?i?B?)", text)
    size = match[1].strip() if match else ""
    need = f" for {size}{' bytes' * size.isdecimal()}" if size else ""
    return UserError(
        f"memory ran out{need} while {_free(mesh)[0] / 1e9:.1f} GB were free: "
        f"take {_remedies(plan)}"
    )


def check_memory(plan: Plan, mesh: Mesh, members: int = 1) -> None:
    """Raises `UserError`, before anything is allocated, if the run does not fit into memory.

    Of a population each of the `members` may take an equal share.
    """
    _check_play(plan, mesh, members)
    config = plan.config
    if not memory_bytes(config):
        return
    check = functools.partial(check_fits, config)
    keeps = saves_memory(config)
    local = num_local_devices(mesh) / mesh.size
    host = free_host_memory() / members
    if _on_cpu(mesh):
        where = "of host memory" + ", half of it for checkpoints" * keeps
        with _hint("or twice as much with --checkpoint.no-memory" * keeps):
            check(free_bytes=host, share=local, copies=1 + keeps, where=where)
        return
    free = free_device_memory(mesh)
    if free is not None:
        copies = 1 + (members > 1)  # those of a population are joined by a copy
        each, share = free / members, 1 / mesh.size
        check(free_bytes=each, share=share, copies=copies, where="on each device")
    elif not config.agent.remembers_past:
        check(free_bytes=host, share=local, where="of host memory")
    if keeps:
        with _hint("or any --checkpoint.no-memory"):
            check(free_bytes=host, share=local, where="of host memory for checkpoints")


@contextlib.contextmanager
def _hint(text: str) -> Iterator[None]:
    """Adds a remedy to the `UserError` of the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}{text and ', ' + text}") from None
