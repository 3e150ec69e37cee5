"""Which games an evaluation counts, and which rows of them."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import episodes, evaluate, rollout
from jaxrl.types import ActorState, Agent, EnvEngine, EnvSpec, TimeStep

# Rows of two environments. The first loses a life, is reset within its game, ends it and plays
# another; the second is cut by the time limit and plays another.
SCORE = np.array([[1, 5], [2, 6], [0, 0], [4, 9], [0, 0], [8, 3]], np.float32)
TERMINATED = np.array([[0, 0], [1, 0], [0, 0], [1, 1], [0, 0], [1, 0]], bool)
TRUNCATED = np.array([[0, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0]], bool)
GAME_OVER = np.array([[0, 0], [0, 1], [0, 0], [1, 1], [0, 0], [1, 0]], bool)
RESET = np.array([[0, 0], [0, 0], [1, 1], [0, 0], [1, 1], [0, 0]], bool)


def row(t):
    frame = jnp.zeros((2, 4, 4), jnp.uint8)
    rows = np.sign(SCORE), SCORE, TERMINATED, TRUNCATED, GAME_OVER, RESET
    return TimeStep(frame, *(jnp.asarray(x)[t] for x in rows))


def scripted():
    """An engine that plays these rows; its state is the number of the next one."""
    spec = EnvSpec(2, 3, ("LEFT", "NOOP", "RIGHT"), "catch", (4, 4))
    return EnvEngine(
        spec, init=None, send=lambda t, action: t, recv=lambda t: (t + 1, row(t)), close=None,
        restorable=True, env_ids=np.arange(2)[None], render=None, check=None,
    )  # fmt: skip


def test_the_first_whole_game_of_every_environment_counts():
    agent = Agent(None, lambda actor, observation, key: (jnp.zeros(2, jnp.int32), ()), None, 1)
    keys = jax.random.split(jax.random.key(0), 2)
    state = rollout.start(0, row(2), keys, episodes.init(2, 1, counted=True))
    zeros = jnp.zeros(2)
    games = evaluate._Games(state, zeros.astype(bool), zeros, zeros.astype(jnp.int32))
    finished = []
    for _ in range(len(SCORE)):
        games = evaluate._step(agent, scripted(), ActorState((), (), jnp.int32(0)), games)
        finished.append(games.finished.tolist())
    # A lost life ends nothing. Unclipped, and without the row of the reset.
    assert games.score.tolist() == [1 + 2 + 4, 5 + 6]
    assert games.length.tolist() == [3, 2]
    assert finished == [[False, False], [False, True], [False, True], *[[True, True]] * 3]
