import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.agents import make_agent
from jaxrl.agents.dqn.settings import DQNConfig
from jaxrl.config.memory import transition_bytes
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.config.toml import load
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.program.observations import fill_stack, stack_frames
from jaxrl.program.program import make_program
from jaxrl.replay import buffer
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget
from jaxrl.training.memory_budget import check_memory
from jaxrl.types import AXIS, TimeStep, Trajectory
from tests.conftest import large_catch_config, planned, recipe_file

ENVS, ROLLOUT = 3, 2


def play(seed: int, length: int, ends: float, lives: float, static: float):
    """Frames, resets and stacks as the rollout makes them; [length + 1, ENVS] observations.

    `ends`, `lives` and `static` are probabilities: of a game over, of a lost life, and that a
    frame repeats the one before.
    """
    random = np.random.default_rng(seed)
    frame = random.integers(0, 256, (ENVS, 84, 84), np.uint8)
    no = np.zeros(ENVS, bool)
    zeros = np.zeros(ENVS, np.float32)
    previous = TimeStep(frame, zeros, zeros, no, no, no, no)
    observation = np.asarray(fill_stack(jnp.asarray(frame)))
    rows, observations = [], [observation]
    for _ in range(length):
        over, life = random.random(ENVS) < ends, random.random(ENVS) < lives
        reset = np.asarray(previous.game_over | previous.terminated)
        truncated = over & (random.random(ENVS) < 0.5) & ~reset
        terminated = ((over & ~truncated) | life) & ~reset
        fresh = random.integers(0, 256, (ENVS, 84, 84), np.uint8)
        still = random.random(ENVS) < static
        timestep = TimeStep(
            frame=np.where(still[:, None, None], previous.frame, fresh),
            reward=np.where(reset, 0, random.normal(size=ENVS)).astype(np.float32),
            score=zeros,
            terminated=terminated,
            truncated=truncated,
            game_over=over & ~reset,
            reset=reset,
        )
        observation = np.asarray(
            stack_frames(jnp.asarray(observation), previous, jax.tree.map(jnp.asarray, timestep))
        )
        rows.append((timestep, random.integers(0, 6, ENVS)))
        observations.append(observation)
        previous = timestep
    return Trajectory(
        observation=np.stack(observations),
        action=np.stack([action for _, action in rows]).astype(np.int32),
        reward=np.stack([step.reward for step, _ in rows]),
        discount=np.stack([1.0 - step.terminated for step, _ in rows]).astype(np.float32),
        valid=np.stack([~step.reset for step, _ in rows]),
        extras=(),
    )


add = jax.jit(buffer.add)
stack_frames = jax.jit(stack_frames)


def fill(played: Trajectory, rows: int) -> buffer.Replay:
    memory = buffer.new(ENVS, rows)
    for t in range(0, len(played.action), ROLLOUT):
        part = jax.tree.map(lambda x, t=t: x[t : t + ROLLOUT], played._replace(observation=()))
        observation = played.observation[t : t + ROLLOUT + 1]
        memory = add(memory, part._replace(observation=observation))
    return memory


def over_one_device(function, *arguments):
    mapped = jax.vmap(lambda _: function(*arguments), axis_name=AXIS, axis_size=1)
    return jax.tree.map(lambda x: x[0], mapped(jnp.zeros(1)))


def expected(played: Trajectory, env: int, step: int, n_step: int, gamma: float):
    """A transition by brute force: (stack, action, G, discount, next stack)."""
    total, discount, at = 0.0, 1.0, step
    for t in range(step, step + n_step):
        if not played.valid[t, env]:
            break
        total += discount * played.reward[t, env]
        discount *= gamma * played.discount[t, env]
        at = t + 1
    stacks = played.observation[:, env]
    return stacks[step], played.action[step, env], total, discount, stacks[at]


@partial(jax.jit, static_argnums=2)
def sample(key, memory, n_step):
    place = over_one_device(buffer.draw_uniform, key, memory, 260, n_step)
    return place, buffer.read(memory, place, n_step, 0.9)


