"""Fully connected layers by the kernels equal products in float64."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.network import TORSOS, NetworkConfig
from jaxrl.kernels import dense, library
from jaxrl.networks.actors import init_params
from jaxrl.networks.heads import ActionValueNetwork, PolicyValueNetwork, QuantileNetwork
from jaxrl.networks.layers import Dense, multiplied


def arrays(batch, inputs, outputs):
    random = np.random.default_rng(0)
    x, weights, gradient = (
        jnp.asarray(random.normal(size=shape), jnp.float32)
        for shape in ((batch, inputs), (inputs, outputs), (batch, outputs))
    )
    return x, weights / inputs**0.5, gradient


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize(
    ("batch", "inputs", "outputs"),
    [
        (1, 64, 32),
        (14, 96, 64),
        (33, 1152, 256),
        pytest.param(128, 3136, 512, marks=pytest.mark.slow),
    ],
)
def test_a_product_and_its_gradients_equal_float64(batch, inputs, outputs, bfloat16):
    """Of bfloat16, when the factors are rounded to it."""
    x, weights, gradient = arrays(batch, inputs, outputs)
    assert dense.fits(x, weights)
    y, pullback = jax.vjp(lambda x, weights: dense.product(x, weights, bfloat16), x, weights)
    ours = (y, *pullback(gradient))
    if bfloat16:
        x, weights, gradient = (a.astype(jnp.bfloat16) for a in (x, weights, gradient))
    x, weights, gradient = (np.asarray(a, np.float64) for a in (x, weights, gradient))
    for mine, exact in zip(ours, (x @ weights, gradient @ weights.T, x.T @ gradient), strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, exact, rtol=0, atol=4e-6 * np.abs(exact).max())


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 0)])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_members_of_a_population_equal_layers_alone(axes, bfloat16):
    x, weights, gradient = arrays(5, 64, 32)
    factors = [
        array if axis is None else jnp.stack([array, array[::-1]])
        for array, axis in zip((x, weights), axes, strict=True)
    ]
    gradients = jnp.stack([gradient, 3 * gradient])

    def with_gradients(x, weights, gradient):
        y, pullback = jax.vjp(lambda x, weights: dense.product(x, weights, bfloat16), x, weights)
        return y, *pullback(gradient)

    together = jax.vmap(with_gradients, (*axes, 0))(*factors, gradients)
    for i in (0, 1):
        member = [
            array if axis is None else array[i] for array, axis in zip(factors, axes, strict=True)
        ]
        alone = with_gradients(*member, gradients[i])
        for one, of in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one[i], of)


def test_what_does_not_fit_is_left_to_xla():
    x, weights, _ = arrays(3, 64, 64)
    assert dense.fits(x, weights)
    for other in ((x, weights[:, :7]), (x[:0], weights), (x.astype(jnp.bfloat16), weights)):
        assert not dense.fits(*other)
        assert multiplied(*other).shape == (len(other[0]), other[1].shape[1])
    rows = jnp.stack([x, 2 * x])  # whose leading axes go on
    np.testing.assert_array_equal(multiplied(rows, weights)[1], multiplied(2 * x, weights))


def test_a_layer_has_the_parameters_of_flax_and_its_outputs(monkeypatch):
    x, _, _ = arrays(9, 64, 32)
    layer = Dense(32, 1.0, "torch")
    params = layer.init_with_output(jax.random.key(0), x)[1]["params"]
    assert jax.tree.map(jnp.shape, params) == {"Dense_0": {"kernel": (64, 32), "bias": (32,)}}
    ours = layer.apply({"params": params}, x)
    monkeypatch.setattr(library, "lanes", lambda: None)
    np.testing.assert_allclose(ours, layer.apply({"params": params}, x), atol=1e-6)
    weights = params["Dense_0"]
    np.testing.assert_allclose(ours, x @ weights["kernel"] + weights["bias"], atol=1e-6)


@pytest.mark.parametrize("torso", sorted(TORSOS.builtin))
@pytest.mark.parametrize("layer_norm", [False, True])
def test_every_layer_below_the_heads_multiplies_bfloat16(torso, layer_norm, monkeypatch):
    monkeypatch.setattr(library, "multiplies_bfloat16", lambda: True)
    images = jax.ShapeDtypeStruct((2, 84, 84, 4), jnp.float32)

    def precisions(dtype):
        network = PolicyValueNetwork(4, NetworkConfig(torso, dtype=dtype, layer_norm=layer_norm))
        params = jax.eval_shape(lambda: init_params(network, jax.random.key(0)))
        apply = jax.jit(lambda params, x: network.apply({"params": params}, x).value)
        text = apply.lower(params, images).as_text()
        return re.findall(r"@(jaxrl_(?:convolution|dense)\b).*?bfloat16 = (true|false)", text)

    half = precisions("bfloat16")
    assert {name for name, _ in half} == {"jaxrl_convolution", "jaxrl_dense"}
    assert {on for _, on in half} == {"true"}
    assert precisions("float32") == [(name, "false") for name, _ in half]


def test_heads_multiply_float32(monkeypatch):
    """What is above the hidden layers is not rounded, whatever the type of the layers below."""
    monkeypatch.setattr(library, "multiplies_bfloat16", lambda: True)
    calls = []

    def product(x, weights, bfloat16=False):
        calls.append((weights.shape, bfloat16))
        return x @ weights

    monkeypatch.setattr(dense, "product", product)
    images = jnp.zeros((2, 44, 40, 4), jnp.uint8) / 255.0
    for dtype in ("float32", "bfloat16"):
        for noisy in (False, True):
            config = NetworkConfig("nips", dtype=dtype, noisy=noisy, dueling=True, units=32)
            calls.clear()
            ActionValueNetwork(4, 32, config).init(jax.random.key(0), images)
            half = dtype == "bfloat16"
            hidden, heads = calls[:2], calls[2:]
            assert [used for _, used in hidden] == [half] * 2
            assert [shape[1] for shape, _ in heads] == [128, 32]
            assert not any(used for _, used in heads)
            calls.clear()
            network = QuantileNetwork(32, 2, config)
            network.init(jax.random.key(0), images)
            assert {used for shape, used in calls if shape[0] != 32} == {half}
            assert not any(used for shape, used in calls if shape[0] == 32)
