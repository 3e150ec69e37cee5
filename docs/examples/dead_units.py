"""Counts the units of a network's layers that are 0 in every state of some games.

    python docs/examples/dead_units.py breakout
    python docs/examples/dead_units.py runs/vtrace_cpu-breakout-seed1

The argument is a policy that plays an Atari game without a recurrent core: one that comes with
jaxrl, a file of `jaxrl export`, or a run directory. No gradient reaches such a unit, so that it
stays as it is (dying rectifiers; Sokar 2023 calls them dormant). `network/dormant` in metrics.jsonl
has the share in each small batch of training, where more units are 0 by chance. Layers are those
whose outputs are rectified, of a residual network the hidden one alone.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.agents import make_agent
from jaxrl.agents.learner import rectified_biases
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine

sys.path.append(str(Path(__file__).parent))
from play_policy import make_env

GAMES, STEPS, EVERY = 16, 1000, 10  # each game's steps, and the steps between two states


def states(policy: jaxrl.Policy, games: int, steps: int) -> np.ndarray:
    """Plays games by a policy; returns every tenth observation, u8[N, H, W, 4]."""
    env = make_env(policy.config, games)
    observation, _ = env.reset(seed=0)
    taken = []
    for step in range(steps):
        frames_last = np.moveaxis(observation, 1, -1)
        if step % EVERY == 0:
            taken.append(frames_last.copy())
        observation, *_ = env.step(policy.act(frames_last, step))
    return np.concatenate(taken)


def dead_units(policy: jaxrl.Policy, observations: np.ndarray) -> dict[str, tuple[int, int]]:
    """Counts the units of each rectified layer that get no gradient, and all of its units.

    The gradient is that of a random weighted sum of the values and the policy, so that none cancels
    another.
    """
    config = policy.config
    agent = make_agent(resolve(config), make_engine(config, 1).spec)

    def total(params: jaxrl.types.PyTree) -> jax.Array:
        prediction = agent.predict(policy.actor._replace(params=params), observations)
        key_of_value, key_of_policy = jax.random.split(jax.random.key(0))
        value, probabilities = prediction.value, prediction.probabilities
        return jnp.vdot(jax.random.normal(key_of_value, value.shape), value) + jnp.vdot(
            jax.random.normal(key_of_policy, probabilities.shape), probabilities
        )

    layers = rectified_biases(jax.grad(total)(policy.actor.params))
    return {
        name: (int(sum(np.sum(np.asarray(x) == 0) for x in biases)), sum(x.size for x in biases))
        for name, biases in layers.items()
    }


def main(path: str, games: int = GAMES, steps: int = STEPS) -> None:
    """Prints the count of each layer."""
    policy = jaxrl.load_policy(path)
    if policy.remembers:
        sys.exit(f"'{path}' has a recurrent core")
    observations = states(policy, games, steps)
    print(f"{policy.config.game}, step {policy.step:,}: of {len(observations):,} states")
    for layer, (dead, units) in dead_units(policy, observations).items():
        print(f"{layer:14} {dead:3} of {units:3} units are 0 in all ({dead / units:.0%})")


if __name__ == "__main__":
    main(sys.argv[1])
