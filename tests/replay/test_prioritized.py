from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl.replay import buffer, prioritized
from jaxrl.types import AXIS, Trajectory
from tests.replay.test_replay import over_one_device

ENVS, ROLLOUT, N_STEP = 2, 2, 3


def part(t, invalid=()):
    """ROLLOUT steps from step t; `invalid` are (environment, step)."""
    valid = np.ones((ROLLOUT, ENVS), bool)
    for env, step in invalid:
        if t <= step < t + ROLLOUT:
            valid[step - t, env] = False
    random = np.random.default_rng(t)
    return Trajectory(
        observation=jnp.asarray(random.integers(0, 256, (ROLLOUT + 1, ENVS, 84, 84, 4)), jnp.uint8),
        action=jnp.zeros((ROLLOUT, ENVS), jnp.int32),
        reward=jnp.zeros((ROLLOUT, ENVS)),
        discount=jnp.ones((ROLLOUT, ENVS)),
        valid=jnp.asarray(valid),
        extras=(),
    )


def remember(length, rows, invalid=()):
    memory = buffer.new(ENVS, rows)._replace(priorities=prioritized.new(ENVS, rows))
    add = jax.jit(lambda m, p: prioritized.follow(buffer.add(m, p), ROLLOUT, N_STEP))
    for t in range(0, length, ROLLOUT):
        memory = add(memory, part(t, invalid))
    return memory


def drawable(memory):
    """Environments and steps that may be drawn."""
    capacity, steps = memory.ring.valid.shape[1], int(memory.steps[0])
    power = np.asarray(memory.priorities.power).reshape(ENVS, -1)
    assert (power[:, capacity:] == 0).all()
    rows = {s % capacity: s for s in range(max(0, steps - capacity), steps)}
    return {(env, rows[row]) for env, row in zip(*np.nonzero(power[:, :capacity]), strict=True)}


@pytest.mark.parametrize("length", [2, 6, 8, 12, 14, 20, 26, 40])
@pytest.mark.parametrize("block", [3, 5, 1024])
def test_what_may_be_drawn_is_what_uniform_replay_draws_from(length, block, monkeypatch):
    """Whole stacks and windows of n steps that were not overwritten, but for reset rows."""
    monkeypatch.setattr(prioritized, "BLOCK", block)
    invalid = [(0, 7), (1, 16), (0, 30)]
    memory = remember(length, 12, invalid)
    first, places = int(buffer.first_step(memory)), int(buffer.num_places(memory, N_STEP))
    expected = {(env, s) for env in range(ENVS) for s in range(first, first + places)}
    assert drawable(memory) == expected - set(invalid)


def test_an_interrupted_step_is_never_drawn():
    """Where other games follow (a resumed run) the newest step has no successor."""
    memory = buffer.interrupt(remember(10, 12))
    add = jax.jit(lambda m, p: prioritized.follow(buffer.add(m, p), ROLLOUT, N_STEP))
    for t in (10, 12, 14):
        memory = add(memory, part(t))
    steps = {step for _, step in drawable(memory)}
    assert 9 not in steps
    assert {8, 10} <= steps


def with_power(power, steps):
    """A full replay of as many rows as `power` f32[E, C], whose newest step is `steps` - 1."""
    num_envs, rows = power.shape
    empty = prioritized.new(num_envs, rows)
    padded = np.zeros((num_envs, empty.power[0].size), np.float32)
    padded[:, :rows] = power
    memory = buffer.new(num_envs, rows)
    return memory._replace(
        steps=jnp.array([steps]),
        priorities=empty._replace(power=jnp.asarray(padded.reshape(empty.power.shape))),
    )


@pytest.mark.optimized
@pytest.mark.slow
def test_frequencies_match_priorities():
    """Chi-square over a million draws, of priorities that differ a thousandfold; some are zero."""
    random = np.random.default_rng(0)
    power = 10 ** random.uniform(-2, 1, (8, 300)).astype(np.float32)
    power[random.random(power.shape) < 0.2] = 0
    memory = with_power(power, 1000)
    draw = lambda key: over_one_device(prioritized.draw, key, memory, 1000)  # noqa: E731
    keys = jax.random.split(jax.random.key(0), 1000)
    place, probability = jax.jit(lambda: jax.lax.map(draw, keys))()
    env, row = np.asarray(place.env), np.asarray(place.step) % 300
    counts = np.zeros(power.shape)
    np.add.at(counts, (env, row), 1)
    np.testing.assert_allclose(probability, power[env, row] / power.sum(), rtol=1e-4)
    assert (np.asarray(place.step) >= 700).all()
    assert (np.asarray(place.step) < 1000).all()
    assert (counts[power == 0] == 0).all()
    expected = power[power > 0].astype(float)
    test = scipy.stats.chisquare(counts[power > 0], 1e6 * expected / expected.sum())
    assert test.pvalue > 0.001


def test_an_empty_part_is_never_drawn():
    """Sums may end it a rounding after the part before it, or before the last point."""
    parts = jnp.array([0.0, 0.25, 0.0, 0.5, 0.0])
    ends = jnp.array([0.0, 0.25, 0.25 + 2**-24, 0.75, 0.75])
    points = [(0.0, 1), (0.1, 1), (0.25, 1), (0.3, 3), (0.75, 3), (0.8, 3), (-0.1, 1)]
    for point, index in points:
        assert prioritized._find(parts, ends, jnp.float32(point)) == index
    assert prioritized._find(parts[:1], ends[:1], jnp.float32(0.0)) == 0  # nothing to draw from


