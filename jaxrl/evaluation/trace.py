"""The observations, actions and predictions of a policy, step by step."""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import (
    EvaluationSetup,
    FireState,
    check_protocol,
    newest_row,
    screen,
    set_up,
)
from jaxrl.program import rollout
from jaxrl.types import ActorState, Prediction


class Trace(NamedTuple):
    """T rows of play: one for each decision, and for each picture that ended a game or a life.

    A = actions, N = atoms of a return's distribution. Where a game or a life ended nothing is
    chosen: the action is -1, and the prediction is NaN.
    """

    game: str
    action_names: tuple[str, ...]  # [A]
    frames: np.ndarray  # u8[T, H, W, 3], the screen when the action was chosen
    actions: np.ndarray  # i32[T], -1 where none was chosen
    rewards: np.ndarray  # f32[T], of the action, not clipped
    ends: np.ndarray  # b[T], the picture that ended a game
    probabilities: np.ndarray  # f32[T, A], of the actions
    # f32[T], expected return as in training: discounted, of clipped rewards, with episodic_life
    # until the next lost life; of value-based agents the best action's
    values: np.ndarray
    atoms: np.ndarray  # f32[N]; N is 0 for agents without distributions
    distributions: np.ndarray  # f32[T, A, N], of each action's return
    frame_skip: int = 4  # emulator frames of a step

    @property
    def action_values(self) -> np.ndarray:
        """f32[T, A], the mean of each action's return; zeros without distributions."""
        return self.distributions @ self.atoms


class _Row(NamedTuple):
    """A decision in the one environment, without the axis of environments."""

    action: Any  # i32[]
    reward: Any  # f32[]
    prediction: Prediction  # probabilities f32[A], value f32[], distributions f32[A, N]


def trace(
    config: Config, actor: ActorState, protocol: str, seed: int, max_steps: int, games: int = 1
) -> Trace:
    """Plays, and records the observations, actions and predictions of a policy.

    Args:
      config: configuration of the run that trained the policy.
      actor: the trained actor.
      protocol: a name of `evaluation_record.PROTOCOLS`.
      seed: seed of the games and the actions.
      max_steps: decisions to keep; a picture of an Atari game takes 100 KB of host memory.
      games: to play one after another, if `max_steps` allows.
    """
    check_protocol(protocol)
    if max_steps < 1 or games < 1:
        raise UserError(f"max_steps = {max_steps}, games = {games}: must be at least 1")
    setup = set_up(config, protocol, 1)
    engine = setup.engine
    step = jax.jit(partial(_step, setup))
    state = start_games(setup.agent, engine, seed)
    frames: list[np.ndarray] = []
    rows: list[_Row] = []
    ends: list[bool] = []
    chosen, over, ended, ignored = 0, 0, False, False
    while ended or (chosen < max_steps and over < games):
        frames.append(screen(engine, state))
        ends.append(ended)
        state, row = jax.block_until_ready(step(actor, state))
        engine.check()
        rows.append(_nothing(row) if ignored else jax.device_get(row))
        chosen += not ignored
        newest = newest_row(state)
        if newest.reset and newest.game_over:  # during the reset: the picture before was the last
            ends[-1] = True
        over += newest.game_over
        ended, ignored = newest.game_over and not newest.reset, newest.done
    engine.close()
    played = _join(config.game, engine.spec.action_meanings, frames, rows, ends)
    return played._replace(frame_skip=config.env.frame_skip)


def _step(
    setup: EvaluationSetup, actor: ActorState, state: rollout.RolloutState
) -> tuple[rollout.RolloutState, _Row]:
    """Predicts and plays one step of the one environment."""
    engine, agent, _ = setup
    prediction, before = agent.predict(actor, state.observation), state
    state, played = rollout.step(agent, engine, actor, state)
    action = played.action
    if isinstance(before.env, FireState):
        action = before.env.override(action, engine.spec)
    row = _Row(
        action[0],
        state.timestep.score[0],
        Prediction(
            prediction.probabilities[0],
            prediction.value[0],
            prediction.distributions[0],
            prediction.support,
        ),
    )
    return state, row


def _nothing(row: _Row) -> _Row:
    """Returns a row without a decision, in the shapes of `row`."""
    prediction = jax.tree.map(lambda x: np.full(x.shape, np.nan, np.float32), row.prediction)
    return _Row(np.int32(-1), np.float32(0), prediction)


def _join(
    game: str,
    names: tuple[str, ...],
    frames: list[np.ndarray],
    rows: list[_Row],
    ends: list[bool],
) -> Trace:
    """Stacks the rows in time; the first one has a decision."""
    joined = jax.tree.map(lambda *x: np.stack(x), *rows)
    return Trace(
        game=game,
        action_names=names,
        frames=np.stack(frames),
        actions=joined.action,
        rewards=joined.reward,
        ends=np.array(ends),
        probabilities=joined.prediction.probabilities,
        values=joined.prediction.value,
        atoms=joined.prediction.support[0],
        distributions=joined.prediction.distributions,
    )
