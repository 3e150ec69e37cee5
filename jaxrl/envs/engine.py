"""What every engine shares: how seeds are spread."""

import numpy as np


def first_env_seed(seed: int) -> int:
    """A seed for environment 0, far from that of other runs; environment i plays with it + i.

    EnvPool seeds environment i with seed + i, so that the runs 1 and 2 would share all but one of
    their games if a run's seed were taken as it is.
    """
    spread = np.random.SeedSequence(seed).generate_state(1)[0]
    return int(spread % 2**30)  # leaves room below EnvPool's 2**31 for as many environments
