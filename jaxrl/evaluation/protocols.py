"""Evaluation protocols: how games start, whether actions stick, who presses FIRE."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.atari.games import atari_games
from jaxrl.config.plan import resolve
from jaxrl.config.schema import MOST_FRAMES, Config
from jaxrl.envs import make_engine
from jaxrl.envs.base import presses_fire
from jaxrl.envs.flicker import screens
from jaxrl.errors import UserError
from jaxrl.program.rollout import RolloutState
from jaxrl.runs.evaluation_record import NOTHING_PRESSED, PROTOCOLS, Conditions
from jaxrl.types import Agent, EnvEngine, EnvSpec, PyTree, TimeStep

# Frames of FIRE after a reset, whose own FIRE sticky actions may swallow: all of them are swallowed
# once in 65,000 resets.
FIRE_FRAMES = 8


class EvaluationSetup(NamedTuple):
    """Environments, agent and conditions of one protocol."""

    engine: EnvEngine
    agent: Agent
    conditions: Conditions


class FireState(NamedTuple):
    """The state of an engine that presses FIRE for the agent after every reset."""

    env: PyTree  # state of the wrapped engine
    steps_left: Any  # i32[E], with FIRE in place of the agent's action

    def override(self, action: jax.Array, spec: EnvSpec) -> jax.Array:
        """Returns the actions i32[E] that reach the games, given those of the agent."""
        return jnp.where(self.steps_left > 0, jnp.int32(spec.action_meanings.index("FIRE")), action)


def check_protocol(protocol: str) -> None:
    """Raises `UserError` for an unknown protocol."""
    if protocol not in PROTOCOLS:
        raise UserError(f"protocol '{protocol}': must be one of {', '.join(PROTOCOLS)}")


def protocol_config(config: Config, protocol: str) -> Config:
    """Returns the run's configuration with the protocol's settings of the games.

    Settings that the policy depends on stay as in training: the set of actions, blank frames, and
    whether the engine presses FIRE at the start and after a lost life (`episodic_life`,
    `fire_reset`). A value-based agent explores with `evaluation_epsilon`. Raises `UserError`
    for an unknown protocol.
    """
    check_protocol(protocol)
    games: dict[str, Any] = {
        "reward_clip": False,
        "random_start_steps": 0,
        "max_episode_steps": MOST_FRAMES // config.env.frame_skip,
        "exact_resets": True,
        "repeat_action_probability": PROTOCOLS[protocol].stickiness,
        "noop_max": PROTOCOLS[protocol].noop_max,
    }
    return config.replaced(env=games, agent=config.agent.for_evaluation())


def set_up(config: Config, protocol: str, num_envs: int) -> EvaluationSetup:
    """Makes the environments of a protocol, and the agent that plays in them."""
    played, played_under = protocol_config(config, protocol), conditions(config, protocol)
    engine = make_engine(played, num_envs)
    agent = make_agent(resolve(played), engine.spec)
    if played_under.fire_steps:
        engine = press_fire(engine, played_under.fire_steps)
    return EvaluationSetup(engine, agent, played_under)


def conditions(config: Config, protocol: str) -> Conditions:
    """Returns the conditions of an evaluation by the protocol, as evaluation.json has them."""
    played = protocol_config(config, protocol)
    if played.game not in atari_games():  # others have none of these options
        return dataclasses.replace(
            NOTHING_PRESSED, flicker=played.env.flicker, frame_skip=played.env.frame_skip
        )
    fire = presses_fire(played.game, played.env)
    # A policy trained with sticky actions has learned to press FIRE where it must.
    new_to_sticky = (
        played.env.repeat_action_probability > 0 and config.env.repeat_action_probability == 0
    )
    return Conditions(
        # FIRE replaces one of them.
        noops=(0, played.env.noop_max - 1) if fire else (1, played.env.noop_max),
        fire=fire,
        fire_steps=-(-FIRE_FRAMES // played.env.frame_skip) if fire and new_to_sticky else 0,
        life_resets=played.env.episodic_life,
        stickiness=played.env.repeat_action_probability,
        all_actions=played.env.full_action_space,
        max_steps=played.env.max_episode_steps,
        flicker=played.env.flicker,
        frame_skip=played.env.frame_skip,
        mode=played.env.mode,
        difficulty=played.env.difficulty,
        grayscale=played.env.grayscale,
    )


class GameRow(NamedTuple):
    """The newest row of environment 0, on the host."""

    score: float  # unclipped reward of the step
    terminated: bool
    truncated: bool
    game_over: bool
    reset: bool  # nothing was decided: the environment was reset

    @property
    def done(self) -> bool:
        """Returns whether an episode of the learner ended: a game or a life."""
        return self.terminated or self.truncated


def newest_row(state: RolloutState) -> GameRow:
    """Waits for environment 0, and returns the row that its last step led to."""
    timestep = state.timestep
    fields = (timestep.score, timestep.terminated, timestep.truncated, timestep.game_over,
              timestep.reset)  # fmt: skip
    return GameRow(*(np.asarray(field)[0].item() for field in fields))


def screen(engine: EnvEngine, state: RolloutState) -> np.ndarray:
    """Returns the screen u8[H, W, 3] of environment 0 in its newest state, never blank."""
    if engine.render:
        return np.array(engine.render())
    env = state.env.env if isinstance(state.env, FireState) else state.env
    return np.asarray(screens(env, state.timestep))[0][..., None].repeat(3, -1)


def press_fire(engine: EnvEngine, steps: int) -> EnvEngine:
    """Returns the engine with FIRE in place of the first `steps` actions after every reset.

    With sticky actions the emulator may ignore the FIRE of the reset itself, and a policy that
    never had to press FIRE would stand still. An agent that remembers takes its choice for the
    last action there.
    """

    def init(seed: int) -> tuple[FireState, TimeStep]:
        env, timestep = engine.init(seed)
        return FireState(env, np.full(len(timestep.reset), steps, np.int32)), timestep

    def send(state: FireState, action: jax.Array) -> FireState:
        return state._replace(env=engine.send(state.env, state.override(action, engine.spec)))

    def recv(state: FireState) -> tuple[FireState, TimeStep]:
        env, timestep = engine.recv(state.env)
        steps_left = jnp.where(timestep.reset, steps, jnp.maximum(state.steps_left - 1, 0))
        return FireState(env, steps_left), timestep

    return engine._replace(init=init, send=send, recv=recv)
