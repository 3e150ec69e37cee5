"""Frames of other sizes than 84 x 84, from the emulators to the replay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.agents import make_agent
from jaxrl.config.memory import transition_bytes
from jaxrl.config.network import NetworkConfig
from jaxrl.config.plan import resolve
from jaxrl.config.toml import load
from jaxrl.config.validation import check
from jaxrl.envs import make_engine
from jaxrl.errors import UserError
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.program.program import make_program
from jaxrl.replay import buffer
from jaxrl.runtime.mesh import make_mesh
from jaxrl.types import Trajectory
from tests.conftest import catch_config, recipe_file


@pytest.mark.parametrize("engine", ["xla", "callback"])
def test_emulators_draw_104_x_80(engine):
    """As Stooke & Abbeel 2018 have it; EnvPool's own resizing, checked against its 84 x 84."""
    frames = {}
    for shape in ((84, 84), (104, 80)):
        config = load(recipe_file("a2c_fast")).replaced(
            env={
                "interface": engine,
                "random_start_steps": 0,
                "frame_height": shape[0],
                "frame_width": shape[1],
            },
            num_envs=2,
            parallel={"num_devices": 1},
        )
        made = make_engine(config, 2)
        assert made.spec.frame_shape == shape
        _, timestep = made.init(1)
        frames[shape] = np.asarray(timestep.frame)
        made.close()
        assert frames[shape].shape == (2, *shape)
    # The same picture: its rows and columns have the same brightness along them.
    for axis in (1, 2):
        large, small = (frames[s].mean(axis=3 - axis)[0] for s in ((104, 80), (84, 84)))
        resized = np.interp(np.linspace(0, 1, 84), np.linspace(0, 1, len(large)), large)
        assert np.corrcoef(resized, small)[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "recipe",
    ["a2c_fast", *(pytest.param(x, marks=pytest.mark.slow) for x in (
        "vtrace_cpu", "c51_fast", "ppo_pong", "nstep_q_fast", "pqn_fast"))],
)  # fmt: skip
def test_agents_learn_from_frames_of_any_size(recipe):
    agent = {
        "c51_fast": {"learning_starts": 0, "batch_size": 32, "priority_exponent": 0.5},
        "nstep_q_fast": {"epsilon_spread": False},
        "pqn_fast": {"rollout_length": 4, "num_minibatches": 2},
    }.get(recipe, {})
    config = catch_config(
        recipe,
        num_envs=10 if recipe == "vtrace_cpu" else 4,
        env={"frame_height": 56, "frame_width": 48},
        agent=agent,
    )
    check(config)
    engine = make_engine(config, config.num_envs)
    made = make_agent(resolve(config), engine.spec)
    program = make_program(resolve(config), made, (engine,), make_mesh(1))
    state = program.run(program.init(), np.int32(24 if recipe == "vtrace_cpu" else 4))
    assert state.games[0].observation.shape == (config.num_envs, 56, 48, 4)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.agent.actor.params))


@pytest.mark.slow
def test_stacks_come_back_from_a_replay_of_other_frames():
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (8, 2, 20, 16), np.uint8)
    stacks = np.stack([frames[t : t + 4] for t in range(5)])  # [5, 4, E, H, W]
    observation = jnp.asarray(np.moveaxis(stacks, 1, -1))
    played = Trajectory(
        observation, jnp.zeros((4, 2), jnp.int32), jnp.zeros((4, 2)), jnp.ones((4, 2)),
        jnp.ones((4, 2), bool), (),
    )  # fmt: skip
    memory = buffer.add(buffer.new(2, 8, (20, 16)), played)
    place = buffer.Place(jnp.array([1]), jnp.array([3]))
    transitions = buffer.read(memory, place, 1, 0.99)
    assert transitions.observation.shape == (1, 20, 16, 4)
    np.testing.assert_array_equal(transitions.observation[0, ..., 3], frames[6, 1])
    np.testing.assert_array_equal(transitions.observation[0, ..., 0], frames[3, 1])
    assert transition_bytes((20, 16)) == 20 * 16 + 8


