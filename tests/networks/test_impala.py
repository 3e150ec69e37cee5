"""The residual torso's options: width, spectral norm, LayerNorm and adaptive max pooling."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.network import NetworkConfig
from jaxrl.networks.actors import forward, init_params
from jaxrl.networks.heads import PolicyValueNetwork
from jaxrl.networks.layers import adaptive_max_pool, largest_singular_value

IMPALA = NetworkConfig(torso="impala")
PIXELS = (24, 24)
IMAGES = np.random.default_rng(0).integers(0, 256, (2, *PIXELS, 4)).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (3, 7), (36, 16), (576, 64)])
def test_the_largest_singular_value_and_its_gradient(shape):
    matrix = np.random.default_rng(1).normal(size=shape)
    u, values, v = np.linalg.svd(matrix)
    value, slope = jax.value_and_grad(largest_singular_value)(jnp.asarray(matrix, jnp.float32))
    np.testing.assert_allclose(value, values[0], rtol=1e-5)
    assert np.linalg.norm(slope - np.outer(u[:, 0], v[0])) < 1e-3


def test_singular_values_far_from_one():
    for scale in (1e-10, 1e10):
        matrix = jnp.array([[3.0, 0.0], [0.0, 1.0]]) * scale
        np.testing.assert_allclose(largest_singular_value(matrix), 3.0 * scale, rtol=1e-5)
    assert float(largest_singular_value(jnp.zeros((3, 2)))) == 0.0


def test_parts_of_adaptive_pooling_by_hand():
    """Five pixels in three parts: 0 and 1, 1 to 3, 3 and 4, as PyTorch divides them."""
    line = jnp.array([1.0, 5.0, 2.0, 7.0, 3.0])
    image = (line[:, None] + 10 * line)[None, :, :, None]
    best = np.array([5.0, 7.0, 7.0])
    pooled = adaptive_max_pool(image, 3)
    np.testing.assert_array_equal(pooled[0, :, :, 0], best[:, None] + 10 * best)
    np.testing.assert_array_equal(adaptive_max_pool(image, 5), image)
    # Eleven in six, of an image of 84 pixels above three sections: two or three of them each.
    rows = jnp.arange(11.0)[None, :, None, None] * jnp.ones((1, 1, 11, 1))
    np.testing.assert_array_equal(adaptive_max_pool(rows, 6)[0, :, 0, 0], [1, 3, 5, 7, 9, 10])


def outputs(config, change=lambda path, x: x):
    network = PolicyValueNetwork(3, config)
    params = init_params(network, jax.random.key(0), PIXELS)
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: change(jax.tree_util.keystr(path), x), params
    )
    return params, np.asarray(forward(network, params, (), IMAGES).logits)


def scaled(stems, factor=3.0):
    """Scales the kernels of the sections' first convolutions, or those of their blocks."""

    def change(path, x):
        if "ImpalaSection" not in path or "kernel" not in path:
            return x
        return factor * x if ("Conv_0" in path) == stems else x

    return change


@pytest.mark.slow
@pytest.mark.rotating(2)
def test_the_kernels_of_residual_blocks_have_a_spectral_norm_of_one():
    """So their scale does not matter; that of the sections' first convolutions does."""
    config = dataclasses.replace(IMPALA, spectral_norm=True)
    _, plain = outputs(config)
    np.testing.assert_allclose(outputs(config, scaled(stems=False))[1], plain, rtol=1e-4, atol=1e-6)
    assert np.abs(outputs(config, scaled(stems=True))[1] - plain).max() > 1e-3
    assert np.abs(outputs(IMPALA, scaled(stems=False))[1] - outputs(IMPALA)[1]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.rotating(2)
def test_layer_norm_follows_the_first_convolution_of_each_section():
    """So the scale of its kernel does not matter, with biases of 0 at the start."""
    config = dataclasses.replace(IMPALA, layer_norm=True)
    params, plain = outputs(config)
    assert params["Torso_0"]["ImpalaSection_2"]["LayerNorm_0"]["scale"].shape == (32,)
    assert params["Torso_0"]["LayerNorm_0"]["scale"].shape == (256,)
    np.testing.assert_allclose(outputs(config, scaled(stems=True))[1], plain, rtol=2e-3, atol=1e-5)
    assert np.abs(outputs(config, scaled(stems=False))[1] - plain).max() > 1e-4


def test_width_pooling_and_units_by_their_shapes():
    config = dataclasses.replace(IMPALA, width=2, max_pool=2, units=7)
    network = PolicyValueNetwork(3, config)
    torso = jax.eval_shape(lambda: init_params(network, jax.random.key(0), PIXELS))["Torso_0"]
    kernels = [torso[f"ImpalaSection_{n}"]["Conv_0"]["kernel"].shape for n in range(3)]
    assert kernels == [(3, 3, 4, 32), (3, 3, 32, 64), (3, 3, 64, 64)]
    assert torso["Dense_0"]["Dense_0"]["kernel"].shape == (2 * 2 * 64, 7)
