"""Evaluation by named protocols: whole games with unclipped, human-normalized scores.

Every environment plays exactly one game. Counting the games that end first would favor short ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.atari.games import known_games
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.validation import check_game
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.evaluation.protocols import set_up
from jaxrl.program import episode_statistics, rollout
from jaxrl.runs.checkpoint import restore_actor
from jaxrl.runs.directory import load_config
from jaxrl.runs.evaluation_record import Evaluation, summarize
from jaxrl.runtime.watchdog import Watchdog
from jaxrl.types import ActorState, Agent, EnvEngine

# Agent steps of one compiled call, after which the host looks for unfinished games.
STEPS_PER_CALL = 200
SECONDS_PER_CALL = 60.0 + STEPS_PER_CALL  # deadline of one call, with its compilation
SEED_OFFSET = 1_000_003  # keeps the games of evaluation apart from those of training


class GaveUpError(Exception):
    """An evaluation was given up before its games had ended."""


class _FirstGames(NamedTuple):
    """The first game of every environment, of E."""

    state: rollout.RolloutState
    finished: jax.Array  # b[E]
    score: jax.Array  # f32[E]
    length: jax.Array  # i32[E], agent steps


def start_games(agent: Agent, engine: EnvEngine, seed: int) -> rollout.RolloutState:
    """Starts games, and returns their state on the first local device."""
    num_envs = engine.spec.num_envs
    env, timestep = engine.init(seed)
    keys = jax.random.split(jax.random.key(seed), num_envs)
    games = episode_statistics.init(num_envs, 1, counted=True)
    return jax.device_put(
        rollout.start(env, timestep, keys, games, agent.core, engine.spec.stack_size),
        jax.local_devices()[0],
    )


def _step(agent: Agent, engine: EnvEngine, actor: ActorState, games: _FirstGames) -> _FirstGames:
    """Plays one step everywhere; notes scores and lengths where a first game ends."""
    before = games.state.episodes
    state, _ = rollout.step(agent, engine, actor, games.state)
    ends = state.timestep.game_over & ~games.finished
    return _FirstGames(
        state=state,
        finished=games.finished | ends,
        score=jnp.where(ends, before.score + state.timestep.score, games.score),
        length=jnp.where(ends, before.length + ~state.timestep.reset, games.length),
    )


def evaluate(
    config: Config,
    actor: ActorState,
    protocol: str,
    num_episodes: int,
    seed: int = 0,
    step: int | None = None,
    give_up: Callable[[], bool] | None = None,
    show: Callable[[int], None] | None = None,
) -> Evaluation:
    """Plays `num_episodes` games with actions drawn from the policy.

    Args:
      config: configuration of the run that trained the policy.
      actor: the trained policy.
      protocol: a name of `evaluation_record.PROTOCOLS`.
      num_episodes: games, one per environment.
      seed: seed of the games and the actions.
      step: agent steps that the policy was trained for, for the record.
      give_up: called about once a second; `GaveUpError` is raised where it returns true.
      show: called as often, with the number of games that have ended.

    Raises `UserError` for an unknown protocol, or without a game to play.
    """
    if num_episodes < 1:
        raise UserError(f"episodes = {num_episodes}: must be at least 1")
    engine, agent, conditions = set_up(config, protocol, num_episodes)

    @jax.jit
    def advance(actor: ActorState, games: _FirstGames) -> _FirstGames:
        return jax.lax.fori_loop(
            0, STEPS_PER_CALL, lambda _, g: _step(agent, engine, actor, g), games
        )

    state = start_games(agent, engine, SEED_OFFSET + seed)
    zeros = jnp.zeros(num_episodes)
    games = _FirstGames(state, zeros.astype(bool), zeros, zeros.astype(jnp.int32))
    with Watchdog(config.env.stuck_after) as watchdog:
        while not np.all(games.finished):
            with watchdog.expecting("the emulators", SECONDS_PER_CALL):
                games = jax.block_until_ready(advance(actor, games))
            engine.check()
            if show is not None:
                show(int(np.sum(games.finished)))
            if give_up is not None and give_up():
                engine.close()
                raise GaveUpError
    engine.close()
    scores, lengths = np.asarray(games.score), np.asarray(games.length)
    epsilon = config.agent.random_action_rate
    return summarize(config.game, protocol, step, scores, lengths, epsilon, conditions)


def replace_epsilon(config: Config, epsilon: float) -> Config:
    """Returns the configuration with another evaluation epsilon.

    Raises `UserError` if the agent is not value-based.
    """
    if config.agent.random_action_rate is None:
        raise UserError(f"epsilon: {config.algorithm} draws its actions from its policy: leave "
                        "--epsilon out")  # fmt: skip
    return config.replaced(agent=config.agent.with_random_action_rate(epsilon))


def load_actor(run_dir: Path, checkpoint: int | None) -> tuple[Config, ActorState, int]:
    """Returns a run's configuration, its newest or the given policy, and that policy's step."""
    config = load_config(run_dir)
    check_game(config.game, known_games())
    engine = make_engine(config, 1)
    agent = make_agent(resolve(config), engine.spec)
    shapes = jax.eval_shape(lambda: agent.init(jax.random.key(0))).actor
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), shapes
    )
    actor, step = restore_actor(run_dir, template, checkpoint)
    return config, actor, step
