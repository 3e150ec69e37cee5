"""Checks that training fits into free memory, before it runs out."""

import re
from typing import Any

import jax
from jax.sharding import Mesh

from jaxrl.atari.games import CATCH
from jaxrl.config.algorithms import ReplayConfig, VTraceConfig
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.replay import buffer
from jaxrl.replay.buffer import USABLE, transition_bytes
from jaxrl.runtime.mesh import free_device_memory, free_host_memory, num_local_devices
from jaxrl.types import FRAME_SHAPE, STACK_SIZE

EMULATOR_BYTES = 4_400_000  # of one EnvPool environment (Pong, EnvPool 1.2.5)


def check_fits(
    capacity: int,
    share: float,
    free_bytes: int,
    copies: int,
    where: str,
    hint: str = "",
    frame_shape: tuple[int, int] = FRAME_SHAPE,
) -> None:
    """Raises `UserError`, with a capacity that fits, if the replay needs more than is free.

    Args:
      capacity: transitions over all devices.
      share: fraction of them that this memory holds.
      free_bytes: of this memory.
      copies: of the replay in it, 2 where a checkpoint passes through the same memory.
      where: the memory's name, for the message.
      hint: another remedy, for the message.
      frame_shape: height and width of a frame in pixels.
    """
    each = transition_bytes(frame_shape)
    fits = int(USABLE * free_bytes / (each * copies * share))
    if capacity > fits:
        rounded = fits // 10_000 * 10_000 or fits
        need, have = copies * capacity * share * each / 1e9, free_bytes / 1e9
        raise UserError(
            f"agent.replay_capacity = {capacity}: needs {need:.1f} GB {where}, and {have:.1f} GB "
            f"are free: {rounded} would fit{hint}"
        )


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


def _remedies(config: Config) -> str:
    """Returns the settings that make a program smaller, for messages."""
    remedies = ["fewer of num_envs"]
    if config.agent.rollout_length > 1:
        remedies.append("a shorter agent.rollout_length")
    if isinstance(config.agent, ReplayConfig):
        remedies.append("a smaller agent.batch_size or agent.replay_capacity")
    if isinstance(config.agent, VTraceConfig):
        remedies.append("a shorter agent.window")
    if config.lag:
        remedies.append("a smaller lag (each update of lag keeps a copy of the parameters)")
    return ", ".join([*remedies, "a smaller agent.micro_batch"])


def _check_play(config: Config, mesh: Mesh) -> None:
    """Raises `UserError` if the emulators, or the rollouts alone, do not fit."""
    local = config.num_envs * num_local_devices(mesh) // mesh.size
    host = free_host_memory()
    emulators = local * EMULATOR_BYTES * (config.game != CATCH)
    if emulators > host:
        raise UserError(
            f"num_envs = {config.num_envs}: the emulators need {_gigabytes(emulators, host)}: "
            f"about {int(buffer.USABLE * host / EMULATOR_BYTES)} would fit"
        )
    free, sharing = _free(mesh)
    length = config.agent.rollout_length
    stack = config.frame_height * config.frame_width * STACK_SIZE  # bytes
    need = (length + 1) * stack * config.num_envs // mesh.size * sharing
    if need > free:
        raise UserError(
            f"num_envs = {config.num_envs} and agent.rollout_length = {length}: a rollout "
            f"needs {_gigabytes(need, free)}: take {_remedies(config)}"
        )


def check_compiled(compiled: Any, config: Config, mesh: Mesh) -> None:
    """Raises `UserError` if the intermediate results of the compiled program do not fit."""
    analysis = compiled.memory_analysis()
    if analysis is None:  # not every platform has one
        return
    free, sharing = _free(mesh)
    need = analysis.temp_size_in_bytes * sharing
    if need > free:
        raise UserError(
            f"an update of {config.num_envs} environments needs {_gigabytes(need, free)}: take "
            f"{_remedies(config)}"
        )


def out_of_memory(
    error: jax.errors.JaxRuntimeError, config: Config, mesh: Mesh
) -> UserError | None:
    """Returns an error that names the settings to change if memory ran out, else None."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text:
        return None
    found = re.search(r"allocat\w+ ([\d.]+\s?[KMGT]?i?B?)", text)
    need = f" for {found[1].strip()}{' bytes' * found[1].strip().isdecimal()}" if found else ""
    return UserError(
        f"memory ran out{need} while {_free(mesh)[0] / 1e9:.1f} GB were free: "
        f"take {_remedies(config)}"
    )


def _check_windows(config: Config, agent: VTraceConfig, mesh: Mesh) -> None:
    """Raises `UserError` if V-trace's windows of past frames do not fit."""
    free, sharing = _free(mesh)
    step = buffer.transition_bytes(config.frame_shape())
    each = config.num_envs // mesh.size * sharing * step
    need = buffer.rows_for_window(agent.window, agent.rollout_length) * each
    usable = buffer.USABLE * free
    if need > usable:
        raise UserError(
            f"agent.window = {agent.window} and agent.rollout_length = {agent.rollout_length} of "
            f"{config.num_envs} environments need {need / 1e9:.1f} GB, and {usable / 1e9:.1f} GB "
            "can be used: take fewer of num_envs, or shorter windows"
        )


def check_memory(config: Config, mesh: Mesh) -> None:
    """Raises `UserError`, before anything is allocated, if the run does not fit into memory."""
    _check_play(config, mesh)
    if isinstance(config.agent, VTraceConfig):
        _check_windows(config, config.agent, mesh)
    if not isinstance(config.agent, ReplayConfig):
        return
    capacity, keeps = config.agent.replay_capacity, config.checkpoint_memory
    local = num_local_devices(mesh) / mesh.size
    host, shape = free_host_memory(), config.frame_shape()
    if _on_cpu(mesh):
        where = "of memory" + ", half of it for checkpoints" * keeps
        hint = ", or twice as much with --no-checkpoint-memory" * keeps
        check_fits(capacity, local, host, 1 + keeps, where, hint, shape)
        return
    free = free_device_memory(mesh)
    if free is not None:
        check_fits(capacity, 1 / mesh.size, free, 1, "on each device", frame_shape=shape)
    if keeps:
        where, hint = "of the host's memory for checkpoints", ", or any --no-checkpoint-memory"
        check_fits(capacity, local, host, 1, where, hint, shape)
