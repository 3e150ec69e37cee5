"""Going back in a game: from one state every action is tried, each followed by the policy.

A `Moment` holds the whole game, so that it can be played on from there again and again, and trying
actions leaves every other moment as it was. All branches draw the same random numbers: only the
first action tells them apart ("vine", Schulman 2015, section 5.2).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import (
    EvaluationSetup,
    FireState,
    GameRow,
    check_protocol,
    newest_row,
    screen,
    set_up,
)
from jaxrl.ops.returns import n_step_return
from jaxrl.program import rollout
from jaxrl.types import ActorState, Choice, Prediction, PyTree, Trajectory

POLICY = -1  # in place of an action: the policy chooses it


class GameOverError(UserError):
    """A game that ended before the moment that was asked for."""


class Moment(NamedTuple):
    """A place in a game where the policy is about to decide."""

    state: rollout.RolloutState  # the one environment's
    snapshots: PyTree  # an engine's that holds its games itself, else ()
    step: int  # agent steps since the start of the game
    score: float  # since the start of the game, unclipped


class Player(NamedTuple):
    """A policy and the one environment that it plays in."""

    config: Config  # the run's that trained the policy
    setup: EvaluationSetup
    # step(state, action i32[]) -> (state, row), compiled; POLICY lets the policy choose
    step: Callable[[rollout.RolloutState, np.int32], tuple[rollout.RolloutState, Trajectory]]
    predict: Callable[[jax.Array], Prediction]  # from an observation, compiled


class Branches(NamedTuple):
    """Every action from one moment, each followed by the policy for T steps.

    A = actions, K = pictures of a branch. A branch ends early where a game or a life ends; rewards
    beyond its end are 0, values NaN. Rewards and values are the learner's: of clipped rewards where
    it was trained on those, with `episodic_life` until the next lost life.
    """

    game: str
    action_names: tuple[str, ...]  # [A]
    step: int  # agent steps from the start of the game to the moment
    score: float  # the game's so far, unclipped
    screen: np.ndarray  # u8[H, W, 3], at the moment
    probabilities: np.ndarray  # f32[A], of the policy
    value: float  # f32, of the state
    chosen: int  # the policy's action in the game itself
    rewards: np.ndarray  # f32[A, T]
    values: np.ndarray  # f32[A, T], of the states that the steps led to; the first is the next
    lengths: np.ndarray  # i32[A], steps until the branch ended, at most T
    terminated: np.ndarray  # b[A], it ended with a terminal of the learner's MDP: no bootstrap
    game_over: np.ndarray  # b[A], it ended with the end of the game
    returns: np.ndarray  # f32[A], discounted rewards, and the discounted value of the last state
    picture_steps: np.ndarray  # i32[K], steps after the moment
    pictures: np.ndarray  # u8[A, K, H, W, 3], the screens then; after its end a branch's last


class _Branch(NamedTuple):
    """One action of `Branches`, without the axis of actions."""

    rewards: np.ndarray  # f32[T]
    values: np.ndarray  # f32[T]
    length: int
    terminated: bool
    game_over: bool
    pictures: np.ndarray  # u8[K, H, W, 3]


def start(config: Config, actor: ActorState, protocol: str, seed: int = 0) -> tuple[Player, Moment]:
    """Starts a game by a protocol, and returns its player and its first decision.

    `config` is that of the run that trained the policy. Raises `UserError` if the engine cannot
    save its games.
    """
    check_protocol(protocol)
    setup = set_up(config, protocol, 1)
    if not setup.engine.state_format:
        raise UserError(
            f"env.engine = {setup.engine.name}: cannot save its games, so nobody can go back in "
            "them; atari2600 can"
        )
    step = partial(jax.jit(partial(_step, setup)), actor)
    predict = partial(jax.jit(setup.agent.predict), actor)
    player = Player(config, setup, step, predict)
    state = start_games(setup.agent, setup.engine, seed)
    return player, play_on(player, _save(player, state, 0, 0.0), 0)


def play_on(player: Player, moment: Moment, steps: int) -> Moment:
    """Plays `steps` agent steps from a moment, and returns where that leads.

    It plays a little further where nothing is decided there: through a reset after a lost life, and
    until FIRE has been pressed for the policy. Raises `GameOverError` if the game ends before.
    """
    state, step, score = _go_back(player, moment), moment.step, moment.score
    while step < moment.step + steps or not _decides(state):
        state, _, row = _play(player, state, POLICY)
        step += not row.reset
        score += row.score
        if row.game_over:
            raise GameOverError(
                f"step {moment.step + steps}: the game ended at agent step {step}; take an earlier "
                "one, or another seed"
            )
    return _save(player, state, step, score)


def try_actions(
    player: Player, moment: Moment, horizon: int, num_pictures: int = 5, hold: int = 1
) -> Branches:
    """Tries every action from a moment, each followed by the policy.

    Args:
      player: the game's player.
      moment: from which all branches start.
      horizon: T, agent steps of a branch.
      num_pictures: K, screens of a branch to keep, at equal distances.
      hold: agent steps of the action before the policy chooses again.
    """
    if min(horizon, num_pictures, hold) < 1:
        raise UserError(
            f"horizon = {horizon}, num_pictures = {num_pictures}, hold = {hold}: must be at least 1"
        )
    spec = player.setup.engine.spec
    state = _go_back(player, moment)
    shown = picture(player, state)
    prediction = jax.device_get(player.predict(state.observation))
    _, chosen, _ = _play(player, state, POLICY)
    picture_steps = np.linspace(1, horizon, min(num_pictures, horizon)).round().astype(np.int32)
    branches = [
        _try_action(player, moment, [action] * hold, horizon, picture_steps)
        for action in range(spec.num_actions)
    ]
    rewards, values, lengths, terminated, game_over, pictures = map(
        np.stack, zip(*branches, strict=True)
    )
    value = float(prediction.value[0])
    return Branches(
        game=spec.game,
        action_names=spec.action_meanings,
        step=moment.step,
        score=moment.score,
        screen=shown,
        probabilities=prediction.probabilities[0],
        value=value,
        chosen=chosen,
        rewards=rewards,
        values=values,
        lengths=lengths.astype(np.int32),
        terminated=terminated,
        game_over=game_over,
        returns=_returns(value, branches, player.config.agent.gamma),
        picture_steps=picture_steps,
        pictures=pictures,
    )


def picture(player: Player, state: rollout.RolloutState) -> np.ndarray:
    """Returns the screen u8[H, W, 3] of the state that was played last, or gone back to."""
    return screen(player.setup.engine, state)


def close(player: Player) -> None:
    """Closes the environment."""
    player.setup.engine.close()


def _save(player: Player, state: rollout.RolloutState, step: int, score: float) -> Moment:
    """Returns the moment at a state that has just been played."""
    save = player.setup.engine.save
    return Moment(state, save() if save else (), step, score)


def _go_back(player: Player, moment: Moment) -> rollout.RolloutState:
    """Returns the state of a moment, and lets the engine go on from there."""
    if player.setup.engine.load:
        player.setup.engine.load(moment.snapshots)
    return moment.state


def _decides(state: rollout.RolloutState) -> bool:
    """Returns whether the policy's next action reaches the game."""
    if isinstance(state.env, FireState) and np.asarray(state.env.steps_left)[0] > 0:
        return False
    return not newest_row(state).done