samples_seen = 0


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    rollouts=st.integers(7, 30),
    rows=st.sampled_from([12, 22]),
    n_step=st.sampled_from([1, 3]),
    ends=st.sampled_from([0.0, 0.1, 0.4]),
    lives=st.sampled_from([0.0, 0.2]),
    static=st.sampled_from([0.0, 0.5, 1.0]),
)
def compare_samples(seed, rollouts, rows, n_step, ends, lives, static):
    global samples_seen
    played = play(seed, rollouts * ROLLOUT, ends, lives, static)
    memory = fill(played, rows)
    newest = rollouts * ROLLOUT - 1

    place, got = jax.device_get(sample(jax.random.key(seed), memory, n_step))
    assert (place.step >= max(0, newest + 1 - rows) + 3).all()
    assert (place.step + n_step <= newest).all()
    for i, (env, step) in enumerate(zip(place.env, place.step, strict=True)):
        assert got.valid[i] == played.valid[step, env]
        stack, action, reward, discount, next_stack = expected(played, env, step, n_step, 0.9)
        np.testing.assert_array_equal(got.observation[i], stack)
        assert got.action[i] == action
        if played.valid[step, env]:
            np.testing.assert_array_equal(got.next_observation[i], next_stack)
            assert got.reward[i] == pytest.approx(reward, abs=1e-5)
            assert got.discount[i] == pytest.approx(discount, abs=1e-6)
        samples_seen += 1


@pytest.mark.slow
def test_samples_equal_what_was_played():
    compare_samples()
    assert samples_seen >= 10_000  # 40 examples of 260


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_a_smaller_stack_is_rebuilt_as_it_was_played(size):
    played = play(3, 14, ends=0.2, lives=0.2, static=0.5)
    played = played._replace(observation=played.observation[..., -size:])
    memory = fill(played, 16)
    env, step = (jnp.asarray(x.ravel()) for x in np.meshgrid(range(ENVS), range(3, 12)))
    got = buffer.read(memory, buffer.Place(env, step), 1, 0.9, size)
    np.testing.assert_array_equal(got.observation, played.observation[step, env])
    after = step + played.valid[step, env]
    np.testing.assert_array_equal(got.next_observation, played.observation[after, env])


def one_env(reward, terminated, valid, rows=16):
    """A replay with the given rows from step 3 on, frames that tell their step."""
    length = len(reward)
    memory = buffer.new(1, rows)
    frame = jnp.arange(rows, dtype=jnp.uint32)[:, None, None] * jnp.ones((84, 21), jnp.uint32)
    pad = lambda x: jnp.zeros((1, rows), x.dtype).at[0, 3 : 3 + length].set(x)  # noqa: E731
    ring = memory.ring._replace(
        frame=frame[None],
        reward=pad(jnp.array(reward)),
        terminated=pad(jnp.array(terminated)),
        valid=pad(jnp.array(valid)),
    )
    return buffer.Replay(ring, jnp.array([3 + length], jnp.int32))


def read(memory, step, n_step):
    place = buffer.Place(jnp.array([0]), jnp.array([step]))
    got = buffer.read(memory, place, n_step, 0.5)
    newest = int(got.next_observation[0, 0, 0, 3])
    return float(got.reward[0]), float(got.discount[0]), newest, bool(got.valid[0])


def test_hand_worked_windows():
    # Step 4 terminates and 5 is the reset; step 7 is truncated and 8 the reset.
    reward = [1.0, 2.0, 9.0, 4.0, 8.0, 9.0, 16.0, 32.0]
    terminated = [False, True, False, False, False, False, False, False]
    valid = [True, True, False, True, True, False, True, True]
    memory = one_env(reward, terminated, valid)
    # One step: reward 1, bootstrap from the frame of step 4 with 0.5.
    assert read(memory, 3, 1) == (1.0, 0.5, 4, True)
    # Three steps reach the termination: 1 + 0.5 * 2, no bootstrap.
    assert read(memory, 3, 3)[:2] == (2.0, 0.0)
    # The truncation: 4 + 0.5 * 8, bootstrap 0.5^2 from the true last frame, which is step 8's.
    assert read(memory, 6, 3) == (8.0, 0.25, 8, True)
    # A reset row is no transition.
    assert not read(memory, 5, 3)[3]


@pytest.mark.slow
def test_a_window_ends_where_other_games_follow():
    memory = one_env([1.0, 2.0, 4.0], [False] * 3, [True] * 3)
    cut = buffer.interrupt(memory)  # step 5 has no successor
    assert read(cut, 3, 2) == (2.0, 0.25, 5, True)
    assert read(cut, 4, 2) == (2.0, 0.5, 5, True)
    assert not read(cut, 5, 2)[3]


def test_draws_are_uniform_over_environments_and_steps():
    played = play(0, 20, 0.1, 0.0, 0.0)
    memory = fill(played, 12)
    batch, n_step = 9000, 2
    place = over_one_device(lambda: buffer.draw_uniform(jax.random.key(0), memory, batch, n_step))
    # Steps 8 to 19 are there; with their stack and their window 11 to 17.
    counts = np.zeros((ENVS, 20))
    np.add.at(counts, (np.asarray(place.env), np.asarray(place.step)), 1)
    assert counts[:, :11].sum() == counts[:, 18:].sum() == 0
    inside = counts[:, 11:18]
    chi_square = ((inside - batch / 21) ** 2 / (batch / 21)).sum()
    assert chi_square < 45.3  # 99.9 % quantile with 20 degrees of freedom


