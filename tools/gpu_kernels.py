"""Times the emulator's kernels on a GPU, apart and together.

    python tools/gpu_kernels.py [GAME ...]

For each number of games it prints agent steps per second of the kernel that plays, of that and the
one that draws, and of all three, as a compiled program of 32 steps launches them.
"""

import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.envs.atari2600 import engine as chosen
from jaxrl.envs.atari2600.gpu_engine import AGAIN, DRAW, STEP
from jaxrl.errors import UserError

# The last thinks for whole frames, so that the kernel that plays again has rows.
GAMES = ("pong", "breakout", "seaquest", "montezuma_revenge", "tic_tac_toe_3d")
# 59,136 are those that play at the same time on an H100.
NUM_GAMES = (1024, 4096, 16_384, 59_136, 65_536)
KERNELS = {"play": STEP, "play, draw": STEP | DRAW, "all": STEP | DRAW | AGAIN}
STEPS = 32  # steps of a call
SECONDS = 2.0  # seconds of each measurement


def rate(game: str, num_envs: int, kernels: int, seconds: float = SECONDS) -> float:
    """Returns agent steps per second of some kernels on one GPU, with random actions."""
    env = {"engine": "atari2600", "interface": "xla", "random_start_steps": 100}
    config = Config().replaced(game=game, env=env)
    if not chosen.plays_on_gpu(config.env):
        raise UserError("there is no NVIDIA GPU here: nothing was measured")
    engine = make_engine(config, num_envs)
    state, _ = engine.init(1)
    random = np.random.default_rng(0)
    actions = random.integers(0, engine.spec.num_actions, (STEPS, num_envs)).astype(np.int32)

    def step(state: Any, action: jax.Array) -> tuple[Any, None]:
        return partial(engine.send, kernels=kernels)(state, action), None

    def run(state: Any, actions: jax.Array) -> Any:
        return jax.lax.scan(step, state, actions)[0]

    compiled = jax.jit(run, donate_argnums=0)
    state, actions = jax.tree.map(jnp.asarray, (state, actions))
    state = jax.block_until_ready(compiled(state, actions))
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        state = jax.block_until_ready(compiled(state, actions))
        calls += 1
    return calls * STEPS * num_envs / (time.perf_counter() - began)


def main(games: list[str]) -> int:
    """Prints a table for each game; returns the exit status."""
    for game in games or GAMES:
        print(f"\n{game}, {jax.devices()[0].device_kind}: agent steps per second\n")
        print("| games |" + "".join(f" {name} |" for name in KERNELS) + "\n|" + "---|" * 4)
        for num_envs in NUM_GAMES:
            try:
                rates = [rate(game, num_envs, kernels) for kernels in KERNELS.values()]
            except UserError as error:
                print(error, file=sys.stderr)
                return error.status
            print(f"| {num_envs:,} |" + "".join(f" {x:,.0f} |" for x in rates), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
