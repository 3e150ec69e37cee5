"""Sequences of a replay, which begin with a stored state of the recurrent core (R2D2).

Sequence i of an environment begins at step i · stride. Its first steps are the burn-in, the rest is
learned from, and one observation more bootstraps. Sequences overlap, and each step is stored once;
the core's state is stored at the starts alone.

    step         0 . . . stride . . . 2 stride . . .
    sequence 0   └ burn-in ┴─── learned ───┘b
    sequence 1            └ burn-in ┴─── learned ───┘b

A sequence may hold rows that are no transitions, and games that begin in it: `valid` and `fresh`
tell. It is drawn by priority while all of it is in the replay.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.ops import batches
from jaxrl.replay import buffer, prioritized
from jaxrl.replay.buffer import Place, Replay
from jaxrl.types import STACK_SIZE, Core, RecurrentObservation, Trajectory


class Form(NamedTuple):
    """The steps of every sequence; rollouts divide the stride, and the stride the replay."""

    burn_in: int  # B, steps before those that are learned from
    length: int  # L, steps that are learned from
    stride: int  # steps from the start of a sequence to that of the next
    stack_size: int = STACK_SIZE  # frames of an observation

    @property
    def steps(self) -> int:
        """All steps of a sequence, with the one whose observation bootstraps: B + L + 1."""
        return self.burn_in + self.length + 1


def new(num_envs: int, rows: int, frame_shape: tuple[int, int], core: Core, form: Form) -> Replay:
    """Returns an empty replay of `rows` steps for each of this device's environments."""
    slots = rows // form.stride
    memory = buffer.new(num_envs, rows, frame_shape, core=core, stores_state=False)
    return memory._replace(
        priorities=prioritized.new(num_envs, slots),
        states=jnp.zeros((num_envs, slots, core.size)),
    )


def _starts(memory: Replay, steps: jax.Array, form: Form) -> jax.Array:
    """Returns the first step of the newest sequence in every slot after `steps` steps: i32[C / K].

    It is negative where a slot has had none.
    """
    slots = memory.states.shape[1]
    newest = (steps - 1) // form.stride
    return (newest - (newest - jnp.arange(slots)) % slots) * form.stride


def _drawable(memory: Replay, steps: jax.Array, form: Form) -> jax.Array:
    """Returns b[C / K], slots whose sequence is whole after `steps` steps, with its first stack."""
    start, first = (
        _starts(memory, steps, form),
        buffer.first_step(memory._replace(steps=steps[None])),
    )
    return (start >= first) & (start + form.steps <= steps)


def has_any(memory: Replay, form: Form) -> jax.Array:
    """Returns b[], whether there is a sequence to draw."""
    return _drawable(memory, memory.steps[0], form).any()


def add(memory: Replay, trajectory: Trajectory, form: Form) -> Replay:
    """Writes a trajectory [T, E] over the oldest steps; T divides the stride.

    Sequences that it completes get the largest priority so far, those that it overwrites 0.
    """
    before, observation = memory.steps[0], trajectory.observation
    slot = before // form.stride % memory.states.shape[1]
    begins = before % form.stride == 0
    state = jnp.where(begins, observation.core[0], memory.states[:, slot])
    stripped = trajectory._replace(observation=observation._replace(core=()))
    memory = buffer.add(memory, stripped)._replace(states=memory.states.at[:, slot].set(state))
    power, largest = memory.priorities
    flat = power.reshape(power.shape[0], -1)
    now, earlier = (_drawable(memory, steps, form) for steps in (memory.steps[0], before))
    power_now = jnp.where(earlier, flat[:, : len(now)], largest)
    flat = flat.at[:, : len(now)].set(jnp.where(now, power_now, 0.0))
    return memory._replace(priorities=prioritized.Priorities(flat.reshape(power.shape), largest))


def draw(key: jax.Array, memory: Replay, batch_size: int, form: Form) -> tuple[Place, jax.Array]:
    """Draws this device's share of a batch, and returns the probability f32[B] of each draw."""
    env, slot, probability = prioritized.draw_rows(key, memory.priorities.power, batch_size)
    return Place(env, _starts(memory, memory.steps[0], form)[slot]), probability


def update(
    memory: Replay, place: Place, error: jax.Array, exponent: float, form: Form
) -> prioritized.Priorities:
    """Returns the priorities after the errors f32[B] of the sequences at `place`."""
    slot = place.step // form.stride % memory.states.shape[1]
    return prioritized.set_errors(memory.priorities, place.env, slot, error, exponent)


def _rows(memory: Replay, place: Place, form: Form) -> tuple[jax.Array, jax.Array]:
    """Returns the environments [B, 1] and the steps [B, B + L + 1] of sequences."""
    return place.env[:, None], place.step[:, None] + jnp.arange(form.steps)


def valid(memory: Replay, place: Place, form: Form) -> jax.Array:
    """Returns b[B, L], the learned rows of sequences that are transitions."""
    env, steps = _rows(memory, place, form)
    learned = steps[:, form.burn_in : -1]
    return memory.ring.valid[env, learned % memory.ring.valid.shape[1]]


def read(memory: Replay, place: Place, form: Form) -> Trajectory:
    """Reads the sequences that begin at `place`.

    Returns:
      A trajectory, environments first: the observations [B, burn-in + L + 1] with the state of the
      first alone, all else [B, L] of the learned steps.
    """
    ring, capacity = memory.ring, memory.ring.valid.shape[1]
    env, steps = _rows(memory, place, form)
    shape, row = steps.shape, (env, steps % capacity)
    envs = jnp.broadcast_to(env, shape).ravel()
    stacks = buffer.stacks_at(memory, envs, steps.ravel(), form.stack_size)
    slot = place.step // form.stride % memory.states.shape[1]
    observation = RecurrentObservation(
        stack=batches.unflatten(stacks, shape),
        core=memory.states[place.env, slot][:, None],
        last_action=ring.recall.last_action[row],
        last_reward=ring.recall.last_reward[row],
        fresh=ring.recall.fresh[row],
    )
    learned = env, steps[:, form.burn_in : -1] % capacity
    return Trajectory(
        observation=observation,
        action=ring.action[learned].astype(jnp.int32),
        reward=ring.reward[learned],
        discount=1.0 - ring.terminated[learned].astype(jnp.float32),
        valid=ring.valid[learned],
        extras=(),
    )
