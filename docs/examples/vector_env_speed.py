"""Steps per second of three Gymnasium vector environments, in turns: ours, ale-py's, EnvPool's.

    python docs/examples/vector_env_speed.py --games pong breakout --num-envs 64 --seconds 5

Actions are random and drawn before; every environment shows four stacked gray frames of 84 x 84.
CPU seconds are of all threads of the process, so they compare also where others use the machine.
"""

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tyro

Library = Literal["jaxrl", "ale-py", "envpool"]


def make(library: Library, game: str, num_envs: int, num_threads: int = 0) -> tuple[Any, int]:
    """Returns the environments of a library and the number of their actions.

    With `num_threads` 0 a library takes as many threads as it likes.
    """
    sizes = {"num_envs": num_envs, "num_threads": num_threads}
    if library == "jaxrl":
        from jaxrl.envs import VectorEnv

        ours = VectorEnv(game, **sizes)
        return ours, ours.single_action_space.n
    if library == "ale-py":
        from ale_py.vector_env import AtariVectorEnv

        ale = AtariVectorEnv(game, **sizes)
        return ale, ale.single_action_space.n
    import envpool

    name = f"{game.title().replace('_', '')}-v5"
    pool = envpool.make_gymnasium(name, reward_clip=True, **sizes)
    return pool, pool.action_space.n


def rates(step: Callable[[np.ndarray], Any], actions: np.ndarray, seconds: float) -> np.ndarray:
    """Returns steps per second and per CPU second: f64[2]."""
    for row in actions[:10]:
        step(row)
    began, cpu, steps = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < began + seconds:
        step(actions[steps % len(actions)])
        steps += 1
    spent = np.array([time.perf_counter() - began, time.process_time() - cpu])
    return steps * actions.shape[1] / spent


def main(
    games: tuple[str, ...] = ("pong", "breakout"),
    libraries: tuple[Library, ...] = ("jaxrl", "ale-py", "envpool"),
    num_envs: int = 64,
    seconds: float = 5.0,
    repeats: int = 3,
) -> dict[tuple[str, str], np.ndarray]:
    """Prints the medians of each library, and their ratio to the first one's."""
    medians = {}
    for game in games:
        turns: dict[str, list[np.ndarray]] = {library: [] for library in libraries}
        for turn in range(repeats):
            for library in libraries:
                envs, num_actions = make(library, game, num_envs)
                envs.reset()
                drawn = np.random.default_rng(turn).integers(0, num_actions, (100, num_envs))
                turns[library].append(rates(envs.step, drawn.astype(np.int32), seconds))
                envs.close()
        for library in libraries:
            medians[game, library] = np.median(turns[library], axis=0)
            ratios = medians[game, libraries[0]] / medians[game, library]
            wall, cpu = medians[game, library]
            print(
                f"{game:16} {library:8} {wall:9,.0f} steps/s ({ratios[0]:.1f}), "
                f"{cpu:9,.0f} per CPU second ({ratios[1]:.1f})"
            )
    return medians


if __name__ == "__main__":
    tyro.cli(main)
