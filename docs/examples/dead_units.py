"""Counts the units of a network's layers that are 0 in every state of some games.

    python docs/examples/dead_units.py breakout
    python docs/examples/dead_units.py runs/vtrace_cpu-breakout-seed1

The argument is a policy that plays an Atari game without a recurrent core: one that comes with
jaxrl, a file of `jaxrl export`, or a run directory. No gradient reaches such a unit, so that it
stays as it is (dying rectifiers; Sokar 2023 calls them dormant). `network/dormant` in metrics.jsonl
has the share in each small batch of training, where more units are 0 by chance.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.agents import make_agent
from jaxrl.config.plan import resolve
from jaxrl.envs import make_engine

sys.path.append(str(Path(__file__).parent))
from play_policy import make_env

GAMES, STEPS, EVERY = 16, 1000, 10  # steps of each game, of which every tenth is kept


def states(policy: jaxrl.Policy, games: int, steps: int) -> np.ndarray:
    """Plays games by a policy; returns every tenth observation, u8[N, H, W, 4]."""
    env = make_env(policy.config, games)
    observation, _ = env.reset(seed=0)
    kept = []
    for step in range(steps):
        frames_last = np.moveaxis(observation, 1, -1)
        if step % EVERY == 0:
            kept.append(frames_last.copy())
        observation, *_ = env.step(policy.act(frames_last, step))
    return np.concatenate(kept)


def dead_units(policy: jaxrl.Policy, observations: np.ndarray) -> dict[str, tuple[int, int]]:
    """Returns of each layer of the torso how many units get no gradient, and how many there are.

    The gradient is that of a random weighted sum of the values and the policy, so that none cancels
    another.
    """
    config = policy.config
    agent = make_agent(resolve(config), make_engine(config, 1).spec)

    def total(params: jaxrl.types.PyTree) -> jax.Array:
        found = agent.predict(policy.actor._replace(params=params), observations)
        of_value, of_policy = jax.random.split(jax.random.key(0))
        value = jnp.vdot(jax.random.normal(of_value, found.value.shape), found.value)
        weights = jax.random.normal(of_policy, found.probabilities.shape)
        return value + jnp.vdot(weights, found.probabilities)

    gradients = jax.grad(total)(policy.actor.params)
    gradients = gradients.get("Torso_0", gradients)  # of IQN with the heads
    biases = jax.tree_util.tree_leaves_with_path(gradients)
    return {
        path[0].key: (int(np.sum(np.asarray(bias) == 0)), bias.size)
        for path, bias in biases
        if path[-1].key == "bias"
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