def _step(
    setup: EvaluationSetup, actor: ActorState, state: rollout.RolloutState, action: jax.Array
) -> tuple[rollout.RolloutState, Trajectory]:
    """Plays one row of the one environment; `action` is i32[]."""

    def act(actor: ActorState, observation: PyTree, key: jax.Array) -> Choice:
        choice = Choice(*setup.agent.act(actor, observation, key))
        return choice._replace(action=jnp.where(action == POLICY, choice.action, action))

    return rollout.step(setup.agent._replace(act=act), setup.engine, actor, state)


def _play(
    player: Player, state: rollout.RolloutState, action: int
) -> tuple[rollout.RolloutState, int, GameRow]:
    """Plays one row and waits for it; returns its action too."""
    state, played = jax.block_until_ready(player.step(state, np.int32(action)))
    player.setup.engine.check()
    return state, np.asarray(played.action)[0].item(), newest_row(state)


def _try_action(
    player: Player, moment: Moment, actions: list[int], horizon: int, picture_steps: np.ndarray
) -> _Branch:
    """Plays one branch, which begins with these actions; `picture_steps` is i32[K]."""
    state = _go_back(player, moment)
    rewards = np.zeros(horizon, np.float32)
    values = np.full(horizon, np.nan, np.float32)
    pictures: dict[int, np.ndarray] = {}
    clips = player.config.env.reward_clip
    length, ended = 0, False
    while length < horizon and not ended:
        action = actions[length] if length < len(actions) else POLICY
        state, _, row = _play(player, state, action)
        rewards[length] = np.sign(row.score) if clips else row.score
        values[length] = np.asarray(player.predict(state.observation).value)[0]
        length += 1
        ended = row.done
        if ended or length in picture_steps:
            pictures[length] = picture(player, state)
    shown = np.stack([pictures[min(int(step), length)] for step in picture_steps])
    return _Branch(rewards, values, length, row.terminated, row.game_over, shown)


def _returns(value: float, branches: list[_Branch], gamma: float) -> np.ndarray:
    """Returns f32[A], the return of each branch from a state of this value."""
    steps = np.arange(len(branches[0].rewards))[:, None]
    lengths = np.array([branch.length for branch in branches])
    ends = (steps == lengths - 1) & [branch.terminated for branch in branches]
    values = np.nan_to_num(np.stack([branch.values for branch in branches], axis=1))
    returns = jax.jit(n_step_return)(
        reward_t=np.stack([branch.rewards for branch in branches], axis=1),
        discount_t=(1 - ends).astype(np.float32),
        valid_t=steps < lengths,
        value=np.concatenate([np.full((1, len(branches)), value, np.float32), values]),
        gamma=gamma,
    )
    return np.asarray(returns[0])
