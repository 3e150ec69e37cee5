"""Evaluation by named protocols: whole games, unclipped scores, human-normalised.

Every environment plays exactly one game. Counting whatever games end first would favour short ones.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import episodes, rollout
from jaxrl.agent_config import ValueConfig
from jaxrl.agents import make_agent
from jaxrl.checkpoint import restore_actor
from jaxrl.config import CATCH, Config
from jaxrl.envs import make_engine, presses_fire
from jaxrl.errors import UserError
from jaxrl.runs import load_config
from jaxrl.scores import STICKINESS, Conditions, Evaluation, summarise
from jaxrl.types import ActorState, Agent, EnvEngine, EnvSpec, PyTree, TimeStep
from jaxrl.watch import Watch

STEPS_PER_CALL = 200  # agent steps between two looks at who has finished
SECONDS_PER_CALL = 60.0 + STEPS_PER_CALL  # that one may take at least, with its compilation
SEED_OFFSET = 1_000_003  # evaluation never plays the games of training
# Agent steps of FIRE after a reset whose own may be swallowed by sticky actions: 8 frames, of which
# one in 65,000 times none comes through.
FIRE_STEPS = 2

ProtocolName = Literal["noop", "sticky"]
# What differs from training; both play whole games with unclipped scores and 27,000 steps at most.
PROTOCOLS: dict[str, dict[str, Any]] = {
    # Up to 30 no-ops at the start, no sticky actions (Mnih 2015)
    "noop": {"noop_max": 30},
    # Machado 2018: actions repeat with probability 0.25. EnvPool takes at least one no-op or FIRE.
    "sticky": {"noop_max": 1},
}


class Stage(NamedTuple):
    """Games, agent and conditions of one protocol."""

    engine: EnvEngine
    agent: Agent
    conditions: Conditions


class Pressing(NamedTuple):
    """Games in which FIRE is pressed for the agent for some steps after every reset."""

    env: PyTree  # the engine's
    left: Any  # i32[E], steps to come with FIRE

    def sent(self, action: jax.Array, spec: EnvSpec) -> jax.Array:
        """Returns the actions i32[E] that reach the games in place of the agent's."""
        return jnp.where(self.left > 0, jnp.int32(spec.action_meanings.index("FIRE")), action)


class _Games(NamedTuple):
    """The first game of every environment."""

    state: rollout.RolloutState
    finished: jax.Array  # b[E]
    score: jax.Array  # f32[E]
    length: jax.Array  # i32[E], agent steps


def protocol_config(config: Config, protocol: str) -> Config:
    """Returns the run's configuration, with the games as the protocol plays them.

    What the policy cannot know otherwise stays as it was trained: the set of actions, and who
    presses FIRE at the start and after a lost life (`episodic_life`, `fire_reset`). A value-based
    agent explores as `evaluation_epsilon` says.
    """
    whole_games: dict[str, Any] = {
        "reward_clip": False,
        "random_start_steps": 0,
        "max_episode_steps": 27_000,
        "repeat_action_probability": STICKINESS[protocol],
    }
    agent = config.agent
    if isinstance(agent, ValueConfig):
        rate = agent.evaluation_epsilon
        agent = dataclasses.replace(
            agent, epsilon_start=rate, epsilon_end=rate, epsilon_spread=False
        )
    return dataclasses.replace(config, **whole_games, **PROTOCOLS[protocol], agent=agent)


def set_up(config: Config, protocol: str, num_envs: int) -> Stage:
    """Makes the games of a protocol, and the agent that plays them."""
    played = protocol_config(config, protocol)
    engine = make_engine(played, num_envs)
    agent = make_agent(played, engine.spec)
    told = conditions(config, protocol)
    return Stage(pressing_fire(engine) if told.fire_steps else engine, agent, told)


def conditions(config: Config, protocol: str) -> Conditions:
    """Returns how the run's policy is played by the protocol, as `evaluation.json` tells it."""
    played = protocol_config(config, protocol)
    if played.game == CATCH:  # which knows none of these options
        return Conditions((0, 0), False, 0, False, 0.0, False, 0)
    fire = presses_fire(played)
    # A policy that was trained with sticky actions has learned to press it where it must.
    unknown = played.repeat_action_probability > 0 and config.repeat_action_probability == 0
    return Conditions(
        # FIRE stands for one of them.
        noops=(0, played.noop_max - 1) if fire else (1, played.noop_max),
        fire=fire,
        fire_steps=FIRE_STEPS if fire and unknown else 0,
        life_resets=played.episodic_life,
        stickiness=played.repeat_action_probability,
        all_actions=played.full_action_space,
        max_steps=played.max_episode_steps,
    )


