"""What every engine shares: which environments it holds, and how seeds are spread."""

from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class Group:
    """Which of the equal groups of each device's environments an engine holds."""

    index: int = 0
    count: int = 1


WHOLE = Group()


def env_ids(num_envs: int, num_local_devices: int, group: Group) -> np.ndarray:
    """Numbers of a group's environments among all: i64[local devices, E].

    Environments are counted device by device, group by group, so that neither the number of
    devices nor that of groups changes what is played.
    """
    device = jax.process_index() * num_local_devices + np.arange(num_local_devices)
    first = (device * group.count + group.index) * num_envs
    return first[:, None] + np.arange(num_envs)


def first_env_seed(seed: int) -> int:
    """A seed for environment 0, far from that of other runs; environment i plays with it + i.

    EnvPool seeds environment i with seed + i, so that the runs 1 and 2 would share all but one of
    their games if a run's seed were taken as it is.
    """
    spread = np.random.SeedSequence(seed).generate_state(1)[0]
    return int(spread % 2**30)  # leaves room below EnvPool's 2**31 for as many environments
