"""Plays a game with a trained policy in a Gymnasium environment, without jaxrl's training.

    python docs/examples/play_policy.py pong

The argument is a policy of an Atari game: one that comes with jaxrl, a file of `jaxrl export`, or a
run directory. Frames, actions and who presses FIRE are as in its training. `jaxrl evaluate` also
presses no-ops after a lost life, where a policy was trained with them.
"""

import sys

import numpy as np

import jaxrl
from jaxrl.envs.atari2600 import VectorEnv
from jaxrl.envs.base import presses_fire

MOST_FRAMES = 108_000  # of a game, half an hour on the console


def make_env(config: jaxrl.Config, num_games: int) -> VectorEnv:
    """Returns games that begin as in evaluations by `noop`, with unclipped rewards.

    Raises `UserError` for a policy of frames in color.
    """
    if not config.env.grayscale:
        raise jaxrl.UserError("env.grayscale = false: VectorEnv shows colors in another order of "
                              "axes; use `jaxrl evaluate`")  # fmt: skip
    return VectorEnv(
        config.game,
        num_games,
        mode=None if config.env.mode < 0 else config.env.mode,
        difficulty=None if config.env.difficulty < 0 else config.env.difficulty,
        img_height=config.env.frame_height,
        img_width=config.env.frame_width,
        frameskip=config.env.frame_skip,
        stack_num=config.env.stack,
        full_action_space=config.env.full_action_space,
        use_fire_reset=presses_fire(config.game, config.env),
        reward_clipping=False,
    )


def play(path: str, num_games: int = 2, max_steps: int | None = None) -> np.ndarray:
    """Returns the scores f64[num_games] of whole games, of at most `MOST_FRAMES` by default."""
    policy = jaxrl.load_policy(path)
    state = policy.new_state(num_games) if policy.remembers else None
    env = make_env(policy.config, num_games)
    # A policy that never had to press FIRE would wait for the ball.
    config = policy.config
    fires = presses_fire(config.game, config.env) and config.env.episodic_life
    observation, info = env.reset(seed=0)
    lives, lost = info["lives"].copy(), np.zeros(num_games, bool)
    scores, over = np.zeros(num_games), np.zeros(num_games, bool)
    for step in range(max_steps or MOST_FRAMES // policy.config.env.frame_skip):
        frames_last = np.moveaxis(observation, 1, -1)  # u8[num_games, H, W, env.stack]
        action = policy.act(frames_last, step, state)
        if fires:
            action = np.where(lost, policy.action_names.index("FIRE"), action)
        observation, reward, terminated, truncated, info = env.step(action)
        lives, lost = info["lives"].copy(), info["lives"] < lives
        if state is not None:
            state.observe(reward, terminated | truncated)
        scores += reward * ~over
        over |= terminated | truncated
        if over.all():
            break
    env.close()
    return scores


if __name__ == "__main__":
    print("scores:", *play(sys.argv[1]))
