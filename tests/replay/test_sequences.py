from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.config.memory import transition_bytes
from jaxrl.replay import buffer, sequences
from jaxrl.types import Core, RecurrentObservation
from tests.replay.test_replay import ENVS, ROLLOUT, over_one_device, play

CORE = Core(3, forgets_lives=False)
FORM = sequences.Form(burn_in=2, length=5, stride=4)
SHAPE = (84, 84)


def remembering(played, seed=0):
    """The same steps as an agent that remembers sees them; any states, actions and rewards."""
    random = np.random.default_rng(seed)
    shape = played.observation.shape[:2]
    observation = RecurrentObservation(
        stack=played.observation,
        core=random.normal(size=(*shape, CORE.size)).astype(np.float32),
        last_action=random.integers(-1, 6, shape).astype(np.int32),
        last_reward=random.normal(size=shape).astype(np.float32),
        fresh=random.random(shape) < 0.2,
    )
    return played._replace(observation=observation)


@partial(jax.jit, static_argnums=2)
def add(memory, part, form):
    return sequences.add(memory, part, form)


def fill(played, rows, form=FORM):
    memory = sequences.new(ENVS, rows, SHAPE, CORE, form)
    for t in range(0, len(played.action), ROLLOUT):
        part = jax.tree.map(lambda x, t=t: x[t : t + ROLLOUT], played._replace(observation=()))
        observation = jax.tree.map(lambda x, t=t: x[t : t + ROLLOUT + 1], played.observation)
        memory = add(memory, part._replace(observation=observation), form)
    return memory


@partial(jax.jit, static_argnums=2)
def sample(key, memory, form):
    place, probability = over_one_device(sequences.draw, key, memory, 24, form)
    return place, probability, sequences.read(memory, place, form)


@pytest.mark.slow
@pytest.mark.rotating(2)
@pytest.mark.parametrize("size", [1, 2, 4])
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    rollouts=st.integers(6, 30),
    rows=st.sampled_from([16, 24]),
    ends=st.sampled_from([0.0, 0.1, 0.4]),
    static=st.sampled_from([0.0, 1.0]),
)
def test_a_sequence_equals_step_by_step_what_was_played(size, seed, rollouts, rows, ends, static):
    played = play(seed, rollouts * ROLLOUT, ends, 0.1, static)
    played = remembering(played._replace(observation=played.observation[..., -size:]), seed)
    form = FORM._replace(stack_size=size)
    memory = fill(played, rows, form)
    length = rollouts * ROLLOUT
    # Starts at multiples of 4 with a whole stack, whose last observation has been stored.
    first = max(0, length - rows) + 3
    starts = [s for s in range(0, length, FORM.stride) if first <= s and s + FORM.steps <= length]
    assert bool(sequences.has_any(memory, FORM)) == bool(starts)
    power = np.asarray(memory.priorities.power)
    assert np.count_nonzero(power) == ENVS * len(starts)
    if not starts:
        return
    place, probability, got = jax.device_get(sample(jax.random.key(seed), memory, form))
    np.testing.assert_allclose(probability, 1 / (ENVS * len(starts)), rtol=1e-5)
    assert set(place.step.tolist()) <= set(starts)
    for i, (env, start) in enumerate(zip(place.env, place.step, strict=True)):
        learned = slice(start + 2, start + 7), env
        for name in ("action", "reward", "discount", "valid"):
            np.testing.assert_array_equal(getattr(got, name)[i], getattr(played, name)[learned])
        seen = jax.tree.map(
            lambda x, env=env, start=start: x[start : start + 8, env], played.observation
        )
        for name in ("stack", "last_action", "last_reward", "fresh"):
            np.testing.assert_array_equal(
                getattr(got.observation, name)[i], getattr(seen, name), err_msg=name
            )
        np.testing.assert_array_equal(got.observation.core[i, 0], seen.core[0])
    np.testing.assert_array_equal(sequences.valid(memory, place, FORM), got.valid)


def test_new_sequences_get_the_largest_priority_and_overwritten_ones_none():
    played = remembering(play(1, 30, 0.1, 0.0, 0.0))
    memory = fill(jax.tree.map(lambda x: x[:19], played)._replace(
        **{name: getattr(played, name)[:18] for name in ("action", "reward", "discount", "valid")}
    ), 16)  # fmt: skip
    # After 18 steps of 16 rows the stacks are whole from 5 on: sequence 2 at step 8 fits.
    flat = lambda memory: np.asarray(memory.priorities.power).reshape(ENVS, -1)  # noqa: E731
    np.testing.assert_array_equal(flat(memory), [[0, 0, 1, 0]] * ENVS)
    place = buffer.Place(jnp.array([1, 0]), jnp.array([8, 4]))
    changed = over_one_device(sequences.update, memory, place, jnp.array([4.0, 9.0]), 0.5, FORM)
    memory = memory._replace(priorities=changed)
    # 4 to the power of 1/2; sequence 1 must not be drawn and has none.
    np.testing.assert_allclose(flat(memory)[:, 2], [1, 2, 1], rtol=1e-5)
    part = jax.tree.map(lambda x: x[18:20], played._replace(observation=()))
    observation = jax.tree.map(lambda x: x[18:21], played.observation)
    memory = add(memory, part._replace(observation=observation), FORM)
    # After 20 steps sequence 3, steps 12 to 19, is whole.
    np.testing.assert_allclose(flat(memory), [[0, 0, 1, 2], [0, 0, 2, 2], [0, 0, 1, 2]], rtol=1e-5)


def test_states_take_little_beside_the_frames():
    form, core = sequences.Form(40, 80, 40), Core(1024, forgets_lives=False)
    rows = buffer.rows_per_env(1_000_000, 250, form.stride)
    assert rows * 250 == 1_000_000
    shapes = jax.eval_shape(lambda: sequences.new(250, rows, SHAPE, core, form))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    each = transition_bytes(SHAPE, core.size / form.stride)
    assert size == pytest.approx(each * 1_000_000, rel=1e-4)
    # 4,096 bytes a sequence of 40 steps, and 9 bytes a step
    assert each == transition_bytes(SHAPE) + 102.4 + 9
