"""The replay on the device: a ring buffer of steps for every environment, each frame stored once.

A step holds only the newest frame of the stack that its action was chosen from; reading rebuilds
the stacks. A million transitions take 7.1 GB instead of 56. The replay is sharded by device:
each holds the steps of its environments, and a batch draws from all of them.

    step         oldest ... a-3 a-2 a-1  a  ...  a+m  ...  newest
    stack of a              └───────────┘
    window                               └────────┘  m ≤ n rewards, then the bootstrap's stack
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.ops import batches
from jaxrl.types import (
    AXIS,
    FRAME_SHAPE,
    STACK_SIZE,
    Core,
    PyTree,
    RecurrentObservation,
    Trajectory,
)

PIXELS = 4  # side by side, travel as one u32


class Steps(NamedTuple):
    """C steps of every environment."""

    frame: jax.Array  # u32[E, C, 84, 84 / 4], newest of the stack, four pixels a word
    fresh: jax.Array  # b[E, C], the stack is this frame alone, as at the start of a game
    action: jax.Array  # u8[E, C]
    reward: jax.Array  # f32[E, C]
    terminated: jax.Array  # b[E, C]
    valid: jax.Array  # b[E, C], False where a reset ignored the action
    extras: PyTree  # [E, C], of the trajectory
    # [E, C], of an agent that remembers: a RecurrentObservation, of which the frames are the stacks
    recall: PyTree = ()


class Replay(NamedTuple):
    """The newest C steps of every environment on this device; step s lies at row s mod C."""

    ring: Steps
    steps: jax.Array  # i32[1], written so far, of each environment
    priorities: PyTree = ()  # those of `jaxrl.replay.prioritized`; () where all are drawn alike
    # f32[E, C / stride, S], states of the core at the starts of `jaxrl.replay.sequences`
    states: PyTree = ()


class Place(NamedTuple):
    """The first steps of transitions."""

    env: jax.Array  # i32[B], among this device's
    step: jax.Array  # i32[B], since the beginning


class Transitions(NamedTuple):
    """Transitions over up to n steps from each of B places."""

    observation: jax.Array  # u8[B, 84, 84, 4]
    action: jax.Array  # i32[B]
    reward: jax.Array  # f32[B], discounted sum over the window
    discount: jax.Array  # f32[B], of the bootstrap: γᵐ, 0 after a termination
    next_observation: jax.Array  # u8[B, 84, 84, 4], of the bootstrap
    valid: jax.Array  # b[B], False for a row that is no transition and must not count


def new(
    num_envs: int,
    rows: int,
    frame_shape: tuple[int, int] = FRAME_SHAPE,
    extras: PyTree = (),
    core: Core | None = None,
    stores_state: bool = True,
) -> Replay:
    """Returns an empty replay of `rows` steps for each of this device's environments.

    Args:
      num_envs: E.
      rows: C.
      frame_shape: pixels, height x width; the width is a multiple of 4.
      extras: dtypes of the extras of each step.
      core: that of an agent that remembers, else None.
      stores_state: whether the core's state before each step is stored, too.
    """
    shape = (num_envs, rows)
    ring = Steps(
        frame=jnp.zeros((*shape, frame_shape[0], frame_shape[1] // PIXELS), jnp.uint32),
        fresh=jnp.zeros(shape, bool),
        action=jnp.zeros(shape, jnp.uint8),
        reward=jnp.zeros(shape, jnp.float32),
        terminated=jnp.zeros(shape, bool),
        valid=jnp.zeros(shape, bool),
        extras=jax.tree.map(lambda dtype: jnp.zeros(shape, dtype), extras),
        recall=_new_recall(shape, core, stores_state),
    )
    return Replay(ring, steps=jnp.zeros(1, jnp.int32))


def _new_recall(shape: tuple[int, int], core: Core | None, stores_state: bool) -> PyTree:
    """Returns the empty recall of steps [E, C], without states if none are stored."""
    if core is None:
        return ()
    return RecurrentObservation(
        stack=(),
        core=jnp.zeros((*shape, core.size)) if stores_state else (),
        last_action=jnp.zeros(shape, jnp.int32),
        last_reward=jnp.zeros(shape),
        fresh=jnp.zeros(shape, bool),
    )


def rows_per_env(capacity: int, num_envs: int, rollout_length: int) -> int:
    """Returns C for `capacity` transitions over all environments; rollouts never wrap."""
    return max(1, capacity // num_envs // rollout_length) * rollout_length


def rows_for_window(length: int, rollout_length: int) -> int:
    """Returns C for windows of `length` steps with whole stacks; rollouts never wrap."""
    return -(-(length + STACK_SIZE - 1) // rollout_length) * rollout_length


def holds_window(replay: Replay, length: int) -> jax.Array:
    """Returns b[], whether the oldest stack of a window of `length` steps is whole."""
    return replay.steps[0] >= length + STACK_SIZE - 1


def add(replay: Replay, trajectory: Trajectory) -> Replay:
    """Writes a trajectory [T, E] over the oldest steps; T divides C."""
    stacks, recall = _parts(batches.at(trajectory.observation, slice(-1)))
    length, newest = len(trajectory.action), stacks[..., -1]
    new = Steps(
        frame=jax.lax.bitcast_convert_type(
            newest.reshape(*newest.shape[:-1], -1, PIXELS), jnp.uint32
        ),
        # A picture that stands still has four equal frames, too, and the same stack.
        fresh=_is_fresh(stacks),
        action=trajectory.action.astype(jnp.uint8),
        reward=trajectory.reward,
        terminated=trajectory.discount == 0,
        valid=trajectory.valid,
        extras=trajectory.extras,
        recall=recall,
    )
    row = (replay.steps[0] % replay.ring.valid.shape[1]).astype(jnp.int32)

    def write(ring: jax.Array, rows: jax.Array) -> jax.Array:
        start = (jnp.int32(0), row) + (jnp.int32(0),) * (ring.ndim - 2)
        return jax.lax.dynamic_update_slice(ring, jnp.swapaxes(rows, 0, 1), start)

    ring = jax.tree.map(write, replay.ring, new)
    return replay._replace(ring=ring, steps=replay.steps + length)


def _is_fresh(stacks: jax.Array) -> jax.Array:
    """Returns b[T, E], where all frames of a stack u8[T, E, 84, 84, 4] are equal."""
    newest = stacks[..., -1]
    if stacks.shape[-1] != 4:
        return jnp.all(stacks == newest[..., None], axis=(2, 3, 4))
    # Four equal bytes; compared as one word.
    same = jax.lax.bitcast_convert_type(stacks, jnp.uint32) == newest * jnp.uint32(0x01010101)
    return jnp.all(same, axis=(2, 3))


def _parts(observation: PyTree) -> tuple[jax.Array, PyTree]:
    """Returns the stacks of observations, and what an agent that remembers sees beside them."""
    if isinstance(observation, RecurrentObservation):
        return observation.stack, observation._replace(stack=())
    return observation, ()


def interrupt(replay: Replay) -> Replay:
    """Marks the newest step as invalid, where other games follow (a resumed run)."""
    row = (replay.steps[0] - 1) % replay.ring.valid.shape[1]
    valid = replay.ring.valid.at[:, row].set(False)
    return replay._replace(ring=replay.ring._replace(valid=valid))


def first_step(replay: Replay) -> jax.Array:
    """Returns i32[], the oldest step with a whole stack."""
    return jnp.maximum(replay.steps[0] - replay.ring.valid.shape[1], 0) + STACK_SIZE - 1


def num_places(replay: Replay, n_step: int) -> jax.Array:
    """Returns i32[], the steps of each environment at which a window of n steps can begin."""
    return jnp.maximum(replay.steps[0] - n_step - first_step(replay), 0)


def draw_uniform(key: jax.Array, replay: Replay, batch_size: int, n_step: int) -> Place:
    """Draws this device's share of a batch, uniformly over steps and environments.

    Transition b of the whole batch is drawn from the b-th part of all environments by a separate
    key: the batch does not depend on the number of devices.

    Args:
      key: the same on every device.
      replay: with at least one place.
      batch_size: B, transitions on this device.
      n_step: n, steps of a window.
    """
    num_envs, device = replay.ring.valid.shape[0], jax.lax.axis_index(AXIS)
    keys = batches.keys_per_index(key, batch_size)
    env_key, step_key = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
    part = batches.global_indices(batch_size) + jax.vmap(jax.random.uniform)(env_key)
    env = jnp.floor(part * (num_envs / batch_size)).astype(jnp.int32) - device * num_envs
    draw = jax.vmap(lambda k: jax.random.randint(k, (), 0, num_places(replay, n_step)))
    return Place(jnp.clip(env, 0, num_envs - 1), first_step(replay) + draw(step_key))


def stacks_at(
    replay: Replay, env: jax.Array, step: jax.Array, stack_size: int = STACK_SIZE
) -> jax.Array:
    """Rebuilds the stack at each place: u8[B, 84, 84, 4], oldest frame first.

    A smaller stack is the newest part of one of 4.
    """
    rows = replay.ring.valid.shape[1]
    steps = step[:, None] + jnp.arange(1 - STACK_SIZE, 1)  # [B, 4]
    env = env[:, None]
    # Frames before the newest fresh one belong to another game; the fresh one replaces them.
    fresh = replay.ring.fresh[env, steps % rows].at[:, 0].set(True)
    oldest = jnp.max(jnp.where(fresh, steps, 0), axis=1, keepdims=True)
    words = replay.ring.frame[env, jnp.maximum(steps, oldest) % rows]
    frames = jax.lax.bitcast_convert_type(words, jnp.uint8)
    frames = frames.reshape(*words.shape[:-1], -1)
    # A pixel's four bytes as one word, oldest lowest: faster than moving bytes.
    shifts = 8 * jnp.arange(STACK_SIZE, dtype=jnp.uint32)[:, None, None]
    stacks = jax.lax.bitcast_convert_type(
        jnp.sum(frames.astype(jnp.uint32) << shifts, axis=1, dtype=jnp.uint32), jnp.uint8
    )
    return stacks[..., STACK_SIZE - stack_size :]


def read(
    replay: Replay, place: Place, n_step: int, gamma: float, stack_size: int = STACK_SIZE
) -> Transitions:
    """Reads the transitions that begin at `place`.

    With m the number of rows before the first invalid one, at most n:

    G = Σ_{k<m} γᵏ · (Π_{l<k} discount_l) · r_k,  bootstrap at step m with γᵐ · Π_{l<m} discount_l

    The window ends at a termination (discount 0), at a truncation (the bootstrap is the frame that
    came with it), and before a reset row. It never passes the newest step.
    """
    rows = replay.ring.valid.shape[1]
    steps = (place.step[:, None] + jnp.arange(n_step)) % rows  # [B, n]
    env = place.env[:, None]
    inside = jnp.cumprod(replay.ring.valid[env, steps], axis=1).astype(jnp.float32)
    discount = gamma * (1 - replay.ring.terminated[env, steps].astype(jnp.float32))
    discount = jnp.where(inside > 0, discount, 1.0)
    after = jnp.cumprod(discount, axis=1)
    before = jnp.concatenate([jnp.ones_like(after[:, :1]), after[:, :-1]], axis=1)
    length = jnp.sum(inside, axis=1).astype(jnp.int32)
    return Transitions(
        observation=stacks_at(replay, place.env, place.step, stack_size),
        action=replay.ring.action[place.env, steps[:, 0]].astype(jnp.int32),
        reward=jnp.sum(inside * before * replay.ring.reward[env, steps], axis=1),
        discount=after[:, -1],
        next_observation=stacks_at(replay, place.env, place.step + length, stack_size),
        valid=replay.ring.valid[place.env, steps[:, 0]],
    )


def window(replay: Replay, env: jax.Array, length: int, newest: PyTree) -> Trajectory:
    """Reads the last `length` steps of some environments.

    Args:
      replay: a replay of `length` + 3 steps or more, as `rows_for_window` makes it.
      env: i32[B], among this device's.
      length: T.
      newest: u8[B, 84, 84, 4] or a RecurrentObservation [B], after the last step.

    Returns:
      A trajectory [T, B]; no row is valid before the oldest stack is whole.
    """
    capacity = replay.ring.valid.shape[1]
    step = replay.steps[0] - length + jnp.arange(length)
    place = env[None, :], step[:, None] % capacity
    envs, steps = (
        jnp.broadcast_to(x, (length, len(env))).ravel() for x in (env[None, :], step[:, None])
    )
    stack, recall = _parts(newest)
    stacks = stacks_at(replay, envs, steps, stack.shape[-1]).reshape(length, *stack.shape)
    stacks = jnp.concatenate([stacks, stack[None]])
    recalled = jax.tree.map(
        lambda ring, new: jnp.concatenate([ring[place], new[None]]), replay.ring.recall, recall
    )
    return Trajectory(
        observation=stacks if recalled == () else recalled._replace(stack=stacks),
        action=replay.ring.action[place].astype(jnp.int32),
        reward=replay.ring.reward[place],
        discount=1.0 - replay.ring.terminated[place].astype(jnp.float32),
        valid=replay.ring.valid[place] & holds_window(replay, length),
        extras=jax.tree.map(lambda x: x[place], replay.ring.extras),
    )