@pytest.mark.parametrize(
    ("network", "shape", "units"),
    [
        # GA3C: stride 1 in the place of 4 makes (84 - 8) + 1 = 77, then (77 - 4) // 2 + 1 = 37.
        ({"torso": "nips", "first_stride": 1}, (84, 84), 37 * 37 * 32),
        ({"torso": "nips", "first_stride": 3}, (84, 84), 12 * 12 * 32),
        # One 3 x 3 convolution more: 9 -> 7.
        ({"torso": "nips", "extra_layers": 1}, (84, 84), 7 * 7 * 32),
        # Stooke & Abbeel: 104 -> 25 -> 11 -> 9, 80 -> 19 -> 8 -> 6.
        ({"torso": "nature"}, (104, 80), 9 * 6 * 64),
        # 84 -> 42 -> 21 -> 19 -> 9 -> 7, and one layer more.
        ({"torso": "gamma"}, (84, 84), 7 * 7 * 64),
        ({"torso": "gamma", "extra_layers": 1}, (84, 84), 5 * 5 * 64),
        # 84 -> 21 -> 11 -> 11, 40 -> 10 -> 5 -> 5: the borders are padded.
        ({"torso": "hadamax"}, (84, 40), 11 * 5 * 64),
        # 84 -> 42 -> 21 -> 19 -> 9 -> 7, 44 -> 22 -> 11 -> 9 -> 4 -> 2: they are not.
        ({"torso": "gamma_hadamax"}, (84, 44), 7 * 2 * 64),
    ],
)
def test_networks_follow(network, shape, units):
    made = PolicyValueNetwork(3, NetworkConfig(**network))
    params = jax.eval_shape(lambda: init_params(made, jax.random.key(0), shape))
    assert params["Torso_0"]["Dense_0"]["Dense_0"]["kernel"].shape[0] == units
    outputs = jax.eval_shape(made.apply, {"params": params}, jnp.zeros((2, *shape, 4)))
    assert outputs.logits.shape == (2, 3)


@pytest.mark.parametrize(
    ("changes", "network", "message"),
    [
        ({"env": {"frame_width": 82}}, {}, "frame_width = 82: must be a multiple of 4: take 80"),
        ({"env": {"frame_height": 8}}, {}, "must lie between 16 and 512"),
        ({"env": {"frame_height": 20}}, {"torso": "nature"}, "nothing is left of it after"),
        ({}, {"torso": "nips", "extra_layers": 5}, "fewer of network.extra_layers"),
        ({}, {"torso": "nips", "first_stride": 9}, "must lie between 1 and 8"),
        ({}, {"torso": "impala", "extra_layers": 1}, "impala has none"),
        ({}, {"torso": "impala", "max_pool": 7}, "6 pixels are left of env.frame_height = 44"),
        ({"env": {"frame_width": 36}}, {"torso": "impala", "max_pool": 6}, "take 5 or fewer"),
        ({}, {"torso": "nature", "width": 2}, "network.width = 2: only with"),
        ({}, {"torso": "nips", "spectral_norm": True}, "spectral_norm = true: only with"),
        (
            {},
            {"torso": "gamma", "max_pool": 6, "spectral_norm": True},
            "network.spectral_norm = true and network.max_pool = 6: only with network.torso = "
            "'impala', else network.spectral_norm = false, network.max_pool = 0$",
        ),
        ({}, {"torso": "gamma", "first_stride": 2}, "gamma has strides of its own; leave it at 4"),
        ({"env": {"frame_height": 24}}, {"torso": "gamma"}, "nothing is left of it after"),
        (
            {},
            {"torso": "hadamax", "first_stride": 2},
            "hadamax has strides of its own; leave it at 4",
        ),
        (
            {},
            {"torso": "gamma_hadamax", "extra_layers": 1},
            "gamma_hadamax has none; leave it at 0",
        ),
        (
            {"env": {"frame_height": 28}},
            {"torso": "gamma_hadamax"},
            "convolutions of gamma_hadamax: take larger frames$",
        ),
        ({}, {"simplicial_groups": 9}, "must divide the 256 units .* take 8"),
        ({}, {"torso": "hadamax", "simplicial_groups": 512}, "the 512 units .* take 256"),
        ({}, {"units": 30, "simplicial_groups": 20}, "the 30 units .* take 15"),
        ({}, {"units": 1, "simplicial_groups": 1}, "into groups of two or more: take 0"),
        ({}, {"simplicial_temperature": 0.0}, "simplicial_temperature = 0.0: must be above 0"),
        (
            {},
            {"normalize_observations": False, "skip_blank_frames": True},
            "only with network.norm",
        ),
    ],
)
def test_sizes_that_do_not_fit(changes, network, message):
    config = catch_config(**changes, network=network)
    with pytest.raises(UserError, match=message):
        check(config)
