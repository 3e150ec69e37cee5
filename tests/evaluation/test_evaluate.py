"""Which games an evaluation counts, and which rows of them."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.evaluation import evaluate
from jaxrl.program import episode_statistics, rollout
from jaxrl.types import ActorState, Agent, EnvEngine, EnvSpec, TimeStep

# Rows of three environments. The first loses a life, is reset within its game, ends it and plays
# another; the second is cut by the time limit; the game of the third ends within the reset after a
# lost life, so that this row begins another.
SCORE = np.array([[1, 5, 7], [2, 6, 2], [0, 0, 0], [4, 9, 5], [0, 0, 0], [8, 3, 1]], np.float32)
TERMINATED = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]], bool)
TRUNCATED = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], bool)
GAME_OVER = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]], bool)
RESET = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]], bool)
ENVS = 3


def row(t):
    frame = jnp.zeros((ENVS, 4, 4), jnp.uint8)
    rows = np.sign(SCORE), SCORE, TERMINATED, TRUNCATED, GAME_OVER, RESET
    return TimeStep(frame, *(jnp.asarray(x)[t] for x in rows))


def scripted():
    """An engine that plays these rows; its state is the number of the next one."""
    spec = EnvSpec(ENVS, 3, ("LEFT", "NOOP", "RIGHT"), "catch", (4, 4))
    return EnvEngine(
        spec, init=None, send=lambda t, action: t, recv=lambda t: (t + 1, row(t)), close=None,
        state_format="", env_ids=np.arange(ENVS)[None], render=None, check=None,
    )  # fmt: skip


def test_the_first_whole_game_of_every_environment_counts():
    agent = Agent(
        None, lambda actor, observation, key: (jnp.zeros(ENVS, jnp.int32), ()), None, None, 1
    )
    keys = jax.random.split(jax.random.key(0), ENVS)
    state = rollout.start(0, row(2), keys, episode_statistics.init(ENVS, 1, counted=True), None)
    zeros = jnp.zeros(ENVS)
    games = evaluate._FirstGames(state, zeros.astype(bool), zeros, zeros.astype(jnp.int32))
    finished = []
    for _ in range(len(SCORE)):
        games = evaluate._step(agent, scripted(), ActorState((), (), jnp.int32(0)), games)
        finished.append(games.finished.tolist())
    # A lost life ends nothing. Scores are unclipped, lengths are without the rows of resets.
    assert games.score.tolist() == [1 + 2 + 4, 5 + 6, 7 + 2]
    assert games.length.tolist() == [3, 2, 2]
    assert np.argmax(finished, axis=0).tolist() == [3, 1, 2]
    assert np.all(finished[3:])
