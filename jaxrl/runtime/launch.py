"""The processes that train together, from options or from a launcher's environment."""

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass

from jaxrl.errors import UserError

SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"  # "2(x3),1": two on each of three nodes, one on a fourth


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that train together; not part of a run."""

    coordinator: str = ""
    """HOST:PORT of process 0, the same for all; default is what SLURM, Open MPI or Cloud TPU say
    (Kubernetes: with jax[k8s]), if they started several processes"""
    num_processes: int = 0
    """processes in all; with --coordinator. 1 alone: this one trains alone in any cluster"""
    process_id: int = -1
    """which of them this is, from 0; with --coordinator"""
    join_within: float = 300.0
    """seconds to wait for the others at the start, at least 5"""
    lost_after: float = 30.0
    """seconds, at least 5, without a sign of life after which a process counts as lost, and all
    others end"""


def check_launch(launch: Launch) -> None:
    """Raises `UserError` if the options do not identify this process and the number of all."""
    for name in ("join_within", "lost_after"):
        value = getattr(launch, name)
        if not 5 <= value <= 10**6:
            raise UserError(f"{name} = {value}: must lie between 5 and 1000000 seconds")
    host, _, port = launch.coordinator.rpartition(":")
    if launch.coordinator and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(f"coordinator = '{launch.coordinator}': must be HOST:PORT of process 0")
    if launch.num_processes < 0 or launch.process_id < -1:
        raise UserError("num_processes and process_id: must not be negative")
    if launch == dataclasses.replace(Launch(), num_processes=1):
        return  # alone, whatever a launcher has set
    if launch.num_processes and launch.process_id == -1:
        raise UserError("--process-id is missing: which of the processes this is, from 0")
    if launch.process_id >= 0 and not launch.num_processes:
        raise UserError("--num-processes is missing: how many processes train together")
    if launch.num_processes and not launch.coordinator:
        raise UserError("--num-processes needs --coordinator HOST:PORT, the address of process 0")
    if launch.process_id >= max(launch.num_processes, 1):
        raise UserError(
            f"process_id = {launch.process_id}: {launch.num_processes} processes are counted from "
            f"0 to {launch.num_processes - 1}"
        )


def launchers_number(environment: Mapping[str, str], name: str, otherwise: int | None) -> int:
    """Returns a whole number that a launcher sets; `otherwise` where it is not set, or empty.

    Raises `UserError` if it is another text, or must be there and is not.
    """
    text = environment.get(name, "").strip()
    if not text and otherwise is not None:
        return otherwise
    if not text.isdecimal():
        raise _malformed(name, text)
    return int(text)


def _malformed(name: str, text: str) -> UserError:
    return UserError(f"the environment has {name} = '{text}', which no launcher sets: unset it, or "
                     "add --num-processes 1 to train alone")  # fmt: skip


def launched_together(environment: Mapping[str, str]) -> bool:
    """Returns whether a launcher that JAX knows has started several processes.

    Raises `UserError` if its variables make no sense.
    """
    step = environment.get("SLURM_STEP_NODELIST")  # a step of srun, not the script of sbatch
    if step and launchers_number(environment, "SLURM_NTASKS", 1) > 1:
        return True
    if launchers_number(environment, "OMPI_COMM_WORLD_SIZE", 1) > 1:
        return True
    # JAX asks the cluster about the other pods of an Indexed Job, if it can.
    in_job = {"JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"} <= set(environment)
    return in_job and importlib.util.find_spec("kubernetes") is not None


def local_gpus(environment: Mapping[str, str], present: int) -> list[int] | None:
    """Returns the visible GPUs that this process takes; None if no launcher numbers the process.

    By default JAX gives the i-th process of a machine the i-th GPU. That is none if the launcher
    shows each process only its own GPUs, and only the first if a machine runs a single process.

    Args:
      environment: this process's variables.
      present: GPUs of the machine.

    Raises `UserError` if the launcher's variables make no sense.
    """
    tasks, rank = "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
    if environment.get(SLURM_TASKS) and environment.get("SLURM_LOCALID"):
        rank, num_tasks = "SLURM_LOCALID", _tasks_of_this_node(environment)
    elif environment.get(tasks):
        num_tasks = launchers_number(environment, tasks, None)
    else:
        return None
    shown = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    visible = list(range(len(shown) or present))
    per_task = environment.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2]
    if not visible or len(visible) == 1 or per_task == str(len(visible)):
        return visible or None
    share = max(1, len(visible) // max(1, num_tasks))
    first = launchers_number(environment, rank, None) * share % len(visible)
    return visible[first : first + share]


def _tasks_of_this_node(environment: Mapping[str, str]) -> int:
    """Returns how many processes SLURM runs on this node. Raises `UserError`."""
    counts: list[int] = []
    for part in environment[SLURM_TASKS].split(","):  # 2(x3),1: 2, 2, 2, 1
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise _malformed(SLURM_TASKS, environment[SLURM_TASKS])
        counts += [int(match[1])] * int(match[2] or 1)
    node = launchers_number(environment, "SLURM_NODEID", 0)
    if node >= len(counts):
        raise _malformed("SLURM_NODEID", str(node))
    return counts[node]
