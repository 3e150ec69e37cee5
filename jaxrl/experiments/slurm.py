"""Sweeps as arrays of SLURM jobs."""

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl.errors import UserError
from jaxrl.experiments.members import Member, state
from jaxrl.experiments.runner import SignalRelay, train


@dataclass(frozen=True)
class Slurm:
    """The resources of each job of the array, as the options have them; None is the cluster's."""

    partition: str | None = None
    time: int = 1440  # minutes until a job is saved and queued again
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    array_parallelism: int = 16


class Job:
    """One job of the array, called by submitit: trains a member, or resumes it.

    When SLURM says that the time is up, or that others come first, submitit calls `checkpoint` and
    queues the job again. That covers both cases, where `--requeue` alone covers only preemption;
    it is set too, for a node that is lost: whatever starts the job again, it resumes its member.
    """

    def __init__(self) -> None:
        self._stop = SignalRelay()

    def __call__(self, member: Member) -> None:
        """Trains; raises `RuntimeError` where it fails, which SLURM counts as a failed job."""
        if state(member) == "done":
            return
        status = train(member, self._stop)
        if status:
            raise RuntimeError(f"{member.name} ended with status {status}: see {member.log}")

    def checkpoint(self, member: Member) -> Any:
        """Lets the member save and end, and returns the same job to be queued again."""
        import submitit

        self._stop.handle(signal.SIGTERM)
        self._stop.wait_ended()
        return submitit.helpers.DelayedSubmission(Job(), member)


def submit(members: list[Member], root: Path, slurm: Slurm, cluster: str = "slurm") -> list[Any]:
    """Submits one array of jobs, one for each member; returns submitit's jobs.

    submitit pickles the jobs into ROOT/slurm, and they are read there by submitit alone, within
    the jobs; no run directory holds or needs a pickle. `cluster` may be "local", to try it out.
    Raises `UserError` where submitit is missing or SLURM refuses.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--slurm needs submitit: pip install -e '.[slurm]'") from None
    try:
        executor = submitit.AutoExecutor(
            folder=root / "slurm",
            cluster=cluster,
            slurm_max_num_timeout=100,  # it continues each time: no time limit is a failure
        )
        executor.update_parameters(
            name="jaxrl-sweep",
            timeout_min=slurm.time,
            gpus_per_node=slurm.gpus_per_node,
            cpus_per_task=slurm.cpus_per_task,
            slurm_partition=slurm.partition,
            slurm_array_parallelism=slurm.array_parallelism,
            slurm_signal_delay_s=180,  # to end a compiled call, and save a replay of gigabytes
            slurm_additional_parameters={"requeue": True},
        )
        return executor.map_array(Job(), members)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"SLURM does not take the sweep: {reason}") from None