def pressing_fire(engine: EnvEngine) -> EnvEngine:
    """Returns the engine with FIRE in place of the first actions after every reset.

    With sticky actions the emulator may ignore the FIRE of the reset itself, and a policy that has
    never had to press it would stand still.
    """

    def init(seed: int) -> tuple[Pressing, TimeStep]:
        env, timestep = engine.init(seed)
        return Pressing(env, np.full(len(timestep.reset), FIRE_STEPS, np.int32)), timestep

    def send(state: Pressing, action: jax.Array) -> Pressing:
        return state._replace(env=engine.send(state.env, state.sent(action, engine.spec)))

    def recv(state: Pressing) -> tuple[Pressing, TimeStep]:
        env, timestep = engine.recv(state.env)
        left = jnp.where(timestep.reset, FIRE_STEPS, jnp.maximum(state.left - 1, 0))
        return Pressing(env, left), timestep

    return engine._replace(init=init, send=send, recv=recv)


def start_games(config: Config, engine: EnvEngine, seed: int) -> rollout.RolloutState:
    """New games on the first local device."""
    num_envs = engine.spec.num_envs
    env, timestep = engine.init(seed)
    keys = jax.random.split(jax.random.key(seed), num_envs)
    games = episodes.init(num_envs, 1, counted=True)
    return jax.device_put(rollout.start(env, timestep, keys, games), jax.local_devices()[0])


def _step(agent: Agent, engine: EnvEngine, actor: ActorState, games: _Games) -> _Games:
    before = games.state.episodes
    state, _ = rollout.step(agent, engine, actor, games.state)
    ends = state.timestep.game_over & ~games.finished
    return _Games(
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
) -> Evaluation:
    """Plays `num_episodes` games with actions drawn from the policy.

    Args:
      config: of the run that trained the policy.
      actor: what it learned.
      protocol: one of `PROTOCOLS`.
      num_episodes: games, one in each of as many environments.
      seed: of the games and the actions.
      step: agent steps of training behind the actor, for the record.
    """
    engine, agent, told = set_up(config, protocol, num_episodes)

    @jax.jit
    def advance(actor: ActorState, games: _Games) -> _Games:
        return jax.lax.fori_loop(
            0, STEPS_PER_CALL, lambda _, g: _step(agent, engine, actor, g), games
        )

    state = start_games(config, engine, SEED_OFFSET + seed)
    none = jnp.zeros(num_episodes)
    games = _Games(state, none.astype(bool), none, none.astype(jnp.int32))
    with Watch(config.stuck_after) as watch:
        while not np.all(games.finished):
            with watch.expecting("the emulators", SECONDS_PER_CALL):
                games = jax.block_until_ready(advance(actor, games))
            engine.check()
    engine.close()
    found, lengths = np.asarray(games.score), np.asarray(games.length)
    return summarise(config.game, protocol, step, found, lengths, epsilon_of(config), told)


def epsilon_of(config: Config) -> float | None:
    """How often evaluations of a value-based agent act at random; None of other agents."""
    agent = config.agent
    return agent.evaluation_epsilon if isinstance(agent, ValueConfig) else None


def with_epsilon(config: Config, epsilon: float) -> Config:
    """The run's configuration, evaluated with another epsilon. Raises `UserError`."""
    if not isinstance(config.agent, ValueConfig):
        raise UserError(f"epsilon: {config.algorithm} draws its actions from its policy: leave "
                        "--epsilon out")  # fmt: skip
    agent = dataclasses.replace(config.agent, evaluation_epsilon=epsilon)
    return dataclasses.replace(config, agent=agent)


def load_actor(run_dir: Path, checkpoint: int | None) -> tuple[Config, ActorState, int]:
    """A run's configuration, its newest (or the given) policy, and the agent step that is from."""
    config = load_config(run_dir)
    engine = make_engine(config, 1)
    agent = make_agent(config, engine.spec)
    shapes = jax.eval_shape(lambda: agent.init(jax.random.key(0))).actor
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), shapes
    )
    actor, step = restore_actor(run_dir, template, checkpoint)
    return config, actor, step
