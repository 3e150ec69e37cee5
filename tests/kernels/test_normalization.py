"""The kernels normalize as their formula says, in float64 and in Flax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.kernels import library, normalization
from jaxrl.kernels.normalization import Form
from jaxrl.networks.layers import EPSILON, LayerNorm

# The last are shared among threads.
SHAPES = [(3, 5, 5, 16), (7, 48), (2, 13, 13, 64), (1, 512), (2100, 256)]


def arrays(shape):
    random = np.random.default_rng(0)
    sizes = shape, shape[-1:], shape[-1:], shape
    return [jnp.asarray(random.normal(size=size), jnp.float32) for size in sizes]


def with_gradients(normalize, x, scale, bias, gradient):
    y, pullback = jax.vjp(normalize, x, scale, bias)
    return y, *pullback(gradient)


def ours(form):
    return lambda *given: normalization.normalize(*given, form)


def by_hand(form):
    def normalize(x, scale, bias):
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = (centered**2).mean(axis=-1, keepdims=True)
        y = centered / jnp.sqrt(variance + form.epsilon) * scale + bias
        return nn.relu(y) if form.rectify else y

    return normalize


def test_a_row_by_hand():
    """Of the numbers -1 and 1 in turns the variance is 1; with ε = 3 they become halves."""
    lanes = library.lanes()
    x = jnp.tile(jnp.array([-1.0, 1.0]), lanes // 2)[None]
    scale, bias = jnp.full(lanes, 4.0), jnp.full(lanes, 1.0)
    y = normalization.normalize(x, scale, bias, Form(3.0, False))
    np.testing.assert_allclose(y[0, :2], [-1, 3], rtol=1e-6)
    y = normalization.normalize(x, scale, bias, Form(3.0, True))
    np.testing.assert_allclose(y[0, :2], [0, 3], rtol=1e-6)


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_their_gradients_equal_float64(shape, rectify):
    given, form = arrays(shape), Form(1e-6, rectify)
    assert normalization.fits(*given[:3])
    mine = jax.jit(lambda *given: with_gradients(ours(form), *given))(*given)
    with jax.enable_x64(True):
        wide = [jnp.asarray(np.asarray(x, np.float64)) for x in given]
        exact = [np.asarray(x) for x in with_gradients(by_hand(form), *wide)]
    for one, of in zip(mine, exact, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, of, rtol=1e-5, atol=1e-5 * np.abs(of).max())


def test_members_of_a_population_equal_layers_alone():
    given = arrays((2, 3, 5, 32))
    given = [given[0], jnp.stack([given[1], -given[1]]), jnp.stack([given[2]] * 2), given[3]]
    form = Form(1e-6, True)
    together = jax.vmap(lambda *given: with_gradients(ours(form), *given))(*given)
    for i in (0, 1):
        alone = with_gradients(ours(form), *(x[i] for x in given))
        for one, of in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one[i], of)


@pytest.mark.parametrize("rectify", [False, True])
def test_what_is_not_a_number_spoils_its_row_alone(rectify):
    """The gradient through a rectifier is 0 there, as XLA's is."""
    x, scale, bias, gradient = arrays((3, 16))
    x = x.at[1, 2].set(jnp.nan)
    y, of_x, of_scale, _ = with_gradients(ours(Form(1e-6, rectify)), x, scale, bias, gradient)
    for rows in (y, of_x):
        assert np.isnan(rows[1]).all()
        assert np.isfinite(rows[::2]).all()
    assert np.isnan(of_scale).all()


@pytest.mark.parametrize("rectify", [False, True])
def test_the_layer_is_flaxs_with_kernels_and_without(rectify, monkeypatch):
    x, scale, bias, _ = arrays((4, 3, 3, 16))
    layer = LayerNorm(rectify)
    params = {"scale": scale, "bias": bias}
    assert jax.tree.map(jnp.shape, layer.init(jax.random.key(0), x)["params"]) == {
        "scale": (16,),
        "bias": (16,),
    }
    theirs = nn.LayerNorm(epsilon=EPSILON).apply({"params": params}, x)
    theirs = nn.relu(theirs) if rectify else theirs
    np.testing.assert_allclose(layer.apply({"params": params}, x), theirs, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(library, "lanes", lambda: None)
    np.testing.assert_allclose(layer.apply({"params": params}, x), theirs, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_left_to_xla():
    x, scale, bias, _ = arrays((3, 16))
    assert normalization.fits(x, scale, bias)
    for other in ((x, scale[:8], bias), (x, scale, bias.astype(jnp.bfloat16))):
        assert not normalization.fits(*other)
    for other in (x[:, :5], x[:0], x.astype(jnp.bfloat16)):
        ones = jnp.ones(other.shape[-1:])
        assert not normalization.fits(other, ones, ones)
        y, _ = LayerNorm(rectify=True).init_with_output(jax.random.key(0), other)
        assert (y.shape, y.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize("rectify", [False, True])
def test_xlas_gradients_are_the_kernels(rectify, monkeypatch):
    x, scale, bias, gradient = arrays((6, 32))

    def gradients():
        def outputs(scale, bias, x):
            return LayerNorm(rectify).apply({"params": {"scale": scale, "bias": bias}}, x)

        return jax.vjp(outputs, scale, bias, x)[1](gradient)

    kernels = gradients()
    monkeypatch.setattr(library, "lanes", lambda: None)
    for one, of in zip(kernels, gradients(), strict=True):
        np.testing.assert_allclose(one, of, rtol=1e-4, atol=1e-5)
