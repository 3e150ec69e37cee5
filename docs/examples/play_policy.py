"""Plays a game with a trained policy in a Gymnasium environment, without jaxrl's training.

    python docs/examples/play_policy.py pong

The argument is a policy that comes with jaxrl, a file of `jaxrl export`, or a run directory.
"""

import sys

import numpy as np

import jaxrl
from jaxrl.envs.atari2600 import VectorEnv


def play(path: str, num_games: int = 2, max_steps: int = 27_000) -> np.ndarray:
    """Returns the scores f64[num_games] of games that begin as in evaluations by `noop`."""
    policy = jaxrl.load_policy(path)
    env = VectorEnv(policy.config.game, num_games, reward_clipping=False, use_fire_reset=True)
    observation, _ = env.reset(seed=0)
    scores, over = np.zeros(num_games), np.zeros(num_games, bool)
    for step in range(max_steps):
        frames_last = np.moveaxis(observation, 1, -1)  # u8[num_games, 84, 84, 4]
        action = policy.act(frames_last, seed=step)
        observation, reward, terminated, truncated, _ = env.step(action)
        scores += reward * ~over
        over |= terminated | truncated
        if over.all():
            break
    env.close()
    return scores


if __name__ == "__main__":
    print("scores:", *play(sys.argv[1]))
