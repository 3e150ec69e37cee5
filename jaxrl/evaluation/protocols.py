"""Evaluation protocols: how games start, whether actions stick, who presses FIRE."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.agents import make_agent
from jaxrl.atari.games import CATCH
from jaxrl.config.schema import Config
from jaxrl.envs import make_engine
from jaxrl.envs.envpool.engine import presses_fire
from jaxrl.runs.evaluation_record import STICKINESS, Conditions
from jaxrl.types import Agent, EnvEngine, EnvSpec, PyTree, TimeStep

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
    games = whole_games | PROTOCOLS[protocol]
    return config.replaced(env=games, agent=config.agent.for_evaluation())


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
    unknown = played.env.repeat_action_probability > 0 and config.env.repeat_action_probability == 0
    return Conditions(
        # FIRE stands for one of them.
        noops=(0, played.env.noop_max - 1) if fire else (1, played.env.noop_max),
        fire=fire,
        fire_steps=FIRE_STEPS if fire and unknown else 0,
        life_resets=played.env.episodic_life,
        stickiness=played.env.repeat_action_probability,
        all_actions=played.env.full_action_space,
        max_steps=played.env.max_episode_steps,
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
