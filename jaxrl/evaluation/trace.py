"""What a policy sees, does and expects, step by step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.algorithms import C51Config, PPOConfig, ValueConfig
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.evaluation.evaluate import start_games
from jaxrl.evaluation.protocols import PROTOCOLS, FireState, set_up
from jaxrl.networks import heads
from jaxrl.networks.running_statistics import normalize
from jaxrl.ops import distributions as dist
from jaxrl.ops.distributions import log_probabilities
from jaxrl.program import rollout
from jaxrl.types import ActorState, TimeStep


class Trace(NamedTuple):
    """T rows of play: one for each decision, and for each picture that a game or a life ended with.

    A = actions, N = atoms of a return's distribution. At such an end nothing is chosen: the action
    is -1, and what the policy says is NaN.
    """

    game: str
    action_names: tuple[str, ...]  # [A]
    frames: np.ndarray  # u8[T, H, W, 3], what was on the screen when the action was chosen
    actions: np.ndarray  # i32[T], -1 where none was chosen
    rewards: np.ndarray  # f32[T], of the action, not clipped
    ends: np.ndarray  # b[T], the picture a game ended with
    probabilities: np.ndarray  # f32[T, A], of the actions
    # f32[T], expected return as training had it: discounted, of clipped rewards, with episodic_life
    # until the next lost life; of value-based agents the best action's
    values: np.ndarray
    atoms: np.ndarray  # f32[N]; N is 0 but for C51
    distributions: np.ndarray  # f32[T, A, N], of each action's return

    @property
    def action_values(self) -> np.ndarray:
        """f32[T, A], the mean of each action's return; zeros but for C51."""
        return self.distributions @ self.atoms


class _Seen(NamedTuple):
    """What the policy says of one observation."""

    probabilities: Any  # f32[A]
    value: Any  # f32[]
    distributions: Any  # f32[A, N]


class _Row(NamedTuple):
    action: Any  # i32[]
    reward: Any  # f32[]
    seen: _Seen


def trace(
    config: Config, actor: ActorState, protocol: str, seed: int, max_steps: int, games: int = 1
) -> Trace:
    """Plays and keeps what the policy saw, did and expected.

    Args:
      config: of the run that trained the policy.
      actor: what it learned.
      protocol: one of `jaxrl.evaluation.protocols.PROTOCOLS`.
      seed: of the games and the actions.
      max_steps: decisions to keep; a picture of an Atari game takes 100 KB of memory.
      games: to play one after another, if `max_steps` allows.
    """
    if protocol not in PROTOCOLS:
        raise UserError(f"protocol '{protocol}': must be one of {', '.join(PROTOCOLS)}")
    if max_steps < 1 or games < 1:
        raise UserError(f"max_steps = {max_steps}, games = {games}: must be at least 1")
    engine, agent, _ = set_up(config, protocol, 1)
    look = _look(config, engine.spec.num_actions)

    @jax.jit
    def step(actor: ActorState, state: rollout.RolloutState) -> tuple[rollout.RolloutState, _Row]:
        seen, before = look(actor, state.observation), state
        state, played = rollout.step(agent, engine, actor, state)
        # PPO's network may predict in other units than those of the return.
        value = getattr(played.extras, "value", seen.value)
        action = played.action
        if isinstance(before.env, FireState):
            action = before.env.override(action, engine.spec)
        row = _Row(action, state.timestep.score, seen._replace(value=value))
        return state, jax.tree.map(lambda x: x[0], row)

    state = start_games(config, engine, seed)
    frames: list[np.ndarray] = []
    rows: list[_Row] = []
    ends: list[bool] = []
    chosen, over, ended, ignored = 0, 0, False, False
    while ended or (chosen < max_steps and over < games):
        shown = np.array(engine.render() if engine.render else state.timestep.frame[0][..., None])
        frames.append(np.broadcast_to(shown, (*shown.shape[:2], 3)))
        ends.append(ended)
        state, row = jax.block_until_ready(step(actor, state))
        engine.check()
        rows.append(_nothing(row) if ignored else jax.device_get(row))
        chosen += not ignored
        reset, over_now, done = _flags(state.timestep)
        if reset and over_now:  # the game ended during the reset, so with the picture before
            ends[-1] = True
        over += over_now
        ended, ignored = over_now and not reset, done
    engine.close()
    return _join(config, engine.spec.action_meanings, frames, rows, ends)


def _look(config: Config, num_actions: int) -> Callable[[ActorState, jax.Array], _Seen]:
    """What the configuration's network says of u8[1, 84, 84, 4], as `Agent.act` has it within."""
    settings = config.agent
    if isinstance(settings, ValueConfig):
        return _look_at_values(config, settings, num_actions)
    network = heads.PolicyValueNetwork(num_actions, config.network)

    def look(actor: ActorState, observation: jax.Array) -> _Seen:
        statistics = actor.statistics
        if isinstance(settings, PPOConfig):
            statistics = statistics.observation
        x = normalize(observation, statistics)
        logits, value = network.apply({"params": actor.params}, x)
        policy = jnp.exp(log_probabilities(logits))
        return _Seen(policy, value, jnp.zeros((1, num_actions, 0)))

    return look


def _look_at_values(
    config: Config, settings: ValueConfig, num_actions: int
) -> Callable[[ActorState, jax.Array], _Seen]:
    num_atoms, atoms = 1, jnp.zeros(0)
    if isinstance(settings, C51Config):
        num_atoms = settings.num_atoms
        atoms = dist.support(settings.v_min, settings.v_max, num_atoms)
    network = heads.ActionValueNetwork(num_actions, num_atoms, config.network)

    def look(actor: ActorState, observation: jax.Array) -> _Seen:
        x = normalize(observation, actor.statistics)
        said = network.apply({"params": actor.params}, x)  # noisy networks without noise
        distributions, values = jnp.zeros((1, num_actions, 0)), said
        if isinstance(settings, C51Config):
            distributions = jax.nn.softmax(said)
            values = distributions @ atoms
        best = jax.nn.one_hot(jnp.argmax(values, axis=-1), num_actions)
        rate = settings.evaluation_epsilon
        policy = rate / num_actions + (1 - rate) * best
        return _Seen(policy, values.max(-1), distributions)

    return look


def _flags(timestep: TimeStep) -> tuple[bool, bool, bool]:
    """Returns of the one environment whether it was reset, its game is over, its episode ended."""
    done = timestep.terminated | timestep.truncated
    return bool(timestep.reset[0]), bool(timestep.game_over[0]), bool(done[0])


def _nothing(row: _Row) -> _Row:
    """A row where nothing is chosen."""
    seen = jax.tree.map(lambda x: np.full(x.shape, np.nan, np.float32), row.seen)
    return _Row(np.int32(-1), np.float32(0), seen)


def _join(
    config: Config,
    names: tuple[str, ...],
    frames: list[np.ndarray],
    rows: list[_Row],
    ends: list[bool],
) -> Trace:
    joined = jax.tree.map(lambda *x: np.stack(x), *rows)
    atoms, settings = np.zeros(0, np.float32), config.agent
    if isinstance(settings, C51Config):
        support = dist.support(settings.v_min, settings.v_max, settings.num_atoms)
        atoms = np.asarray(support)
    return Trace(
        game=config.game,
        action_names=names,
        frames=np.stack(frames),
        actions=joined.action,
        rewards=joined.reward,
        ends=np.array(ends),
        probabilities=joined.seen.probabilities,
        values=joined.seen.value,
        atoms=atoms,
        distributions=joined.seen.distributions,
    )
