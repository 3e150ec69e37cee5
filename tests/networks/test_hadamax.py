"""Hadamax encoders and simplicial embeddings: by hand, and by the operations of Flax and SciPy."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxrl.config.convolutions import HADAMAX, Block
from jaxrl.config.network import NetworkConfig
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork, QuantileNetwork
from jaxrl.networks.layers import simplicial, window_max_pool
from jaxrl.networks.torsos import HadamaxBlock, Torso

PIXELS = (44, 40)
IMAGES = np.random.default_rng(0).random((2, *PIXELS, 4)).astype(np.float32)


def test_a_block_by_hand():
    """One pixel, kernels 2 and -3 in the middle: gelu(2) · gelu(-3) = 1.954598 · -0.003637.

    Of tanh: gelu(x) = x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))); 2 / 2 · (1 + tanh(1.881188)) =
    1.954598 and -3 / 2 · (1 + tanh(-3.356944)) = -0.003637.
    """
    block = HadamaxBlock(Block(8, 3, 3, 1), "SAME", NetworkConfig(torso="hadamax"))
    kernels = [jnp.zeros((3, 3, 1, 8)).at[1, 1].set(weight) for weight in (2.0, -3.0)]
    params = {
        f"Conv_{n}": {"kernel": kernel, "bias": jnp.zeros(8)} for n, kernel in enumerate(kernels)
    }
    y = block.apply({"params": params}, jnp.ones((1, 1, 1, 1)))
    np.testing.assert_allclose(y, np.full((1, 1, 1, 8), 1.954598 * -0.003637), rtol=2e-4)


@pytest.mark.parametrize(
    ("torso", "layer_norm"),
    [
        ("hadamax", True),
        pytest.param("hadamax", False, marks=pytest.mark.slow),
        pytest.param("gamma_hadamax", True, marks=pytest.mark.slow),
    ],
)
def test_the_torso_equals_the_layers_of_flax(torso, layer_norm):
    """Whose SAME pads an even kernel's surplus at the end, as the paper's code does."""
    config = NetworkConfig(torso=torso, layer_norm=layer_norm)
    made = Torso(config)
    params = jax.jit(made.init)(jax.random.key(0), IMAGES)["params"]
    # Scales, offsets and biases that matter.
    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(1)
    leaves = [x + random.normal(size=x.shape).astype(np.float32) / 10 for x in leaves]
    params = jax.tree.unflatten(tree, leaves)

    def norm(given, number, x):
        name = f"LayerNorm_{number}"
        return nn.LayerNorm().apply({"params": given[name]}, x) if layer_norm else x

    @jax.jit
    def expected(x):
        blocks, edges = HADAMAX[torso]
        for number, (filters, size, window, stride) in enumerate(blocks):
            block = params[f"HadamaxBlock_{number}"]
            conv = nn.Conv(filters, (size, size), padding="SAME")
            factors = [
                nn.gelu(norm(block, n, conv.apply({"params": block[f"Conv_{n}"]}, x)))
                for n in (0, 1)
            ]
            x = nn.max_pool(
                factors[0] * factors[1], (window, window), (stride, stride), padding=edges
            )
        x = nn.Dense(512).apply({"params": params["Dense_0"]["Dense_0"]}, x.reshape(len(x), -1))
        return nn.gelu(norm(params, 0, x))

    (ours,) = jax.jit(made.apply)({"params": params}, IMAGES)
    np.testing.assert_allclose(ours, expected(IMAGES), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("edges", ["SAME", "VALID"])
@pytest.mark.parametrize(("window", "stride"), [(4, 4), (2, 2), (3, 1), (3, 2)])
def test_pooling_and_its_gradient_equal_xlas(window, stride, edges):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 11, 14, 3)), jnp.float32)
    ours, pullback = jax.vjp(lambda x: window_max_pool(x, window, stride, edges), x)
    theirs, oracle = jax.vjp(
        lambda x: nn.max_pool(x, (window, window), (stride, stride), padding=edges), x
    )
    np.testing.assert_array_equal(ours, theirs)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=ours.shape), jnp.float32)
    np.testing.assert_allclose(pullback(gradient)[0], oracle(gradient)[0], atol=1e-6)


def test_pooling_by_hand():
    """Five pixels by windows of two, two apart: the last one is alone, or left out."""
    line = jnp.array([1.0, 5.0, 2.0, 7.0, 3.0])
    image = (line[:, None] + 10 * line)[None, :, :, None]
    for edges, best in (("SAME", [5.0, 7.0, 3.0]), ("VALID", [5.0, 7.0])):
        pooled = window_max_pool(image, 2, 2, edges)
        np.testing.assert_array_equal(
            pooled[0, :, :, 0], np.array(best)[:, None] + 10 * np.array(best)
        )
    # Of negative numbers too the padding is never the largest.
    assert float(window_max_pool(-image, 3, 1, "SAME").max()) == -11.0


def test_simplicial_embeddings_by_hand():
    """ln 1, ln 2, ln 3 and ln 2, ln 2, ln 4; at temperature ½ the numbers are squared."""
    x = jnp.log(jnp.array([[1.0, 2.0, 3.0, 2.0, 2.0, 4.0]]))
    np.testing.assert_allclose(
        simplicial(x, 2, 1.0), [[1 / 6, 2 / 6, 3 / 6, 1 / 4, 1 / 4, 2 / 4]], rtol=1e-5
    )
    np.testing.assert_allclose(
        simplicial(x, 2, 0.5), [[1 / 14, 4 / 14, 9 / 14, 1 / 6, 1 / 6, 4 / 6]], rtol=1e-5
    )


def test_simplicial_embeddings_equal_scipy_in_every_type():
    x = np.random.default_rng(0).normal(size=(3, 2, 12)).astype(np.float32) * 3
    expected = scipy.special.softmax(x.reshape(3, 2, 4, 3) / 0.3, axis=-1).reshape(x.shape)
    np.testing.assert_allclose(simplicial(jnp.asarray(x), 4, 0.3), expected, rtol=1e-4, atol=1e-7)
    rounded = simplicial(jnp.asarray(x, jnp.bfloat16), 4, 0.3)
    assert rounded.dtype == jnp.float32
    np.testing.assert_allclose(rounded.reshape(3, 2, 4, 3).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "network",
    [
        {},
        pytest.param({"torso": "hadamax", "dtype": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param({"layer_norm": True, "dueling": True, "noisy": True}, marks=pytest.mark.slow),
    ],
)
def test_the_layer_above_the_convolutions_has_them(network):
    """In place of its activation, of each stream; the rest of the network is as it was."""
    plain = NetworkConfig(**({"torso": "nips", "units": 24} | network))
    config = NetworkConfig(
        **({"torso": "nips", "units": 24} | network),
        simplicial_groups=6,
        simplicial_temperature=0.5,
    )
    streams = 2 if config.dueling else 1
    made = Torso(config, streams=streams)
    params = jax.jit(made.init)(jax.random.key(0), IMAGES)["params"]
    shapes = jax.eval_shape(lambda: Torso(plain, streams=streams).init(jax.random.key(0), IMAGES))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes["params"])
    outputs, captured = made.apply({"params": params}, IMAGES, capture_intermediates=True)
    layers = captured["intermediates"]
    last = [f"LayerNorm_{n + 2}" if config.layer_norm else f"Dense_{n}" for n in range(streams)]
    for name, output in zip(last, outputs, strict=True):
        before = np.asarray(layers[name]["__call__"][0], np.float32).reshape(2, 6, 4)
        assert output.dtype == jnp.float32
        np.testing.assert_allclose(
            output, scipy.special.softmax(before / 0.5, axis=-1).reshape(2, 24), rtol=1e-4
        )


@pytest.mark.parametrize("torso", ["hadamax", "gamma_hadamax"])
def test_every_network_takes_them(torso):
    frames = jnp.zeros((2, *PIXELS, 4))
    more = ({}, {"dueling": True}, {"noisy": True}, {"dtype": "bfloat16"}, {"layer_norm": True})
    for options in more:
        config = NetworkConfig(torso=torso, simplicial_groups=64, **options)
        networks = (
            PolicyValueNetwork(6, config), ActionValueNetwork(6, 5, config),
            QuantileNetwork(6, 4, config),
        )  # fmt: skip
        for network in networks:
            params = jax.eval_shape(lambda n=network: init_params(n, jax.random.key(0), PIXELS))
            outputs = jax.eval_shape(network.apply, {"params": params}, frames)
            assert {x.dtype for x in jax.tree.leaves(outputs)} == {jnp.dtype("float32")}
            assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