@pytest.mark.parametrize(
    "batch", [pytest.param(2, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.slow), 32]
)
def test_a_batch_does_not_depend_on_the_number_of_devices(batch):
    def draw(num_devices, num_envs=8):
        memory = buffer.new(num_envs // num_devices, 16)._replace(steps=jnp.array([16]))

        def one(_):
            size = batch // num_devices
            return buffer.draw_uniform(jax.random.key(1), memory, size, 1)

        place = jax.jit(jax.vmap(one, axis_name=AXIS))(jnp.arange(num_devices))
        env = place.env + jnp.arange(num_devices)[:, None] * (num_envs // num_devices)
        return np.asarray(env).ravel(), np.asarray(place.step).ravel()

    for one, two in zip(draw(1), draw(2), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(set(draw(1)[0])) == min(batch, 8)  # every part of the environments is drawn from


def test_a_million_transitions_take_less_than_7_3_gb():
    rows = buffer.rows_per_env(1_000_000, 16, 4)
    assert rows * 16 == 1_000_000
    shapes = jax.eval_shape(lambda: buffer.new(16, rows))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    assert size <= 7.3e9
    assert size == pytest.approx(transition_bytes((84, 84)) * 1_000_000, rel=1e-6)


@pytest.mark.parametrize("order", [pytest.param("strict", marks=pytest.mark.slow), "overlapped"])
@pytest.mark.slow
def test_the_compiled_program_writes_the_ring_in_place(order):
    """Beside the ring it needs far less memory than a second one."""
    settings = {"replay_capacity": 40_000, "batch_size": 32, "learning_starts": 0}
    config = large_catch_config("c51_fast", settings, num_envs=4, parallel={"order": order})
    engine = make_engine(config, 4)
    program = make_program(
        resolve(config), make_agent(resolve(config), engine.spec), (engine,), make_mesh(1)
    )
    state = program.init()
    size = sum(x.nbytes for x in jax.tree.leaves(state.agent.memory))
    analysis = program.run.lower(state, np.int32(1)).compile().memory_analysis()
    assert size > 250e6
    assert analysis.temp_size_in_bytes < size / 2
    assert analysis.alias_size_in_bytes >= size


def test_a_replay_too_large_is_refused_with_the_size_that_fits():
    def fit(capacity, share, copies=1, where="on each device"):
        config = Config(algorithm="dqn", agent=DQNConfig(replay_capacity=capacity))
        memory_budget.check_fits(
            config, free_bytes=int(8e9), share=share, copies=copies, where=where
        )

    fit(1_000_000, 1)
    # Four devices hold a quarter each.
    fit(4_000_000, 1 / 4)
    message = r"= 8000000: needs 14\.1 GB on each device, and 8\.0 GB are free: 4070000 would fit$"
    with pytest.raises(UserError, match=message):
        fit(8_000_000, 1 / 4)
    # A checkpoint passes through the same memory.
    with pytest.raises(UserError, match=r"14\.1 GB of host memory, .* 500000 would fit$"):
        fit(1_000_000, 1, copies=2, where="of host memory")


def test_windows_too_long_are_refused_before_training(monkeypatch):
    frames = {"frame_height": 84, "frame_width": 84}
    config = load(recipe_file("vtrace_cpu")).replaced(env=frames)  # 40 environments
    config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, window=10_000))
    monkeypatch.setattr(memory_budget, "free_host_memory", lambda: int(3e9))
    with pytest.raises(UserError, match=r"need 2\.8 GB of host memory, and 3\.0 GB are free"):
        check_memory(planned(config), make_mesh(1))
    monkeypatch.setattr(memory_budget, "free_host_memory", lambda: int(4e9))
    check_memory(planned(config), make_mesh(1))


@pytest.mark.parametrize("keeps", [False, True])
def test_training_asks_for_the_memory_before_it_begins(keeps, monkeypatch):
    config = load(recipe_file("c51"))  # 7.1 GB
    config = config.replaced(checkpoint={"memory": keeps})
    mesh = make_mesh(2)  # of CPU devices, which share the memory
    for free, fits in ((7e9, False), (9e9, not keeps), (17e9, True)):
        monkeypatch.setattr(memory_budget, "free_host_memory", lambda free=free: int(free))
        if fits:
            check_memory(planned(config, mesh.size), mesh)
        else:
            with pytest.raises(UserError, match="would fit"):
                check_memory(planned(config, mesh.size), mesh)