@pytest.mark.slow
def test_each_part_of_the_sum_has_one_draw():
    """Stratified: the block with half of all priority has two draws of four."""
    power = np.full((2, 10), 0.05, np.float32)
    memory = with_power(power, 10)
    for key in jax.random.split(jax.random.key(0), 50):
        place, _ = over_one_device(prioritized.draw, key, memory, 4)
        np.testing.assert_array_equal(place.env, [0, 0, 1, 1])


def test_rows_below_the_precision_of_the_sum_are_drawn_alike():
    """Near 2^24 float32 counts by two: of the rows with a priority of 1, half would have none."""
    power = jnp.ones((1, 129, 128)).at[0, 0].set(0.0).at[0, 0, 0].set(2.0**24)
    draw = jax.jit(lambda key: over_one_device(prioritized.draw_rows, key, power, 512))
    rows = []
    for key in jax.random.split(jax.random.key(0), 40):
        row = np.asarray(draw(key)[1])
        rows += row[row >= 128].tolist()
    assert 10 < len(rows) < 30  # they are half of the last of 512 parts, which is drawn 40 times
    assert {row % 2 for row in rows} == {0, 1}
    # The number that chose the block is above a half, and says nothing of the row.
    assert {row % 128 // 64 for row in rows} == {0, 1}


@pytest.mark.parametrize("exponent", [0.2, 0.5])
def test_a_transition_without_an_error_can_be_drawn_again(exponent):
    """Its error was exactly 0, and the next one is not."""
    priorities = prioritized.Priorities(jnp.ones((1, 1, 2)), jnp.ones(1))
    env, row = jnp.zeros(2, jnp.int32), jnp.arange(2)
    for error, expected in ((0.0, 1e-6**exponent), (1.0, 1.0)):
        errors = jnp.array([error, 0.25])
        set_errors = partial(prioritized.set_errors, exponent=exponent)
        priorities = over_one_device(set_errors, priorities, env, row, errors)
        np.testing.assert_allclose(priorities.power[0, 0], [expected, 0.25**exponent], rtol=1e-4)


def test_hand_worked_weights():
    # N P = 2, 1, 0.5 of three: weights (NP)^-1/2 over the largest, of NP = 0.5
    probability = jnp.array([2.0, 1.0, 0.5]) / 3
    weights = over_one_device(prioritized.importance, probability, jnp.float32(0.5))
    np.testing.assert_allclose(weights, [0.5, 0.5**0.5, 1.0], rtol=1e-6)
    flat = over_one_device(prioritized.importance, probability, jnp.float32(0.0))
    np.testing.assert_allclose(flat, 1.0)
    nothing = over_one_device(prioritized.importance, jnp.array([0.0, 0.5]), jnp.float32(1.0))
    np.testing.assert_allclose(nothing, [0.0, 1.0])


def test_weights_are_those_of_all_devices():
    probability = jnp.array([[0.5, 0.5], [0.1, 0.9]])
    weigh = jax.vmap(prioritized.importance, in_axes=(0, None), axis_name=AXIS)
    np.testing.assert_allclose(weigh(probability, jnp.float32(1.0)), [[0.2, 0.2], [1.0, 1 / 9]],
                               rtol=1e-5)  # fmt: skip


@pytest.mark.slow
def test_importance_undoes_the_uneven_draws():
    """With β = 1 the weighted mean over draws is the mean over all: Σ P w x ∝ Σ x."""
    random = np.random.default_rng(1)
    power, x = random.uniform(0.1, 1, (1, 50)).astype(np.float32), random.normal(size=50)
    memory = with_power(power, 50)
    place, probability = over_one_device(prioritized.draw, jax.random.key(0), memory, 50_000)
    weight = np.asarray(over_one_device(prioritized.importance, probability, jnp.float32(1)))
    mean = (weight * x[np.asarray(place.step)]).sum() / weight.sum()
    assert mean == pytest.approx(x.mean(), abs=0.01)


def test_errors_become_priorities_and_new_transitions_have_the_largest():
    memory = remember(12, 12)
    assert float(memory.priorities.largest[0]) == 1
    place = buffer.Place(jnp.array([0, 1]), jnp.array([4, 5]))
    error = jnp.array([-4.0, 0.25])
    changed = over_one_device(prioritized.update, memory, place, error, 0.5)
    power = np.asarray(changed.power).reshape(ENVS, -1)
    assert power[0, 4] == pytest.approx(2.0, rel=1e-5)
    assert power[1, 5] == pytest.approx(0.5, rel=1e-5)
    assert power[0, 5] == 1
    assert float(changed.largest[0]) == pytest.approx(2.0, rel=1e-5)
    added = buffer.add(memory._replace(priorities=changed), part(12))
    followed = prioritized.follow(added, ROLLOUT, N_STEP)
    newest = np.asarray(followed.priorities.power).reshape(ENVS, -1)[:, [9, 10]]
    np.testing.assert_allclose(newest, 2.0, rtol=1e-5)


def test_what_must_not_be_drawn_stays_so():
    memory = remember(12, 12, invalid=[(0, 4)])
    place = buffer.Place(jnp.array([0]), jnp.array([4]))
    changed = over_one_device(prioritized.update, memory, place, jnp.array([9.0]), 0.5)
    assert float(changed.power.reshape(ENVS, -1)[0, 4]) == 0
    assert float(changed.largest[0]) == 1


@pytest.mark.slow
def test_an_empty_replay_gives_no_weight():
    memory = remember(2, 12)
    place, probability = over_one_device(prioritized.draw, jax.random.key(0), memory, 4)
    assert (np.asarray(probability) == 0).all()
    assert ((place.env >= 0) & (place.env < ENVS)).all()
