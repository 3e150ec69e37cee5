"""Several seeds in one program beside one seed: agent steps per second over all.

    python docs/examples/population_speed.py --config a2c_fast --game catch --seeds 1 2 3 4

Runs one after another train at the speed of one. The programs take turns, so that a busy machine
slows all of them; the ratio is the median of the turns' ratios.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro

from jaxrl.agents import make_agent
from jaxrl.config.schema import Config
from jaxrl.config.toml import load_recipe
from jaxrl.envs import make_engines
from jaxrl.experiments import bench
from jaxrl.program.program import make_program
from jaxrl.runtime.mesh import num_local_devices
from jaxrl.training.planning import plan_training


class Training(NamedTuple):
    """A compiled program and its state."""

    compiled: Any
    state: Any
    steps: int  # agent steps of an update, over all seeds
    compile_seconds: float

    def after(self, updates: int) -> "Training":
        """Trains for `updates` updates."""
        state = jax.block_until_ready(self.compiled(self.state, np.int32(updates)))
        return self._replace(state=state)


def begin(config: Config, seeds: Sequence[int]) -> Training:
    """Starts the games of the seeds and compiles."""
    plan, mesh = plan_training(config, len(seeds))
    engines = make_engines(plan, num_local_devices(mesh), len(seeds))
    agent = make_agent(plan, engines[0].spec._replace(num_envs=plan.envs_per_learner))
    program = make_program(plan, agent, engines, mesh, seeds)
    state = program.init()
    began = time.perf_counter()
    compiled = program.run.lower(state, np.int32(1)).compile()
    steps = plan.steps_per_update * len(seeds)
    return Training(compiled, state, steps, time.perf_counter() - began)


def timed(training: Training, updates: int) -> tuple[Training, float]:
    """Returns the training after `updates` updates, and its agent steps per second."""
    began = time.perf_counter()
    after = training.after(updates)
    return after, updates * training.steps / (time.perf_counter() - began)


def main(
    config: str = "a2c_fast",
    game: str = "catch",
    seeds: tuple[int, ...] = (1, 2, 3, 4),
    num_envs: int | None = None,
    seconds: float = 3.0,
    turns: int = 10,
) -> None:
    """Prints the speed of one seed, of all at once, and their ratio.

    Args:
      config: stem of a configuration, or its file.
      game: to play.
      seeds: that train at once.
      num_envs: environments of each; default is the configuration's.
      seconds: of one turn, about.
      turns: of each program.
    """
    recipe = load_recipe(Path(config)).replaced(game=game)
    recipe = bench.prepare(recipe.replaced(num_envs=num_envs or recipe.num_envs)).config
    trained = {"one seed": begin(recipe, seeds[:1]), f"{len(seeds)} at once": begin(recipe, seeds)}
    rates: dict[str, list[float]] = {name: [] for name in trained}
    counts = {}
    for name, training in trained.items():
        warm, _ = timed(training, 2)
        trained[name], rate = timed(warm, 2)
        counts[name] = max(1, round(seconds * rate / training.steps))
    for _ in range(turns):
        for name, count in counts.items():
            trained[name], rate = timed(trained[name], count)
            rates[name].append(rate)
    for name, found in rates.items():
        compile_seconds = trained[name].compile_seconds
        print(f"{name}: {statistics.median(found):,.0f} steps/s, from {min(found):,.0f} to "
              f"{max(found):,.0f}; compiled in {compile_seconds:.0f} s")  # fmt: skip
    one, many = rates.values()
    ratios = [b / a for a, b in zip(one, many, strict=True)]
    print(f"ratio: {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    tyro.cli(main)
