"""Stable-Baselines3's PPO on jaxrl's games, or on ale-py's, to compare their speed.

    pip install stable-baselines3        # into the environment of jaxrl
    python docs/examples/ppo_stable_baselines3.py --env ours --steps 20_000
    python docs/examples/ppo_stable_baselines3.py --env ale --steps 20_000
    python docs/examples/ppo_stable_baselines3.py --env ours --num-envs 64 --random

Both play the same games: with the same seed PPO learns the same parameters, whose checksum is
printed. `--random` plays random actions and learns nothing. The hyperparameters are RL Baselines3
Zoo's.
"""

import time
import zlib
from collections import deque
from typing import Any, Literal

import numpy as np
import tyro
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

GAMES = {"episodic_life": True, "autoreset_mode": "SameStep"}


def make_games(env: str, game: str, num_envs: int) -> GymnasiumVectorEnv:
    """Returns the games of jaxrl or of ale-py."""
    if env == "ours":
        from jaxrl.envs.atari2600 import VectorEnv

        return VectorEnv(game, num_envs, **GAMES)
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(game, num_envs, **GAMES)


class Games(VecEnv):
    """A Gymnasium vector environment whose games begin in the step of an end, for SB3."""

    def __init__(self, envs: GymnasiumVectorEnv, seed: int) -> None:
        self.envs, self.first_seed = envs, seed
        self.returns = np.zeros(envs.num_envs)
        self.last_returns: deque[float] = deque(maxlen=100)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Begins all games: u8[E, 4, 84, 84]."""
        return self.envs.reset(seed=self.first_seed)[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Starts a step."""
        self.envs.send(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Waits for the step: observations, rewards, ends and an `info` of each environment."""
        observations, rewards, terminated, truncated, found = self.envs.recv()
        ends = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in ends]
        self.returns += rewards
        for env in np.flatnonzero(ends):
            infos[env]["terminal_observation"] = found["final_obs"][env]
            infos[env]["TimeLimit.truncated"] = bool(truncated[env])
            self.last_returns.append(self.returns[env])
        self.returns[ends] = 0
        return observations, rewards.astype(np.float32), ends, infos

    def close(self) -> None:
        """Ends the emulators."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns an attribute, once for each environment."""
        return [getattr(self.envs, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuses: the environments share their attributes."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Refuses: the environments have no methods of their own."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Returns that no environment is wrapped."""
        return [False] * self.num_envs


def play(envs: GymnasiumVectorEnv, steps: int, seed: int) -> None:
    """Plays `steps` steps of random actions, without Stable-Baselines3."""
    envs.reset(seed=seed)
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, envs.single_action_space.n, (100, envs.num_envs))
    for step in range(steps // envs.num_envs):
        envs.step(actions[step % len(actions)])


def learn(games: Games, steps: int, seed: int) -> str:
    """Learns for `steps` steps; returns a checksum of the parameters."""
    model = PPO(
        "CnnPolicy",
        games,
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda left: 2.5e-4 * left,
        clip_range=lambda left: 0.1 * left,
        vf_coef=0.5,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    parameters = [value.numpy() for value in model.policy.state_dict().values()]
    return f"{zlib.crc32(b''.join(array.tobytes() for array in parameters)):08x}"


def main(
    env: Literal["ours", "ale"] = "ours",
    game: str = "pong",
    num_envs: int = 8,
    steps: int = 20_000,
    seed: int = 1,
    random: bool = False,
) -> None:
    """Plays or learns, and prints the steps per second."""
    envs = make_games(env, game, num_envs)
    games = Games(envs, seed)
    start = time.perf_counter()
    checksum = play(envs, steps, seed) if random else learn(games, steps, seed)
    seconds = time.perf_counter() - start
    games.close()
    print(f"{env}: {steps / seconds:,.0f} steps per second")
    if games.last_returns:
        print(f"mean return of the last episodes: {np.mean(games.last_returns):.1f}")
    if checksum:
        print(f"parameters: {checksum}")


if __name__ == "__main__":
    tyro.cli(main)
