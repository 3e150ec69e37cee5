"""Tries every action at moments of some games, and says what follows by the same policy.

    python docs/examples/first_actions.py runs/vtrace_fast-double_dunk-seed1

From a moment the game goes on once for each action, which is held for four steps before the policy
plays again ("vine", Schulman 2015). Of every action it prints the policy's probability, the sum of
the learner's rewards in the 300 steps that follow, and the return: those rewards discounted, and
the value of the last state; all are means over the moments. What a policy that waits does not
choose has a probability near 0, and its rewards say why.

The argument is a policy that plays an Atari game: one that comes with jaxrl, a file of `jaxrl
export`, or a run directory.
"""

import sys

import numpy as np

import jaxrl
from jaxrl.evaluation import branches

GAMES, MOMENTS, EVERY = 3, 8, 700  # moments of a game, and the steps between two of them
HORIZON, HOLD = 300, 4  # steps of a branch, and those of the first action


def tried(policy: jaxrl.Policy, seed: int, moments: int, every: int) -> list[branches.Branches]:
    """Tries all actions at the moments of a game, as far as it lasts."""
    player, moment = branches.start(policy.config, policy.actor, "noop", seed)
    found: list[branches.Branches] = []
    try:
        while len(found) < moments:
            moment = branches.play_on(player, moment, every)
            found.append(branches.try_actions(player, moment, HORIZON, num_pictures=1, hold=HOLD))
    except branches.GameOverError as end:
        print(f"game {seed}: {end}", file=sys.stderr)
    finally:
        branches.close(player)
    return found


def main(path: str, games: int = GAMES, moments: int = MOMENTS, every: int = EVERY) -> None:
    """Prints a line for each action."""
    policy = jaxrl.load_policy(path)
    found = [one for seed in range(games) for one in tried(policy, seed, moments, every)]
    if not found:
        sys.exit(f"no game of '{path}' lasts {every} steps")
    print(f"{policy.config.game}, step {policy.step:,}: {len(found)} moments")
    for action, name in enumerate(found[0].action_names):
        probability = np.mean([one.probabilities[action] for one in found])
        rewards = np.mean([one.rewards[action].sum() for one in found])
        value = np.mean([one.returns[action] for one in found])
        print(f"{name:14} {probability:6.1%}  rewards {rewards:6.2f}  return {value:6.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
