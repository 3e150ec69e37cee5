"""Torsos of other packages: what their modules define, and mistakes in them, in one line each."""

import sys

import jax
import jax.numpy as jnp
import pytest

from jaxrl.cli.options import options_of
from jaxrl.config import extensions, needs
from jaxrl.config.network import TORSOS, NetworkConfig
from jaxrl.config.schema import Config
from jaxrl.config.toml import from_table
from jaxrl.config.validation import check
from jaxrl.errors import UserError
from jaxrl.experiments import bench
from jaxrl.networks.actors import forward, init_params
from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork
from jaxrl.networks.torsos import check_torso
from jaxrl.training import train
from tests.conftest import catch_config
from tests.survival import ROOT

START = "import flax.linen as nn, jax, jax.numpy as jnp\nUNITS = 8\n"


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Installs a package whose torso, of a name, has a text as its module."""

    def put(name, text):
        (tmp_path / f"torso_{name}.py").write_text(text)
        info = tmp_path / f"torso_{name}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: of-{name}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(f"[jaxrl.torsos]\n{name} = torso_{name}\n")
        extensions.names.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield put
    extensions.names.cache_clear()
    extensions.load.cache_clear()
    for name in [name for name in sys.modules if name.startswith("torso_")]:
        del sys.modules[name]


def of(body, start=START):
    return f"{start}def make(network):\n    return lambda x: {body}\n"


def test_every_network_takes_it(register):
    register("mine", of("nn.Conv(3, (8, 8), 8, name='mine')(x)"))
    config = NetworkConfig(torso="mine")
    check_torso(config, (84, 84, 4))
    frames = jnp.zeros((2, 84, 84, 4), jnp.uint8)
    params = init_params(PolicyValueNetwork(6, config), jax.random.key(0))
    assert params["Torso_0"]["mine"]["kernel"].shape == (8, 8, 4, 3)
    # 84 / 8 with SAME are 11 x 11 places of 3 features, then the layer of UNITS.
    assert params["Torso_0"]["Dense_0"]["Dense_0"]["kernel"].shape == (11 * 11 * 3, 8)
    outputs = forward(PolicyValueNetwork(6, config), params, (), frames)
    assert (outputs.logits.shape, outputs.value.shape) == ((2, 6), (2,))
    for more in ({"dueling": True}, {"noisy": True}, {"dtype": "bfloat16"}, {"layer_norm": True}):
        network = ActionValueNetwork(6, 5, NetworkConfig(torso="mine", **more))
        params = jax.eval_shape(lambda n=network: init_params(n, jax.random.key(0)))
        values = jax.eval_shape(lambda p, n=network: forward(n, p, (), frames), params)
        assert values.shape == (2, 6, 5)
        assert values.dtype == jnp.float32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import absent\n", "jaxrl.torsos: 'bad' of the package of-bad cannot be imported"),
        (of("x", start=""), "jaxrl.torsos: torso_bad must define make(network) and UNITS"),
        (of("x", "UNITS = 0\n"), "must define make(network) and UNITS"),
        ("UNITS = 8\n", "must define make(network) and UNITS"),
    ],
)
def test_a_module_that_is_wrong_is_refused_with_the_options(register, text, message):
    register("bad", text)
    config = from_table({"network": {"torso": "bad"}})
    with pytest.raises(UserError) as error:
        check(config)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x / 0 + undefined", "'bad': torso_bad raises NameError: name 'undefined' is not defined"),
        ("nn.Dense(3, 'a\\nb', 4, 5, 6, 7, 8, 9, 10, 11, 12)(x)", "torso_bad raises TypeError: "),
        ("x.mean((0, 1))", "must map frames float32[2, 84, 84, 4] to numbers [2, ...], the batch "
         "first, and gives float32[84, 4]"),
        ("x.reshape(-1)", "and gives float32[56448]"),
        ("x.mean((1, 2, 3))", "and gives float32[2]"),
        ("x.astype(jnp.int32)", "and gives int32[2, 84, 84, 4]"),
        ("(x, x)", "and gives tuple"),
        ("nn.BatchNorm(False)(x)", "has variables beside its parameters (batch_stats)"),
        ("nn.Dropout(0.5, deterministic=False)(x)", "torso_bad raises InvalidRngError: "),
    ],
)  # fmt: skip
def test_a_torso_that_cannot_be_trained_is_refused_before_anything_starts(register, body, message):
    register("bad", of(body))
    with pytest.raises(UserError) as error:
        check_torso(NetworkConfig(torso="bad"), (84, 84, 4))
    assert message in str(error.value)
    assert str(error.value).startswith("network.torso = 'bad': ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("prepare", [train._open, bench.prepare])
def test_it_is_checked_with_the_frames_that_the_agent_sees(register, prepare):
    register("bad", of("x.reshape(-1)"))
    changes = {"env": {"stack": 1, "frame_height": 44, "frame_width": 44}}
    config = catch_config(network={"torso": "bad"}, **changes)
    with pytest.raises(UserError, match=r"must map frames float32\[2, 44, 44, 1\]"):
        prepare(config)


def test_a_torso_may_refuse_in_its_own_words(register):
    register("patches", (ROOT / "docs" / "examples" / "patches.py").read_text())
    check_torso(NetworkConfig(torso="patches"), (84, 96, 4))
    with pytest.raises(UserError, match="frames of 84 x 80 pixels have no whole patches: take mul"):
        check_torso(NetworkConfig(torso="patches"), (84, 80, 4))


@pytest.mark.parametrize("name", ["natur", "Nature"])
def test_the_message_about_a_misspelt_torso_has_the_name_that_was_meant(name):
    with pytest.raises(UserError, match=f"torso = '{name}': .*did you mean 'nature'"):
        check(Config().replaced(network={"torso": name}))


def test_without_its_package_the_message_names_the_entry_point(register):
    register("other", of("x"))
    wanted = (
        "network.torso = 'mine': must be one of nips, nature, gamma, hadamax, gamma_hadamax, "
        "impala, other; no installed package registers it in jaxrl.torsos"
    )
    with pytest.raises(UserError) as error:
        from_table({"network": {"torso": "mine"}})
    assert str(error.value) == wanted
    with pytest.raises(UserError) as error:
        check(Config(network=NetworkConfig(torso="mine")))
    assert str(error.value) == wanted


def test_the_help_lists_it_and_a_policy_says_that_it_needs_it(register):
    register("mine", of("x"))
    (option,) = [one for one in options_of(NetworkConfig) if "--torso" in one.names]
    assert option.choices == (*TORSOS.builtin, "mine")
    assert TORSOS.builtin == ("nips", "nature", "gamma", "hadamax", "gamma_hadamax", "impala")
    config = Config(network=NetworkConfig(torso="mine"))
    assert needs.described(config) == ["mine of jaxrl.torsos (of-mine 0.1)"]
    assert needs.described(Config()) == []
